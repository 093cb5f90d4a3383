"""The lower bounds of a step, from sessions of which every figure is known."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from made_sessions import MadeRun, made_session

from headrace.doctor.causes import Prescription
from headrace.doctor.measure import LowerBounds, lower_bounds, why_no_lower_bounds
from headrace.doctor.measure.batches import Join
from headrace.doctor.measure.view import TrainerView
from headrace.doctor.report.remedy_text import bound_rows
from headrace.doctor.session.model import Session, SessionNote
from headrace.doctor.session.trainers import MeasuredWindow

STEPS, WARMUP = 20, 5
LOADED = MadeRun(steps=WARMUP + STEPS, stages={"decode:a": 10_000}, workers=2, forward=1_000, backward=0, optimizer=500)
"""5 ms a batch from two workers, 1.5 ms of computing: each step waits."""
COMPUTE_US, COPY_US = 1_500, 400


def _session(folder: Path, run: MadeRun = LOADED) -> Session:
    """`run`, observed after its warm-up."""
    settings = {"warmup": WARMUP, "steps": STEPS}
    session = made_session(folder, run, settings=settings, mode="measure")
    steps = session.trainers[0].steps
    window = MeasuredWindow("observe", WARMUP, STEPS, 0, steps.start[WARMUP], steps.end[-1])
    session.trainers[0].windows.append(window)
    return session


def _add_window(
    session: Session, name: str, step_us: int, *, settling: int = 2, settling_us: int = 90_000, evaluation_us: int = 0
) -> None:
    """Steps of `step_us` and the copy that each was given; the first ones longer. The last has an evaluation in it."""
    trainer = session.trainers[0]
    steps, first = trainer.steps, trainer.steps.number[-1] + 1
    begun = now = steps.end[-1]
    for number in range(first, first + settling + 10):
        is_last = number == first + settling + 9
        duration = (settling_us if number < first + settling else step_us) + COPY_US + is_last * evaluation_us
        steps.number.append(number)
        steps.start.append(now)
        steps.end.append(now + duration)
        steps.spans.append([("e", now + COPY_US, evaluation_us)] if is_last and evaluation_us else [])
        steps.probe.append(None)
        steps.device.append(None)
        steps.ready.append(None)
        trainer.replays.pass_.append(0)
        trainer.replays.start.append(now)
        trainer.replays.duration.append(COPY_US)
        now += duration
    trainer.windows.append(MeasuredWindow(name, first, settling + 10, settling, begun, now))


def _lower_bounds(session: Session) -> LowerBounds | None:
    return lower_bounds(session, _view(session))


def _view(session: Session) -> TrainerView:
    return TrainerView.of(session, session.trainers[0], Join(session))


def test_replayed_steps_count_without_settling_and_copying(tmp_path: Path) -> None:
    session = _session(tmp_path)
    _add_window(session, "replay", COMPUTE_US)
    assert _lower_bounds(session) == LowerBounds(observed_us=5_000, replay_us=COMPUTE_US)


def test_the_diagnosis_is_of_the_observed_steps_alone(tmp_path: Path) -> None:
    session = _session(tmp_path)
    before = _view(session)
    _add_window(session, "replay", COMPUTE_US)
    after = _view(session)
    assert (after.budget, after.split, after.batch_production) == (before.budget, before.split, before.batch_production)
    assert after.training.seen == WARMUP + STEPS


def test_evaluations_are_no_part_of_a_step(tmp_path: Path) -> None:
    session = _session(tmp_path)
    _add_window(session, "replay", COMPUTE_US)
    before = _lower_bounds(session)
    assert before is not None
    session = _session(tmp_path)
    spans, start = session.trainers[0].steps.spans, session.trainers[0].steps.end[-2]
    spans[-1] = [*spans[-1], ("e", start + 100, 2_000)]  # one in 20 steps
    _add_window(session, "replay", COMPUTE_US, evaluation_us=50_000)
    found = _lower_bounds(session)
    assert found is not None
    assert found.replay_us == COMPUTE_US
    assert found.observed_us == before.observed_us - 2_000 / STEPS


def test_a_step_that_was_fed_by_the_loader_is_left_out(tmp_path: Path) -> None:
    session = _session(tmp_path)
    _add_window(session, "replay", COMPUTE_US)
    trainer = session.trainers[0]
    trainer.steps.end[-1] += 30_000
    gets = trainer.gets
    for column in msgspec.structs.astuple(gets):
        column.append(column[-1])
    gets.start[-1] = trainer.steps.start[-1] + 1
    found = _lower_bounds(session)
    assert found is not None
    assert found.replay_us == COMPUTE_US


@pytest.mark.parametrize(("idle_us", "expected"), [(0, COPY_US), (150, COPY_US - 150), (900, 0)])
def test_on_a_gpu_only_the_time_that_it_was_idle_is_left_out(tmp_path: Path, idle_us: int, expected: int) -> None:
    session = _session(tmp_path)
    _add_window(session, "replay", COMPUTE_US)
    device = session.trainers[0].steps.device
    for row in range(WARMUP + STEPS, len(device)):
        device[row] = [("s", 0.0), ("w", 10.0), ("r", 10.0 + idle_us), ("p", 2_000.0)]
    found = _lower_bounds(session)
    assert found is not None
    assert found.replay_us == COMPUTE_US + expected


def test_where_there_are_none_it_says_why(tmp_path: Path) -> None:
    session = _session(tmp_path)
    view = _view(session)
    assert lower_bounds(session, view) is None
    assert "replayed" in why_no_lower_bounds(session, view)
    session.notes.append(SessionNote("no-replay", "It rains."))
    assert why_no_lower_bounds(session, view) == "It rains."
    session.notes.clear()
    session.trainers[0].windows.clear()
    seen = len(session.trainers[0].steps.number)
    expected = f"The run ended after {seen} steps, before cached batches were tried."
    assert why_no_lower_bounds(session, _view(session)).startswith(expected)
    ended = why_no_lower_bounds(session, None)
    assert "0 steps" in ended
    session.mode = "observe"
    assert why_no_lower_bounds(session, None) not in ("", ended)


def test_data_work_in_the_loop_is_no_part_of_the_lower_bound(tmp_path: Path) -> None:
    session = _session(tmp_path)
    _add_window(session, "replay", COMPUTE_US)
    steps = session.trainers[0].steps
    for row in range(len(steps.number) - 12, len(steps.number)):
        steps.spans[row] = [("d", steps.start[row] + COPY_US, 700), ("h", steps.start[row] + COPY_US + 100, 200)]
    lower_bounds = _lower_bounds(session)
    assert lower_bounds is not None
    assert (lower_bounds.replay_us, lower_bounds.work_us) == (COMPUTE_US - 500, 500)
    assert [name for name, _ in bound_rows(Prescription(lower_bounds, "", ""))] == [
        *("baseline", "cached batches", "without data work"),
    ]
