"""`MixedLoader`: several loaders as one, and where its consumer is."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from headrace.feed.memory import PinnedMemory, PooledMemory
from headrace.loader import Recipe, Stats, tuner_of
from headrace.loader.loader import Loader
from headrace.loader.mixtures.mixed_pass import Feeds, JoinedPass, OneSourcePass
from headrace.loader.position import LoaderPosition
from headrace.mixing.mixed_state import MixedState, find
from headrace.passes import DevicePass, Pass
from headrace.plan import Mixture, Plan, SourceBatches, SourceSamples

if TYPE_CHECKING:
    from headrace.loader import Runner

Batches: TypeAlias = Literal["one-source", "mixed"]


class MixedLoader(LoaderPosition):
    """Made by `mix`: iterates as a Loader does, and has its epochs, state and statistics.

    Iterating takes one epoch of `len(mixed)` steps. A pass that reaches its end goes on to the next epoch; one that is
    broken off starts the same epoch again.
    """

    def __init__(self, sources: Mapping[str, Loader], mixture: Mixture, batches: Batches, steps: int) -> None:
        super().__init__()
        self._sources = dict(sources)
        self._mixture = mixture
        self._batches: Batches = batches
        self._steps = steps
        self._first = next(iter(self._sources.values()))
        placement = self._first.placement
        pinned = placement is not None and placement.pinned
        self._memory: PinnedMemory | PooledMemory = PooledMemory(1, len(self._first.recipe.parts))
        if placement is not None and pinned:
            self._memory = PinnedMemory(placement.device)
        self._feeds: Feeds | None = None  # the latest pass's

    @property
    def sources(self) -> tuple[str, ...]:
        """Their names: `batch["source"]` is a position here."""
        return tuple(self._sources)

    @property
    def shares(self) -> dict[str, Fraction]:
        """The part of all batches ("one-source") or samples ("mixed") that each source has, as it is kept."""
        return dict(zip(self._sources, self._mixture.shares, strict=True))

    @property
    def window(self) -> int:
        """Batches or samples in which the shares are exact, counted from the first of all epochs."""
        return self._mixture.window

    @property
    def batch_size(self) -> int:
        """Samples per rank; where the sources' batches differ, about their mean."""
        sizes = [loader.batch_size for loader in self._sources.values()]
        return round(sum(share * size for share, size in zip(self._mixture.shares, sizes, strict=True)))

    @property
    def rank(self) -> int:
        return self._first.rank

    @property
    def world_size(self) -> int:
        return self._first.world_size

    @property
    def samples(self) -> int:
        """Samples of an epoch over all ranks; of batches that differ in size, about as many."""
        if self._batches == "mixed":
            return self._steps * self._first.recipe.plan.global_batch
        means = [Fraction(loader.samples, len(loader)) for loader in self._sources.values()]
        return round(self._steps * sum(share * mean for share, mean in zip(self._mixture.shares, means, strict=True)))

    def __len__(self) -> int:
        """Steps of an epoch, the same on every rank and in every epoch."""
        return self._steps

    def __repr__(self) -> str:
        shares = ", ".join(f"{name} {float(share):.3g}" for name, share in self.shares.items())
        what = "of one source each" if self._batches == "one-source" else "of samples of all"
        return f"MixedLoader: {len(self):,} batches of {self.batch_size}, {what}: {shares}"

    def source_stats(self) -> dict[str, Stats] | None:
        """What each source's feed did in the latest pass, as `stats` says it of all together."""
        return None if self._feeds is None or self._feeds.foreign else self._feeds.stats()

    def state_at(self, epoch: int, step: int) -> dict[str, Any]:
        """What `state_dict` says once the consumer has received the first `step` batches of `epoch`."""
        return self._state_at(*divmod(epoch * self._steps + step, self._steps)).to_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The next pass goes on where `state` was saved, also at another world size of the same global batches.

        Raises StateError for a state of other sources, weights or epochs, saying what differs in which source.
        """
        found = MixedState.from_dict(state)
        plans = {name: each.recipe.plan for name, each in self._sources.items()}
        repeating = {name for name, each in self._sources.items() if each.dataset.occurrences is not None}
        epoch, step, told = find(found, self._state_at, plans, repeating)
        for warning in told:
            warnings.warn(warning, stacklevel=2)
        self._move(epoch, step)

    def _state_at(self, epoch: int, step: int) -> MixedState:
        taken = self._taken(epoch, step)
        return MixedState(
            batches=self._batches,
            counts=dict(zip(self._sources, self._mixture.counts, strict=True)),
            seed=self._mixture.seed,
            steps=self._steps,
            epoch=epoch,
            step=step,
            sources={
                name: self._source_state(loader, number)
                for (name, loader), number in zip(self._sources.items(), taken, strict=True)
            },
        )

    def _source_state(self, loader: Loader, number: int) -> dict[str, Any]:
        plan = loader.recipe.plan
        if self._batches == "one-source":
            return loader.state_at(*divmod(number, plan.steps))
        epoch, samples = divmod(number, plan.length)
        return loader.state_at(epoch, 0) | {"samples": samples}

    def _taken(self, epoch: int, step: int) -> list[int]:
        """How many batches or samples of each source come before this step."""
        a_step = 1 if self._batches == "one-source" else self._first.recipe.plan.global_batch
        return self._mixture.taken((epoch * self._steps + step) * a_step)

    def check_place(self) -> None:
        for loader in self._sources.values():
            loader.check_place()

    def begin_pass(self, epoch: int, step: int) -> Pass:
        """For an iterator: starts what makes the batches of `epoch` from `step` on."""
        placement = self._first.placement
        self._taken(epoch + 1, 0)  # an epoch beyond what can be counted raises here
        lane = None if placement is None else placement.lane()  # first: what it may raise leaves no thread behind
        with ExitStack() as undo:
            feeds = Feeds(self._begin_feeds(epoch, step, undo))
            undo.pop_all()
        self._feeds = feeds
        host = (
            self._one_source(feeds, epoch, step) if self._batches == "one-source" else self._joined(feeds, epoch, step)
        )
        self._pass = host if lane is None else DevicePass(host, lane)
        return self._pass

    def _begin_feeds(self, epoch: int, step: int, undo: ExitStack) -> dict[str, Runner]:
        runners = {}
        for number, (name, loader) in enumerate(self._sources.items()):
            recipe, ahead, first = self._recipe_of(number, loader, epoch, step)
            # Given, and not tuned: who waits for one source waits for all, so that none can judge its own setting.
            runners[name] = loader.begin_feed(recipe, tuner_of(loader.threads, ahead), epoch, first)
            undo.callback(runners[name].close)
        return runners

    def _recipe_of(self, number: int, loader: Loader, epoch: int, step: int) -> tuple[Recipe, int, int]:
        """What the source's feed makes in this epoch, how many batches ahead, and its first step."""
        recipe = replace(loader.recipe, pass_samples=self._pass_samples(number, loader, epoch))
        if self._batches == "mixed":
            assert isinstance(recipe.plan, Plan)
            return (
                replace(recipe, plan=SourceSamples(recipe.plan, self._steps, self._mixture, number)),
                loader.prefetch,
                step,
            )
        end = self._taken(epoch + 1, 0)[number]
        # As far ahead in steps of the mixture as the source's loader would be alone.
        ahead = min(loader.prefetch, 1 + int(loader.prefetch * self._mixture.shares[number]))
        return replace(recipe, plan=SourceBatches(recipe.plan, end)), ahead, self._taken(epoch, step)[number]

    def _pass_samples(self, number: int, loader: Loader, epoch: int) -> int:
        """Different samples of the source that this rank takes in this epoch, which may hold several of the source's
        own, or a part of one."""
        count = Fraction(self._taken(epoch + 1, 0)[number] - self._taken(epoch, 0)[number])
        if self._batches == "one-source":
            count *= Fraction(loader.samples, len(loader))
        return min(math.ceil(count / loader.world_size), loader.recipe.plan.length)

    def _one_source(self, feeds: Feeds, epoch: int, step: int) -> Pass:
        recipes = [loader.recipe for loader in self._sources.values()]
        return OneSourcePass(
            feeds,
            self._mixture,
            epoch=epoch,
            step=step,
            steps=self._steps,
            packed=[None if recipe.packed is None else recipe.plan for recipe in recipes],
            output=recipes[0].output,
        )

    def _joined(self, feeds: Feeds, epoch: int, step: int) -> Pass:
        plan = self._first.recipe.plan
        return JoinedPass(
            feeds,
            self._mixture,
            self._memory,
            epoch=epoch,
            step=step,
            steps=self._steps,
            batch_size=plan.batch_size,
            first_row=plan.rank * plan.batch_size,
            global_batch=plan.global_batch,
            texts=self._first.recipe.texts,
            output=self._first.recipe.output,
        )

    def mind(self, begun: Pass) -> None:
        """For an iterator: a consumer that holds many batches is told so."""
        if isinstance(begun, OneSourcePass):
            for loader, runner in zip(self._sources.values(), begun.feeds.runners, strict=True):
                loader.mind(runner, within=1)
        elif isinstance(self._memory, PooledMemory):
            self._memory.mind(begun.batch_bytes, begun.held_batches)
