"""One pass of a mixture: batches of one source each, or joined from all."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from headrace.errors import UsageError
from headrace.fields.tokens import ResolvedText
from headrace.loader import Batch, Runner, StageStats, Stats
from headrace.loader.batch_memory import BatchMemory
from headrace.loader.mixtures.joining import fill_up, join
from headrace.loader.mixtures.sources import SOURCE
from headrace.plan import EpochPlan, Mixture
from headrace.system.channel import Channel, Closed
from headrace.system.threads import THREAD_PREFIX, ProcessOrigin, close_at_exit, in_own_thread

# -- from mixing/totals.py: What the feeds of several sources did together.


def total_stats(sources: Mapping[str, Stats]) -> Stats:
    """Sums. `wall_s` is the longest, and `feed_wait_s` that of the source that waits least for training."""
    all_of = list(sources.values())
    stages = [stats.stages for stats in all_of]
    return Stats(
        batches=sum(each.batches for each in all_of),
        samples=sum(each.samples for each in all_of),
        wall_s=max(each.wall_s for each in all_of),
        consumer_wait_s=sum(each.consumer_wait_s for each in all_of),
        feed_wait_s=min(each.feed_wait_s for each in all_of),
        python_s=sum(each.python_s for each in all_of),
        idle_s=sum(each.idle_s for each in all_of),
        threads=max(each.threads for each in all_of),
        ready_batches=sum(each.ready_batches for each in all_of),
        batch_bytes=max(each.batch_bytes for each in all_of),
        bad=sum(each.bad for each in all_of),
        replaced=sum(each.replaced for each in all_of),
        declined=sum(each.declined for each in all_of),
        retries=sum(each.retries for each in all_of),
        left_out=sum(each.left_out for each in all_of),
        repeated=sum(each.repeated for each in all_of),
        map_workers=sum(each.map_workers for each in all_of),
        stages={name: _total_stage([each[name] for each in stages if name in each]) for name in _stage_names(stages)},
    )


def _stage_names(stages: list[dict[str, StageStats]]) -> list[str]:
    return list(dict.fromkeys(name for each in stages for name in each))


def _total_stage(found: list[StageStats]) -> StageStats:
    return StageStats(
        sum(each.busy_s for each in found), sum(each.items for each in found), sum(each.bytes for each in found)
    )


# -- from mixing/mixed_pass.py: One pass over an epoch of a mixture: a feed for each source, and what makes one
# sequence of batches of theirs.


class SourceFeeds:
    """The sources' runners, by name in the mixture's order. They begin and end together."""

    def __init__(self, runners: Mapping[str, Runner]) -> None:
        self.names = list(runners)
        self.runners = list(runners.values())
        self._origin = ProcessOrigin()
        self._started = time.perf_counter()

    @property
    def foreign(self) -> bool:
        return self._origin.is_elsewhere

    def take(self, source: int) -> Batch:
        """The source's next batch. Raises Closed, or what went wrong, with the source's name."""
        with self._named(source):
            return self.runners[source].take()[0]

    @contextmanager
    def _named(self, source: int) -> Iterator[None]:
        try:
            yield
        except Closed:
            raise
        except BaseException as error:
            error.add_note(f"in source {self.names[source]!r} of the mixture")
            raise

    def close(self) -> None:
        self._stop()
        for runner in self.runners:
            runner.close()

    def drop(self) -> None:
        """The wait is bounded for all of them together, since all are told to end before the first is waited for."""
        self._stop()
        for runner in self.runners:
            runner.drop()

    def _stop(self) -> None:
        for runner in self.runners:
            runner.close(0.0)

    def stats(self) -> dict[str, Stats]:
        return {name: runner.stats() for name, runner in zip(self.names, self.runners, strict=True)}


class OneSourcePass:
    """Each batch is one of one source's own."""

    def __init__(
        self,
        feeds: SourceFeeds,
        mixture: Mixture,
        *,
        epoch: int,
        step: int,
        steps: int,
        packed: Sequence[EpochPlan | None],
        output: str,
    ) -> None:
        """`packed`: the plan of each source whose texts share rows."""
        self.feeds = feeds
        self._mixture = mixture
        self._packed = packed
        self._first = epoch * steps
        self._step = step
        self._steps = steps
        self._output = output

    @property
    def foreign(self) -> bool:
        return self.feeds.foreign

    @property
    def batch_bytes(self) -> int:
        return max(runner.batch_bytes for runner in self.feeds.runners)

    @property
    def held_batches(self) -> None:
        return None  # each source's loader knows of its own

    def take(self) -> tuple[Batch, int]:
        if self._step == self._steps:
            raise Closed
        at = self._first + self._step
        source, number = (int(found[0]) for found in self._mixture.between(at, at + 1))
        batch = self.feeds.take(source)
        self._step += 1
        samples = self._samples(source, number, batch)
        return with_source(batch, np.full(samples, source, np.int64), self._output), self._step

    def _samples(self, source: int, number: int, batch: Batch) -> int:
        """In rows of tokens nothing else may tell how many there are."""
        plan = self._packed[source]
        return rows_of(batch) if plan is None else len(plan.batch(*divmod(number, plan.steps)).samples)

    def close(self) -> None:
        self.feeds.close()

    def drop(self) -> None:
        self.feeds.drop()

    def stats(self) -> Stats:
        return total_stats(self.feeds.stats())


