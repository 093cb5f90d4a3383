"""Lower bounds of a loop by a clock that stands still unless the loop, its loader or a copy moves it."""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from made_sessions import read
from torch.utils.data import dataloader
from torch.utils.data._utils import worker
from training_loops import Loop, loader
from windowed_runs import measured

from headrace.doctor.measure import lower_bounds
from headrace.doctor.measure.batches import Join
from headrace.doctor.measure.view import TrainerView
from headrace.doctor.probe.probe import Probe
from headrace.doctor.probe.training.replay import LoopReplay
from headrace.doctor.probe.training.step_limit import SETTLING_STEPS

STEPS, REPLAY, WARMUP = 20, 8, 2
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


def test_lower_bounds_are_steps_without_their_next_and_their_copies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = TrainingClock(monkeypatch)
    clock.pass_by_in(monkeypatch, dataloader._MultiProcessingDataLoaderIter, "_next_data", NEXT_US)
    clock.pass_by_in(monkeypatch, LoopReplay, "copy", COPY_US)
    observed = WARMUP + STEPS
    settling = {observed + step for step in range(SETTLING_STEPS)}

    def train(probe: Probe) -> None:
        worker_loop, loop = worker._worker_loop, Loop()
        # The worker writes to a file of its own, as below a probe that an interpreter starts with.
        monkeypatch.setattr(worker, "_worker_loop", lambda *args: (probe.forked(), worker_loop(*args)))
        for step, batch in enumerate(loader(4000, num_workers=1)):
            loss = loop.loss(batch)
            clock.pass_by(COMPUTE_US + SETTLING_US * (step in settling))
            loss.backward()
            loop.optimizer.step()

    measured(tmp_path, train, warmup=WARMUP, steps=STEPS, replay=REPLAY)
    session = read(tmp_path, mode="measure")
    assert [one.name for one in session.trainers[0].windows] == ["observe", "replay"]
    found = lower_bounds(session, TrainerView.of(session, session.trainers[0], Join(session)))
    assert found is not None
    assert (found.observed_us, found.replay_us) == (NEXT_US + COMPUTE_US, COMPUTE_US)
