"""The lower bounds of a step, and proofs beside what was predicted, from sessions of which every figure is known."""

from __future__ import annotations

import random
import statistics
from pathlib import Path

import msgspec
import pytest
from made_sessions import MadeRun, made_session

from headrace.doctor.causes import Prescription, ProofOutcome, outcomes
from headrace.doctor.measure import LowerBounds, interval, lower_bounds, why_no_lower_bounds
from headrace.doctor.measure.batches import Join
from headrace.doctor.measure.view import TrainerView
from headrace.doctor.report.remedy_text import bound_rows
from headrace.doctor.session.after_run import Proof
from headrace.doctor.session.model import Session, SessionNote
from headrace.doctor.session.trainers import MeasuredWindow
from headrace.doctor.simulate.prediction import Prediction

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
        *("baseline", "cached batches", "without data work")
    ]


OBSERVED_US = 100_000.0
PREDICTED = Prediction(50_000.0, 45_000.0, 55_000.0, 2.0)
BUSY_BEFORE_US = [286_000.0, 300_400.0]
BUSY_MS = (
    "172 424 177 226 105 546 52 369 28 758 236 448 208 268 59 353 168 414 249 283 347 402 312 170 517 63 "
    "582 331 290 98 409 419 587 183 315 318 294 129 557 240 420 135 244 190 430 374 633 425 410 172 356 "
    "307 394 114 206 659 201 182 202 482"
)
"""Steps of tests/doctor/adopted/folder_v1.py with persistent workers, on two cores of which other programs used 1.3:
recorded. Of the run without it there are the means, of the measured run and of the one that came again."""


def proof(*steps: int, why: str = "measured", samples: str | None = "same") -> Proof:
    return Proof(["workers"], {"loaders": {}}, why, "detail", 1, list(steps), samples)


def outcome_of(one: Proof, *controls_us: float, left: float = 0.2) -> ProofOutcome:
    """Return the outcome next to control runs; the remedy must leave that share of a step."""
    controls_us = controls_us or (OBSERVED_US,)
    [found] = outcomes([one], lambda _: PREDICTED, lambda _: left, controls_us[0], controls_us)
    return found


def test_a_proof_says_what_came_of_it_beside_what_was_predicted() -> None:
    found = outcome_of(proof(*[49_000, 51_000] * 20))
    assert found.predicted == PREDICTED
    assert found.step_us == 50_000
    assert found.low_us <= 50_000 <= found.high_us
    assert found.speedup == 2.0
    assert (found.why, found.detail, found.samples) == ("measured", "detail", "same")
    assert found.recommended


@pytest.mark.parametrize(
    ("one", "recommended"),
    [
        (proof(*[50_000] * 40, samples="alike"), True),
        (proof(*[50_000] * 40, samples="different"), False),
        (proof(*[99_000] * 40), False),  # nothing gained
        (proof(*[20_000] * 20, *[175_000] * 20), False),  # it may as well have gained nothing
        (proof(50_000), False),  # one step says nothing
        (proof(*[50_000] * 40, why="broke"), False),
    ],
)
def test_only_what_gained_and_broke_nothing_is_recommended(one: Proof, recommended: bool) -> None:
    assert outcome_of(one).recommended is recommended


@pytest.mark.parametrize(
    ("mean_us", "controls_us", "left"),
    [(58_500, [100_000.0], 0.97), (95_000, [100_000.0, 94_000.0], 0.2), (50_000, [], 0.2)],
    ids=["more than its share", "within the spread of the controls", "no control"],
)
def test_an_unclear_proof_proves_nothing(mean_us: int, controls_us: list[float], left: float) -> None:
    steps = proof(*[mean_us] * 40)
    [found] = outcomes([steps], lambda _: PREDICTED, lambda _: left, OBSERVED_US, controls_us)
    assert (found.recommended, found.is_refused, found.did_harm) == (False, found.low_us > 90_000, False)


def test_a_mean_that_is_longer_by_noise_is_not_slower() -> None:
    steps = [1000 * int(ms) for ms in BUSY_MS.split()]
    found = outcome_of(proof(*steps), *BUSY_BEFORE_US)
    assert found.speedup == pytest.approx(0.92, abs=0.01)
    assert (found.is_refused, found.is_slower, found.did_harm) == (True, False, False)
    quiet = outcome_of(proof(*[310_000, 311_000] * 30), *BUSY_BEFORE_US)
    assert (quiet.is_refused, quiet.is_slower, quiet.did_harm) == (True, True, True)
    longer = outcome_of(proof(*[310_000, 311_000] * 30), 286_000.0, 320_000.0)
    assert not longer.is_slower  # the run without it took longer still


@pytest.mark.parametrize(
    ("controls_us", "samples", "is_refused"),
    [((100_000, 250_000), "alike", False), ((100_000,), "alike", True), ((100_000, 250_000), "different", True)],
)
def test_proofs_within_the_spread_refute_nothing(controls_us: tuple[int, ...], samples: str, is_refused: bool) -> None:
    found = outcome_of(proof(*[120_000] * 40, samples=samples), *controls_us)
    assert (found.is_refused, found.is_undecided) == (is_refused, not is_refused)


def test_the_interval_covers_the_mean_of_steps_that_depend_on_each_other() -> None:
    """Every eighth batch is slow, with a little noise that lasts for three steps: it covers what a long run would give
    in at least 90 of 100 cases."""
    rng = random.Random(0)

    def steps(count: int) -> list[float]:
        noise = [rng.gauss(0, 5) for _ in range(count + 2)]
        return [100 + 40 * (number % 8 == 0) + sum(noise[number : number + 3]) for number in range(count)]

    truth = statistics.fmean(100 + 40 * (number % 8 == 0) for number in range(8))
    covered = sum(low <= truth <= high for _, low, high in (interval(steps(60)) for _ in range(200)))
    assert covered >= 180