class JoinedPass:
    """Each batch has samples of several sources: a thread, "headrace-mix", joins their parts of it."""

    def __init__(
        self,
        feeds: SourceFeeds,
        mixture: Mixture,
        memory: BatchMemory,
        *,
        epoch: int,
        step: int,
        steps: int,
        batch_size: int,
        first_row: int,
        global_batch: int,
        texts: Sequence[ResolvedText],
        output: str,
    ) -> None:
        self.feeds = feeds
        self._mixture = mixture
        self._memory = memory
        self._texts = texts
        self._steps = range(step, steps)
        self._batch_size = batch_size
        self._first = epoch * steps * global_batch + first_row
        self._global_batch = global_batch
        self._output = output
        self._joined = self._bytes = 0
        self._python_s = 0.0
        self._channel: Channel[tuple[Batch, int]] = Channel(1)
        self._thread = threading.Thread(target=self._run, name=f"{THREAD_PREFIX}mix", daemon=True)
        self._thread.start()
        close_at_exit(self)

    @property
    def foreign(self) -> bool:
        return self.feeds.foreign

    @property
    def batch_bytes(self) -> int:
        return sum(runner.batch_bytes for runner in self.feeds.runners)

    @property
    def held_batches(self) -> None:
        return None

    def take(self) -> tuple[Batch, int]:
        return self._channel.take()

    def close(self) -> None:
        if self.foreign:
            return
        self._channel.close()
        self.feeds.close()
        if not in_own_thread():
            self._thread.join()

    def drop(self) -> None:
        if self.foreign:
            return
        self._channel.close()
        self.feeds.drop()
        if not in_own_thread():
            self._thread.join()  # it waits for nothing but the feeds, which have ended or hand out no more

    def stats(self) -> Stats:
        """What the sources did, with the waiting and the counts of who takes the joined batches."""
        channel = self._channel.statistics()
        all_sources = total_stats(self.feeds.stats())
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
        first = self._first + step * self._global_batch
        sources, _ = self._mixture.between(first, first + self._batch_size)
        parts = []
        for source, name in enumerate(self.feeds.names):
            batch = self.feeds.take(source)
            rows = np.flatnonzero(sources == source)
            if len(rows):
                parts.append((name, rows, batch))
        batch = join(fill_up(parts, self._texts), self._batch_size, self._memory)
        self._joined += self._batch_size
        return with_source(batch, sources.astype(np.int64, copy=False), self._output)


def with_source(batch: Batch, sources: np.typing.NDArray[np.int64], output: str) -> Batch:
    """The batch and the number of each sample's source."""
    if SOURCE in batch:
        raise UsageError(
            f"mixture: expected batches without {SOURCE!r}, as the mixture calls the number of each sample's source, "
            "got one that map= or batch_map= made; give it another name"
        )
    if output == "numpy":
        return {**batch, SOURCE: sources}
    import torch

    return {**batch, SOURCE: torch.from_numpy(sources)}


def rows_of(batch: Any) -> int:
    """How many samples a batch has: as many as its first field that has rows."""
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
