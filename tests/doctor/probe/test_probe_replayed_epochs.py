"""Replayed epochs: their ends, windows with room in them, when a run has shown enough, and bounds by a made clock."""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from made_sessions import read
from probing import REPLAY, STEPS, measured, records, windows
from torch.utils.data import dataloader
from torch.utils.data._utils import worker
from training_loops import Loop, loader

from headrace.doctor.measure import lower_bounds
from headrace.doctor.measure.batches import Join
from headrace.doctor.measure.view import TrainerView
from headrace.doctor.probe.probe import Probe
from headrace.doctor.probe.training.loop_watch import FEWEST_LONG, SETTLING_STEPS, StepLimit
from headrace.doctor.probe.training.replay import LoopReplay
from headrace.doctor.probe.training.steps import FetchedBatch, OptimizerStep
from headrace.doctor.probe.training.windows import FEWEST_REPLAYED, replayed_steps


@pytest.mark.parametrize(
    ("is_new", "workers"),
    [(False, 0), (False, 1), (True, 0)],
    ids=["one loader", "with a worker", "a loader for each epoch"],
)
@pytest.mark.one_in(2)
def test_an_epoch_ends_in_replay_where_it_would_have_ended(tmp_path: Path, is_new: bool, workers: int) -> None:
    lengths, loop = [], Loop()

    def train(_: Probe) -> None:
        batches = loader(36, num_workers=workers)  # nine batches: one more than are observed
        while True:
            lengths.append(0)
            for batch in loader(36, num_workers=workers) if is_new else batches:
                loop.step(batch)
                lengths[-1] += 1

    measured(tmp_path, train, warmup=2)
    replayed = SETTLING_STEPS + REPLAY
    assert lengths == [9] * (len(lengths) - 1) + [(2 + STEPS + replayed - 1) % 9]  # the last step is the doctor's end
    assert len(records(tmp_path, "replayed")) == replayed
    assert len(records(tmp_path, "get")) == 2 + STEPS
    assert {name: settled for name, *_, settled in windows(tmp_path)} == {"observe": 0, "replay": SETTLING_STEPS}


def test_what_a_script_does_between_epochs_is_no_part_of_a_replayed_step(tmp_path: Path) -> None:
    loop, saving = Loop(), []

    def train(probe: Probe) -> None:
        batches = loader(36)
        while True:
            loop.train(batches)
            start = probe.clock.now_us()
            time.sleep(0.01)
            saving.append((start, probe.clock.now_us()))

    measured(tmp_path, train, warmup=2)
    spans = [(step[2] + at, us) for step in records(tmp_path, "step") for kind, at, us in step[4] if kind == "e"]
    left_out = [(start, start + us) for start, us in spans]
    assert len(left_out) == len(saving) == 1
    assert left_out[0][0] <= saving[0][0] < saving[0][1] <= left_out[0][1] + 1


@pytest.mark.parametrize(("workers", "room"), [(0, 8), (1, 9)])
@pytest.mark.one_in(2)
def test_windows_end_with_the_epoch_where_it_has_room_for_them(tmp_path: Path, workers: int, room: int) -> None:
    """The script ends with its one epoch, which has room for fewer steps than would be replayed otherwise."""
    batches = loader(4 * (2 + STEPS + room), num_workers=workers)
    measured(tmp_path, lambda _: Loop().train(batches), warmup=2, replay=40, steps=STEPS)
    steps = {name: count - settling for name, _, count, settling in windows(tmp_path)}
    assert steps["replay"] == room - SETTLING_STEPS


@pytest.mark.long
def test_epochs_that_a_loop_counts_go_on_with_copies(tmp_path: Path) -> None:
    batches = loader(4000, num_workers=1, persistent_workers=True)
    loop = Loop()

    def train(_: Probe) -> None:
        while True:
            for number, batch in enumerate(batches):
                loop.step(batch)
                if number == 2:
                    break

    measured(tmp_path, train, warmup=2)
    assert len(records(tmp_path, "replayed")) == SETTLING_STEPS + REPLAY
    begun = [one[3] for one in records(tmp_path, "pass")]
    replay = records(tmp_path, "window")[1]
    assert not [start for start in begun if replay[5] < start < replay[6]]


@pytest.mark.parametrize(
    ("prefetched", "gets", "warmup"),
    [(0, 1, 3), (4, 1, 7), (16, 16, 4), (17, 16, 5), (4, 0, 7)],
    ids=["no workers", "each batch a step", "one step empties the queue", "not quite one", "batches come by a thread"],
)
def test_warm_up_empties_the_prefetch_queue(prefetched: int, gets: int, warmup: int) -> None:
    limit = StepLimit(None, 10)
    limit.prefetches(prefetched)
    assert not limit.settle(0, gets + 1)  # the first step has what a fetcher is ahead, too
    assert limit.settle(1, gets)
    assert limit.warmup == warmup
    assert not limit.is_reached(warmup + 9)
    assert limit.is_reached(warmup + 10)


def observed(limit: StepLimit, steps: int, *, waited: int, length_ms: int = 1) -> StepLimit:
    """Measured steps, of each of which so many microseconds wait for a batch."""
    for number in range(steps):
        step = OptimizerStep(number, start=number * length_ms * 1_000_000)
        step.end = step.start + length_ms * 1_000_000
        step.gets = [FetchedBatch(0, number, step.start, step.start + waited * 1000)]
        limit.observed(step)
    return limit


