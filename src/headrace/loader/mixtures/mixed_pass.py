"""One pass of a mixture: batches of one source each, or joined from all."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from headrace.errors import UsageError
from headrace.loader.batch_memory import BatchMemory
from headrace.loader.mixtures.joining import fill_up, join
from headrace.loader.mixtures.sources import SOURCE
from headrace.loader.recipe import Batch, Recipe
from headrace.loader.runner import Runner
from headrace.loader.stats import Stats, total_stats
from headrace.plan import Mixture
from headrace.system import THREAD_PREFIX, Channel, Closed, ProcessOrigin, close_at_exit, in_own_thread


class MixedPass:
    """Base of a mixture's passes: steps `step` to `steps` of `epoch`, from the runners of all sources.

    `runners`, by name in the mixture's order, follow the sources' `recipes`. They begin and end together.
    """

    def __init__(
        self,
        runners: Mapping[str, Runner],
        mixture: Mixture,
        recipes: Sequence[Recipe],
        *,
        epoch: int,
        step: int,
        steps: int,
    ) -> None:
        self.runners = runners
        self._mixture = mixture
        self._recipes = recipes
        self._first = epoch * steps
        self._steps = range(step, steps)
        self._origin = ProcessOrigin()

    @property
    def foreign(self) -> bool:
        return self._origin.is_elsewhere

    @property
    def held_batches(self) -> None:
        return None  # each source's loader counts its own

    def close(self, timeout_s: float | None = None) -> None:
        for runner in self.runners.values():  # all are closed before the first is joined, which bounds the wait
            runner.close(0.0)
        for runner in self.runners.values():
            runner.close(timeout_s)

    def source_stats(self) -> dict[str, Stats]:
        return {name: runner.stats() for name, runner in self.runners.items()}

    def stats(self) -> Stats:
        return total_stats(self.source_stats().values())

    def _take_of(self, name: str) -> Batch:
        """Return the source's next batch. Raises Closed, or the source's error with its name."""
        try:
            return self.runners[name].take()[0]
        except Closed:
            raise
        except BaseException as error:
            error.add_note(f"in source {name!r} of the mixture")
            raise

    def _with_source(self, batch: Batch, sources: np.typing.NDArray[np.int64]) -> Batch:
        """Add the number of each sample's source to the batch."""
        if SOURCE in batch:
            raise UsageError(
                f"mixture: expected batches without {SOURCE!r}, as the mixture calls the number of each sample's "
                "source, got one that map= or batch_map= made; give it another name"
            )
        if self._recipes[0].output == "numpy":
            return {**batch, SOURCE: sources}
        import torch

        return {**batch, SOURCE: torch.from_numpy(sources)}


class OneSourcePass(MixedPass):
    """Pass with batches of a single source each."""

    @property
    def batch_bytes(self) -> int:
        return max(runner.batch_bytes for runner in self.runners.values())

    def take(self) -> tuple[Batch, int]:
        if not self._steps:
            raise Closed
        at = self._first + self._steps[0]
        source, number = (int(found[0]) for found in self._mixture.between(at, at + 1))
        batch = self._take_of(list(self.runners)[source])
        self._steps = self._steps[1:]
        recipe = self._recipes[source]
        if recipe.packed is None:
            samples = rows_of(batch)
        else:  # packed rows do not show the number of samples
            samples = len(recipe.plan.batch(*divmod(number, recipe.plan.steps)).samples)
        return self._with_source(batch, np.full(samples, source, np.int64)), self._steps.start


class JoinedPass(MixedPass):
    """Pass with batches of samples of several sources. A thread, "headrace-mix", joins their parts."""

    def __init__(
        self,
        runners: Mapping[str, Runner],
        mixture: Mixture,
        recipes: Sequence[Recipe],
        memory: BatchMemory,
        *,
        epoch: int,
        step: int,
        steps: int,
    ) -> None:
        super().__init__(runners, mixture, recipes, epoch=epoch, step=step, steps=steps)
        self._memory = memory
        self._joined = 0
        self._python_s = 0.0
        self._channel: Channel[tuple[Batch, int]] = Channel(1)
        self._thread = threading.Thread(target=self._run, name=f"{THREAD_PREFIX}mix", daemon=True)
        self._thread.start()
        close_at_exit(self)

    @property
    def batch_bytes(self) -> int:
        return sum(runner.batch_bytes for runner in self.runners.values())

    def take(self) -> tuple[Batch, int]:
        return self._channel.take()

    def close(self, timeout_s: float | None = None) -> None:
        if self.foreign:
            return
        self._channel.close()
        super().close(timeout_s)
        if not in_own_thread():
            self._thread.join()  # it waits only for the runners, which have ended or deliver no more

    def stats(self) -> Stats:
        """Return the sources' sums, with the waits and counts of the consumer of joined batches."""
        channel = self._channel.statistics()
        all_sources = super().stats()
        return replace(
            all_sources,
            batches=channel.taken,
            samples=self._joined,
            consumer_wait_s=channel.consumer_wait_s,
            feed_wait_s=channel.producer_wait_s,
            ready_batches=channel.waiting,
            python_s=all_sources.python_s + self._python_s,
        )

    # --- the joining thread ---

    def _run(self) -> None:
        error: BaseException | None = None
        try:
            for step in self._steps:
                self._channel.reserve(block=True)
                self._channel.put((self._join(step), step + 1))
                self._python_s = time.thread_time()
        except Closed:
            pass
        except BaseException as caught:
            error = caught
        finally:
            self._channel.finish(error)
            del error  # its traceback holds this frame

    def _join(self, step: int) -> Batch:
        recipe = self._recipes[0]
        plan = recipe.plan
        first = (self._first + step) * plan.global_batch + plan.rank * plan.batch_size
        sources, _ = self._mixture.between(first, first + plan.batch_size)
        parts = []
        for source, name in enumerate(self.runners):
            batch = self._take_of(name)
            rows = np.flatnonzero(sources == source)
            if len(rows):
                parts.append((name, rows, batch))
        batch = join(fill_up(parts, recipe.texts), plan.batch_size, self._memory)
        self._joined += plan.batch_size
        return self._with_source(batch, sources.astype(np.int64, copy=False))


def rows_of(batch: Any) -> int:
    """Return the number of samples in a batch: the rows of its first field that has rows."""
    found = _rows(batch) if isinstance(batch, Mapping) else None
    if found is None:
        got = f"a dict of {list(batch)}" if isinstance(batch, Mapping) else type(batch).__name__
        raise UsageError(f"mixture: expected batch_map= to return a dict of fields, with a row a sample, got {got}")
    return found


def _rows(value: Any) -> int | None:
    if isinstance(value, Mapping):
        return next((rows for each in value.values() if (rows := _rows(each)) is not None), None)
    if isinstance(value, list):
        return len(value)
    shape: tuple[int, ...] = getattr(value, "shape", ())
    return int(shape[0]) if len(shape) else None
