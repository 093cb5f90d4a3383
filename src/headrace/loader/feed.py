"""`Feed`: what makes the batches of one loader. A loader has a position in it; a mixture takes several."""

from __future__ import annotations

import weakref
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING

from headrace.data import ITEM, ContentPins, pin_content
from headrace.loader.autotuning.tuner import Tuner
from headrace.loader.bad_samples import Quarantine
from headrace.loader.batch_memory import PooledMemory, memory_of
from headrace.loader.cache import EpochCache
from headrace.loader.decoding.pixels import all_parts, pixel_versions
from headrace.loader.position import DROP_WAIT_S, LoaderPass
from headrace.loader.recipe import Recipe
from headrace.loader.runner import PassResources, Runner
from headrace.plan import state_after
from headrace.system import ProcessRank

if TYPE_CHECKING:
    from headrace.device import CopyLane, Placement
    from headrace.loader.ray_workers.cluster import RayCluster


class Feed:
    """Recipe of a loader, its settings, and the resources that its passes share."""

    def __init__(
        self,
        recipe: Recipe,
        *,
        rank: ProcessRank,
        tuner: Tuner,
        placement: Placement | None,
        cache: EpochCache | None,
        quarantine: Quarantine | None,
        cluster: RayCluster | None = None,
    ) -> None:
        self.recipe = recipe
        self.rank = rank
        self.tuner = tuner
        self.placement = placement
        self.memory = memory_of(placement, prefetch=tuner.setting.prefetch, images=len(all_parts(recipe.pictures)))
        self.cache = cache
        self.cluster = cluster
        self._resources = PassResources(self.memory, cache, quarantine)
        self._latest: Runner | None = None
        self._prefetched: tuple[int, Runner, weakref.finalize[..., Feed]] | None = None
        """Epoch that is prefetched, its pass, and the finalizer that closes the pass with the loader."""
        if cache is not None:  # closed with the loader: passes refer to themselves and are freed late
            weakref.finalize(self, cache.store.close)

    @cached_property
    def content(self) -> ContentPins:
        """Versions of the files and objects that hold the samples."""
        recipe = self.recipe
        columns = [(recipe.dataset.table, column) for column in recipe.read_columns]
        return pin_content([*columns, *((items.dataset.table, ITEM) for _, _, items in recipe.lists)])

    def state_at(self, epoch: int, step: int) -> dict[str, int | str | bool]:
        """Return the state once the consumer has received the first `step` batches of `epoch`."""
        state = state_after(
            self.recipe.plan,
            epoch=epoch,
            steps=step,
            dataset=self.recipe.dataset.fingerprint,
            core=pixel_versions(),
            content=str(self.content),
        )
        return state.to_dict()

    def lane(self) -> CopyLane | None:
        """Return a new lane to the device; None on the CPU."""
        return None if self.placement is None else self.placement.lane()

    def begin(self, epoch: int, step: int) -> LoaderPass:
        """Start the host's part of a pass, in this process or on other machines."""
        if self.cluster is None:
            self._latest = self._prefetched_pass(epoch, step) or self.start(epoch, step)
            return self._latest
        from headrace.loader.ray_workers.ray_runner import RayRunner  # ray is slow to import, and optional

        prefetch = self.tuner.setting.prefetch
        return RayRunner(self.recipe, self._resources, self.cluster, prefetch=prefetch, epoch=epoch, step=step)

    def _prefetched_pass(self, epoch: int, step: int) -> Runner | None:
        """Return the prefetched pass if it starts at this step, else close it."""
        prefetched, self._prefetched = self._prefetched, None
        if prefetched is None:
            return None
        its_epoch, runner, close = prefetched
        if runner.foreign or (epoch, step) != (its_epoch, 0):
            close()
            return None
        close.detach()
        runner.hand_over()
        return runner

    @cached_property
    def _can_prefetch_epochs(self) -> bool:
        """True if batches depend on nothing that may change between epochs, and take no requests nor device memory."""
        recipe = self.recipe
        excluded = self.cluster, recipe.decode_on, recipe.map, recipe.batch_map
        return not recipe.is_remote and all(each is None for each in excluded)

    def prefetch_epoch(self, epoch: int, remaining: int) -> None:
        """Prefetch the first batches of `epoch`, while the consumer has `remaining` batches of the latest pass to take.

        Both together have at most `prefetch` batches in flight or ready. It begins once the latest pass has made its
        last batch: two engines would compete for the cores. An error is dropped, as the pass itself raises it again.
        """
        prefetch = self.tuner.setting.prefetch - remaining
        if prefetch < 1 or not self._can_prefetch_epochs:
            return
        if self._prefetched is not None:
            self._prefetched[1].set_prefetch(prefetch)
        elif self._latest is not None and self._latest.has_ended(0.0 if remaining else DROP_WAIT_S):
            with suppress(Exception):
                runner = Runner(self.recipe, self._resources, tuner=self.tuner, epoch=epoch, step=0, prefetch=prefetch)
                self._latest.end_cache_counts(runner)
                self._prefetched = epoch, runner, weakref.finalize(self, runner.close, DROP_WAIT_S)

    def start(self, epoch: int, step: int, *, recipe: Recipe | None = None, tuner: Tuner | None = None) -> Runner:
        """Start a pass in this process. A mixture passes a recipe with another plan, and a fixed setting."""
        tuner = self.tuner if tuner is None else tuner
        return Runner(self.recipe if recipe is None else recipe, self._resources, tuner=tuner, epoch=epoch, step=step)

    def warn_of_held(self, begun: LoaderPass) -> None:
        """Warn a consumer that holds many batches."""
        if isinstance(self.memory, PooledMemory):
            self.memory.set_prefetch(self.tuner.setting.prefetch)
            self.memory.warn_of_held(begun.batch_bytes, begun.held_batches)