def passing(*lengths: int | None, warmup: int = 3, steps: int | None = 200, enough: int = 20) -> StepLimit:
    limit = StepLimit(warmup, steps, enough)
    for length in lengths:
        limit.lasts(length)
    return limit


def test_a_run_that_hardly_waits_ends_early() -> None:
    limit = observed(passing(5_000), 20, waited=20)
    assert limit.is_enough
    assert limit.is_reached(23)
    assert not observed(passing(5_000), 19, waited=20).is_enough


@pytest.mark.parametrize(
    ("limit", "waited"),
    [
        (passing(5_000), 30),
        (passing(150), 0),
        (passing(5_000, None), 0),
        (passing(5_000, enough=0), 0),
        (passing(5_000, steps=None), 0),
    ],
    ids=["it waits", "an epoch ends before", "of unknown length", "asked for all", "only observed"],
)
def test_a_run_of_which_less_is_sure_goes_on(limit: StepLimit, waited: int) -> None:
    assert not observed(limit, 40, waited=waited).is_enough
    assert not limit.is_reached(43)


@pytest.mark.parametrize(
    ("asked", "step_s", "steps"),
    [(200, 0.1, 40), (200, 0.3, 20), (200, 2.0, FEWEST_REPLAYED), (20, 0.1, 20), (5, 0.1, 5), (1, 0.0, 5)],
)
def test_steps_that_are_replayed(asked: int, step_s: float, steps: int) -> None:
    assert replayed_steps(40, asked, step_s) == steps
    assert replayed_steps(3, asked, step_s) == 3  # never more than there may be
    assert replayed_steps(40, asked, step_s, room=7) == min(steps, 7)
    assert replayed_steps(40, asked, step_s, room=FEWEST_REPLAYED - 1) == steps  # too little


@pytest.mark.parametrize(
    ("limit", "length_ms", "steps"),
    [
        (passing(5_000, warmup=0), 1_000, FEWEST_LONG),
        (passing(5_000, warmup=0), 200, 150),
        (passing(5_000, warmup=0), 20, 200),
        (passing(80, warmup=0), 1_000, 80),
        (passing(None, warmup=0), 200, 150),
        (passing(5_000, warmup=0, enough=0), 1_000, 200),
    ],
    ids=["long steps", "thirty seconds", "short steps", "a whole epoch", "of unknown length", "asked for"],
)
def test_long_steps_are_observed_for_a_limited_time(limit: StepLimit, length_ms: int, steps: int) -> None:
    observed(limit, 199, waited=length_ms * 500, length_ms=length_ms)
    assert not limit.is_enough  # they wait
    assert limit.is_reached(steps)
    assert not limit.is_reached(steps - 1)
    assert limit.is_late == (steps < 200)


OBSERVED, COPIES, WARMUP = 20, 8, 2
NEXT_US, COMPUTE_US, COPY_US, SETTLING_US = 60_000, 20_000, 5_000, 70_000
"""A batch, a step without it, a copy, and how much longer the first steps on copies take."""


class TrainingClock:
    """Clock of all that the probe measures in the training thread, in nanoseconds."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._now, self._thread = time.monotonic_ns(), threading.get_ident()
        original = time.monotonic_ns
        monkeypatch.setattr(time, "monotonic_ns", lambda: self._now)
        for name, module in list(sys.modules.items()):
            if name.startswith("headrace.doctor.probe.") and getattr(module, "now", None) is original:
                monkeypatch.setattr(module, "now", lambda: self._now)

    def pass_by(self, us: int) -> None:
        """Move on, unless it is another thread that works."""
        if threading.get_ident() == self._thread:
            self._now += us * 1000

    def pass_by_in(self, monkeypatch: pytest.MonkeyPatch, owner: type, name: str, us: int) -> None:
        """Move on in each call of a method."""
        original = getattr(owner, name)

        def call(*args: Any) -> Any:
            self.pass_by(us)
            return original(*args)

        monkeypatch.setattr(owner, name, call)


def test_lower_bounds_are_steps_without_next_and_copies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = TrainingClock(monkeypatch)
    clock.pass_by_in(monkeypatch, dataloader._MultiProcessingDataLoaderIter, "_next_data", NEXT_US)
    clock.pass_by_in(monkeypatch, LoopReplay, "copy", COPY_US)
    replayed = WARMUP + OBSERVED
    settling = {replayed + step for step in range(SETTLING_STEPS)}

    def train(probe: Probe) -> None:
        worker_loop, loop = worker._worker_loop, Loop()
        # The worker writes to a file of its own, as below a probe that an interpreter starts with.
        monkeypatch.setattr(worker, "_worker_loop", lambda *args: (probe.forked(), worker_loop(*args)))
        for step, batch in enumerate(loader(4000, num_workers=1)):
            loss = loop.loss(batch)
            clock.pass_by(COMPUTE_US + SETTLING_US * (step in settling))
            loss.backward()
            loop.optimizer.step()

    measured(tmp_path, train, warmup=WARMUP, steps=OBSERVED, replay=COPIES)
    session = read(tmp_path, mode="measure")
    assert [one.name for one in session.trainers[0].windows] == ["observe", "replay"]
    found = lower_bounds(session, TrainerView.of(session, session.trainers[0], Join(session)))
    assert found is not None
    assert (found.observed_us, found.replay_us) == (NEXT_US + COMPUTE_US, COMPUTE_US)
