"""Traced samples: how each is produced, which stages are random, and what is identical when produced again.

A cache can hold the result before the first stage that draws random numbers or differs the second time, and nothing
after it.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Callable

from .batch_leaves import Leaf, leaves_of
from .batch_production import BatchRecorder, ProducedBatch, key_text
from .evidence_file import EvidenceFile
from .patches import Fault, HookGuard
from .sample_calls import SampleCalls, WatchedFunctions
from .sample_digests import digest_of, random_states
from .stages import Account, Stages

MOST_SAMPLES = 8
"""Samples traced per dataset and process."""
FIRST_COMPARED, LAST_COMPARED = 1, 2
"""First and last batch of a fetcher with traced samples, counted from 0.

Batch 0 opens files and fills caches; later batches are measured.
"""
MOST_COLLATED = 2
"""Batches with traced collation per process."""
MOST_NS = 500_000_000
"""Time above which a sample is not produced again."""


def generators_held() -> Callable[[], None]:
    """Return a function that restores the current state of the global random generators."""
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    python = random.getstate()
    numpys = None if numpy is None else numpy.random.get_state(legacy=False)
    torchs = None if torch is None else torch.get_rng_state()

    def put_back() -> None:
        random.setstate(python)
        if numpy is not None:
            numpy.random.set_state(numpys)
        if torch is not None:
            torch.set_rng_state(torchs)

    return put_back


def generators_moved(seed: int) -> None:
    """Reseed the global random generators."""
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    random.seed(seed)
    if numpy is not None:
        numpy.random.seed(seed)
    if torch is not None:
        torch.default_generator.manual_seed(seed)


@contextmanager
def generators_kept() -> Iterator[None]:
    """Restore the global random generators on exit."""
    put_back = generators_held()
    try:
        yield
    finally:
        put_back()


class SampleStages:
    """One production of a sample: its stages in the order in which they end."""

    def __init__(self, calls: SampleCalls | None = None, *, is_compared: bool = True) -> None:
        """`calls` records library calls. Results are digested only if `is_compared`."""
        self.calls = calls
        self._is_compared = is_compared
        self.ends: list[tuple[int, bool, bytes | None]] = []
        """Stage number, True if random numbers were drawn since the previous stage, and digest of the result."""
        self.begun = time.monotonic_ns()
        self._state = random_states() if is_compared else None

    def ended(self, stage: int, result: Any, arguments: tuple[Any, ...]) -> None:
        """Note the end of a stage. A stage that returns nothing has modified the first of its `arguments`."""
        if not self._is_compared:
            return
        drew = self.drew()
        digest = digest_of(result)
        if digest is None and arguments:
            digest = digest_of(arguments[0])
        self.ends.append((stage, drew, digest))

    def drew(self) -> bool:
        """Return True if random numbers were drawn since the last call."""
        state = random_states()
        drew, self._state = state != self._state, state
        return bool(drew)


class SampleComparison:
    """Choice of the samples of this process that are traced, and the results.

    In a run that is only observed, no sample is produced twice. Otherwise the global random generators are restored, so
    that the rest of the run draws the same numbers.
    """

    def __init__(
        self, batches: BatchRecorder, stages: Stages, evidence: EvidenceFile, fault: Fault, *, may_repeat: bool
    ) -> None:
        self._batches = batches
        self._stages = stages
        self._evidence = evidence
        self._may_repeat = may_repeat
        guard = HookGuard(fault, "samples made twice")
        self.begin, self.end, self.look_at = guard(self._begin), guard(self._end), guard(self._look_at)
        self._looked: dict[int, int] = {}
        """Samples traced, by id of the dataset."""
        self._guard = HookGuard(fault, "calls of samples")
        self._begin_collate, self._end_collate = self._guard(self._begin_batch), self._guard(self._end_batch)
        self._watched = WatchedFunctions(stages, evidence.name, HookGuard(fault, "functions of numpy and torch"))
        self._collated = 0
        """Batches with traced collation so far."""

    def is_known(self, dataset: Any) -> None:
        """Mark a dataset as traced by existing workers, so that workers forked from now on skip it."""
        self._looked[id(dataset)] = MOST_SAMPLES

    def _begin(self, dataset: Any, account: Account) -> SampleStages | None:
        """Begin the trace of the next sample; return None if it should not be traced."""
        if not self._is_wanted(dataset):
            return None
        look = SampleStages(self._calls())
        self._stages.begin_look(account, look)
        return look

    def _calls(self) -> SampleCalls:
        return SampleCalls(self._evidence.name, self._stages.names, self._guard)

    def _end(
        self, look: SampleStages, batch: ProducedBatch, key: Any, sample: Any, again: Callable[[], Any] | None
    ) -> None:
        """Write the results of a trace. `again` produces the sample once more; None if that is impossible."""
        begun = time.monotonic_ns()
        self._stages.end_look(batch.account)
        self._write_calls("sample", look, batch, key_text(key))
        drew, is_short = look.drew(), begun - look.begun <= MOST_NS
        if again is None or not is_short or not self._may_repeat:
            self._write(batch, look, drew, None)
        else:
            digest = digest_of(sample)
            with generators_kept():
                self._write(batch, look, drew, (digest, *self._made(batch, again)))
        self._batches.cost.total_ns += time.monotonic_ns() - begun

    def collate(self, batch: ProducedBatch, collate: Callable[[Any], Any], samples: Any) -> Any:
        """Return `collate(samples)`, with its collation traced."""
        look: SampleStages | None = self._begin_collate(batch)
        collated = collate(samples)
        if look is not None:
            self._end_collate(look, batch, collated)
        return collated

    def _begin_batch(self, batch: ProducedBatch) -> SampleStages | None:
        if self._collated >= MOST_COLLATED:
            return None
        self._collated += 1
        look = SampleStages(self._calls(), is_compared=False)
        self._stages.begin_look(batch.account, look)
        return look

    def _end_batch(self, look: SampleStages, batch: ProducedBatch, collated: Any) -> None:
        begun = time.monotonic_ns()
        self._stages.end_look(batch.account)
        self._write_calls("collated", look, batch, "", leaves_of(collated))
        self._batches.cost.total_ns += time.monotonic_ns() - begun

    def _write_calls(self, kind: str, look: SampleStages, batch: ProducedBatch, key: str, *output: list[Leaf]) -> None:
        calls = look.calls
        if calls is not None:
            wall_us = (time.monotonic_ns() - look.begun) // 1000
            self._evidence.write((kind, batch.epoch, batch.index, key, wall_us, calls.rows, *output))

    def _look_at(self, dataset: Any, batch: ProducedBatch, key: Any, make: Callable[[], Any]) -> None:
        """Trace a sample that is produced only for this purpose."""
        if not self._may_repeat or not self._is_wanted(dataset):
            return
        begun = time.monotonic_ns()
        with generators_kept():
            look, sample = self._made(batch, make, self._calls())
            self._write_calls("sample", look, batch, key_text(key))
            drew, digest = look.drew(), digest_of(sample)
            is_short = time.monotonic_ns() - begun <= MOST_NS
            self._write(batch, look, drew, (digest, *self._made(batch, make)) if is_short else None)
        self._batches.cost.total_ns += time.monotonic_ns() - begun

    def _is_wanted(self, dataset: Any) -> bool:
        number = self._looked.get(id(dataset), 0)
        self._looked[id(dataset)] = number + 1
        return number < MOST_SAMPLES

    def _made(
        self, batch: ProducedBatch, make: Callable[[], Any], calls: SampleCalls | None = None
    ) -> tuple[SampleStages, Any]:
        """Produce the sample outside the measured stages; return None for a sample that cannot be produced twice."""
        account = self._stages.aside()
        self._batches.open[account] = batch
        look = SampleStages(calls)
        self._stages.begin_look(account, look)
        try:
            return look, make()
        except Exception:
            return look, None
        finally:
            self._stages.end_look(account)
            self._batches.open.pop(account, None)
            self._stages.back(batch.account)

    def _write(
        self, batch: ProducedBatch, look: SampleStages, drew: bool, again: tuple[bytes | None, SampleStages, Any] | None
    ) -> None:
        """Write each stage's number, if it drew random numbers, and if its result was the same the second time."""
        same = None
        seconds: dict[int, list[bytes | None]] = {}
        if again is not None:
            digest, other, sample = again
            same = 0 if sample is None else _are_same(digest, digest_of(sample))
            for stage, _, one in other.ends:
                seconds.setdefault(stage, []).append(one)
        rows: list[list[int | None]] = []
        for stage, stage_drew, one in look.ends:
            left = seconds.get(stage)
            rows.append([stage, int(stage_drew), _are_same(one, left.pop(0) if left else None)])
        self._evidence.write(("look", batch.epoch, batch.index, rows, int(drew), same))


def _are_same(one: bytes | None, other: bytes | None) -> int | None:
    return None if one is None or other is None else int(one == other)
