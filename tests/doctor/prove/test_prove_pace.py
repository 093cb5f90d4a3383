"""What a run takes that proves something, by what the measured one took."""

from __future__ import annotations

from pathlib import Path

import pytest
from made_sessions import MadeRun, made_session

from headrace.doctor.prove.baseline import FEWEST_STEPS, STEPS, BaselinePace, patience_s, step_durations

PACE = BaselinePace(start_s=4.0, warmup=10, step_us=100_000.0, epoch_steps=500)
FIXED_S = 4.0 + 3.0 + 1.0  # the start, the end, the warm-up


def test_a_run_is_a_start_a_warm_up_steps_and_an_end() -> None:
    assert PACE.seconds(60, None) == pytest.approx(FIXED_S + 6.0)
    assert PACE.seconds(60, 50_000.0) == pytest.approx(FIXED_S + 3.0)
    assert PACE.seconds(60, 500_000.0) == pytest.approx(FIXED_S + 6.0)  # nothing is tried that is expected to be slower


@pytest.mark.parametrize(
    ("seconds", "steps"),
    [(1000.0, STEPS), (FIXED_S + 4.05, 40), (FIXED_S + 2.05, FEWEST_STEPS), (FIXED_S + 1.9, 0), (-5.0, 0)],
)
def test_as_many_steps_as_fit_are_measured_but_no_few(seconds: float, steps: int) -> None:
    assert PACE.steps_within(seconds, None) == steps


def test_patience_is_thrice_what_is_expected_as_long_as_there_is_time() -> None:
    assert patience_s(20.0, 1000.0) == 60.0
    assert patience_s(1.0, 1000.0) == 30.0
    assert patience_s(20.0, 25.0) == 40.0
    assert patience_s(20.0, -3.0) == 35.0


def test_steps_and_epochs_are_those_of_the_slowest_rank(tmp_path: Path) -> None:
    ranks = [MadeRun(rank=0, pid=100, facts={"length": 90}), MadeRun(rank=1, pid=200, logging=9_000, forward=30_000)]
    session = made_session(tmp_path, *ranks, settings={"warmup": 5})
    pace = BaselinePace.of(session)
    durations = step_durations(session)
    assert pace is not None
    assert len(durations) >= 30
    assert min(durations) >= 41_000  # 9 + 30 + 2, and the optimizer's half
    assert pace.step_us == pytest.approx(sum(durations) / len(durations))
    assert pace.warmup == 5


def test_an_epoch_is_counted_in_steps(tmp_path: Path) -> None:
    pace = BaselinePace.of(made_session(tmp_path, MadeRun(facts={"length": 90}), settings={"warmup": 5}))
    assert pace is not None
    assert pace.epoch_steps == 90
