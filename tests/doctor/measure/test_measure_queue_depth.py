"""Batches that are ready and not taken, counted another way."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from made_sessions import MadeRun
from made_sessions import made_session as simulated

from headrace.doctor.measure import Join, MeasuredTraining, training
from headrace.doctor.measure.batches import QueueDepth, queue_depth
from headrace.doctor.session.model import Session


@pytest.mark.parametrize(
    "run",
    [
        MadeRun(steps=50),
        MadeRun(steps=50, forward=30_000),
        MadeRun(steps=50, workers=3, slow_batches={10: 90_000, 31: 50_000}, pickle=700, unpickle=300),
        MadeRun(steps=50, workers=1, prefetch=4, forward=9_000),
    ],
)
def test_batches_ready_are_those_that_were_sent_and_not_asked_for(run: MadeRun, tmp_path: Path) -> None:
    session = simulated(tmp_path, run)
    measured = training(session, session.trainers[0])
    found = queue_depth(measured, Join(session))
    assert found is not None
    assert found.most == run.workers * run.prefetch
    for begun, until in pairwise(found.times):
        middle = (begun + until) / 2
        row = found.times.index(begun)
        assert found.counts[row] == _ready_at(session, measured, middle)
    empty = sum(
        until - begun for (begun, until), count in zip(pairwise(found.times), found.counts, strict=True) if count == 0
    )
    assert found.empty == pytest.approx(empty / (found.times[-1] - found.times[0]))


def test_a_loader_that_keeps_up_is_never_empty(tmp_path: Path) -> None:
    session = simulated(tmp_path, MadeRun(steps=50, forward=40_000))
    found = queue_depth(training(session, session.trainers[0]), Join(session))
    assert found is not None
    assert found.empty == 0


def test_a_mean_depth_is_weighted_by_time() -> None:
    found = QueueDepth(times=[0.0, 10.0, 40.0, 50.0], counts=[4, 1, 0], most=4)
    assert found.mean(0, 50) == pytest.approx((40 + 30) / 50)
    assert found.mean(5, 15) == pytest.approx((20 + 5) / 10)
    assert found.empty == pytest.approx(0.2)


def test_batches_that_were_not_all_written_are_not_counted(tmp_path: Path) -> None:
    session = simulated(tmp_path, MadeRun(steps=50))
    session.processes[1].cut = True
    assert queue_depth(training(session, session.trainers[0]), Join(session)) is None


def _ready_at(session: Session, measured: MeasuredTraining, time: float) -> int:
    """Counted batch by batch, from what was sent and what was asked for."""
    gets = session.trainers[0].gets
    asked = dict(zip(gets.index, gets.start, strict=True))
    sent = {
        index: sent
        for maker in session.makers
        for index, sent in zip(maker.batches.index, maker.batches.sent, strict=True)
        if sent is not None
    }
    return sum(sent[index] < time < asked.get(index, measured.steps[-1].end + 1) for index in sent)
