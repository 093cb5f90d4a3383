"""Progress of a run from its evidence as it grows, and the time that its diagnosis is expected to take."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from growing_evidence import (
    CHOSEN,
    DRAINED,
    LOADED,
    MEASURED,
    NO_WORKERS,
    OBSERVED,
    REPLAYED,
    SECOND,
    TWO_WORKERS,
    append,
    batch,
    evidence,
    get,
    settings,
    step,
    steps,
)
from machine_findings import quantities

from headrace.doctor.measure import CurrentWindow, DiagnosisPlan, RunMeter, RunProgress, about, options_for


def progress(folder: Path, **asked: Any) -> RunProgress:
    """Return what one look at the evidence in `folder` finds."""
    return RunMeter(settings(folder, **asked)).look()


def test_each_record_is_read_once_and_only_when_whole(tmp_path: Path) -> None:
    file = evidence(tmp_path) / "a.jsonl"
    meter = RunMeter(settings(tmp_path))
    assert meter.look() == RunProgress()
    append(file, get(0, 40), step(0, 0, 100))
    append(file, step(1, 100, 200), end="")
    assert (meter.look(), meter.look()) == (progress(tmp_path),) * 2
    append(file, end="\n")
    now = meter.look()
    assert (now.step, now.steps_per_s) == (1, pytest.approx(1e6 / 100))


def test_new_files_are_found_and_damaged_lines_passed_over(tmp_path: Path) -> None:
    meter = RunMeter(settings(tmp_path))
    append(evidence(tmp_path) / "a.jsonl", step(0, 0, 100))
    assert meter.look().step == 0
    damaged = b'{"no": "list"}\n\xff\xfe\nnot json\n[]\n'
    (evidence(tmp_path) / "b.jsonl").write_bytes(damaged + json.dumps(step(7, 100, 200)).encode() + b"\n")
    assert meter.look().step == 7


def test_what_is_longer_than_one_look_comes_with_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.doctor.measure.progress.MOST_BYTES_AT_ONCE", 60)
    append(evidence(tmp_path) / "a.jsonl", *(step(number, number, number + 1) for number in range(10)))
    meter = RunMeter(settings(tmp_path))
    seen = [meter.look().step for _ in range(8)]
    assert seen[0] != 9
    assert seen[-1] == 9


def test_the_pace_of_a_run(tmp_path: Path) -> None:
    """Ten steps of 100 ms."""
    folder = evidence(tmp_path)
    append(folder / "trainer.jsonl", *(step(n, n * 100_000, (n + 1) * 100_000) for n in range(10)))
    assert progress(tmp_path) == RunProgress(step=9, steps_per_s=pytest.approx(10))


def test_the_pace_forgets(tmp_path: Path) -> None:
    append(evidence(tmp_path) / "a.jsonl", step(0, 0, 4 * SECOND), step(1, 60 * SECOND, 61 * SECOND))
    assert progress(tmp_path).steps_per_s == pytest.approx(1)


def test_records_of_an_unknown_shape_are_left_out(tmp_path: Path) -> None:
    odd = [["step"], ["step", "x", None, {}, 1], ["get", 1], batch(0, 9, [[7, 1, 1, 1]]), [1], ["x"]]
    append(evidence(tmp_path) / "a.jsonl", *odd)
    assert progress(tmp_path) == RunProgress()


@pytest.mark.parametrize(
    ("records", "window"),
    [
        (steps(2), CurrentWindow("warm-up", 2)),
        ([*steps(2), CHOSEN], CurrentWindow("warm-up", 2, 7)),
        ([CHOSEN, *steps(7)], CurrentWindow("observe", 0, 20)),
        ([CHOSEN, *steps(19)], CurrentWindow("observe", 12, 20)),
        ([CHOSEN, *steps(27), OBSERVED], CurrentWindow("replay", 0, 20)),
        ([CHOSEN, *steps(30), OBSERVED], CurrentWindow("replay", 0, 20)),
        ([CHOSEN, *steps(44), OBSERVED], CurrentWindow("replay", 14, 20)),
        ([TWO_WORKERS, *steps(75), OBSERVED, REPLAYED], CurrentWindow("load", 2, 20)),
        ([["loader", 0, 0, {"num_workers": 0, "threads": 2}], *steps(71), REPLAYED], CurrentWindow("load", 0, 20)),
        ([CHOSEN, *steps(44), ["window", "observe", 7, 20, 0, 0, 20 * SECOND]], CurrentWindow("replay", 6, 6)),
        ([NO_WORKERS, *steps(70), OBSERVED, REPLAYED], CurrentWindow("drain")),
        ([TWO_WORKERS, *steps(113), REPLAYED, LOADED], CurrentWindow("drain")),
        ([*steps(113), LOADED, DRAINED], CurrentWindow("end")),
        ([*steps(27), OBSERVED, ["note", 1, "no-replay", "It was only observed."]], CurrentWindow("end")),
        ([*steps(9), ["end", 9, "exit"]], CurrentWindow("end")),
        ([*steps(44), ["window", "odd"], ["window"], ["facts", 1, None]], CurrentWindow("warm-up", 44)),
        ([TWO_WORKERS], None),
    ],
)
def test_which_window_a_measured_run_is_in(tmp_path: Path, records: list[Any], window: CurrentWindow | None) -> None:
    append(evidence(tmp_path) / "a.jsonl", *records)
    assert progress(tmp_path, **MEASURED).window == window


def test_a_warm_up_that_was_asked_for_is_known_from_the_start(tmp_path: Path) -> None:
    append(evidence(tmp_path) / "a.jsonl", *steps(5))
    assert progress(tmp_path, **MEASURED, warmup=2).window == CurrentWindow("observe", 3, 20)


def test_a_run_that_is_only_observed_has_no_window(tmp_path: Path) -> None:
    append(evidence(tmp_path) / "a.jsonl", CHOSEN, *steps(9))
    assert progress(tmp_path, observe=True).window is None


ASKED = settings(Path(), steps=200, replay=40, drain_s=10.0)
PLAN = DiagnosisPlan(ASKED, trial_s=10.0)


def test_at_the_start_it_says_how_long_it_will_take() -> None:
    assert quantities(PLAN.text()) == ["50 s", "100 ms", "200", "80"]
    small = DiagnosisPlan(replace(ASKED, steps=5, warmup=0), prove_s=120.0)
    assert quantities(small.text()) == ["10 s", "100 ms", "5", "10", "120 s"]


def test_what_is_left_shrinks_from_phase_to_phase_by_what_they_take() -> None:
    left = [
        PLAN.seconds_left(phase, done, 0.1)
        for phase, done in [("observe", 0), ("observe", 100), ("replay", 0), ("load", 0), ("drain", 0), ("over", 0)]
    ]
    spent = [before - after for before, after in pairwise(left)]
    assert spent == [pytest.approx(one) for one in (10.0, 10.0, 4.3, 4.3, 4.0)]
    assert left[-1] == pytest.approx(PLAN.trial_s + 6.0)


def test_of_long_steps_fewer_are_expected_where_observation_may_end_early() -> None:
    early = DiagnosisPlan(replace(ASKED, enough=20), trial_s=10.0)
    assert PLAN.seconds_left("observe", 0, 1.0) - early.seconds_left("observe", 0, 1.0) == pytest.approx(140)
    assert early.seconds_left("observe", 0, 0.1) == PLAN.seconds_left("observe", 0, 0.1)


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "about 5 s"), (43, "about 45 s"), (89, "about 90 s"), (130, "about 2 min")]
)
def test_an_estimate_has_no_digits_that_it_does_not_bear(seconds: float, text: str) -> None:
    assert about(seconds) == text


@pytest.mark.parametrize(("steps", "observed"), [(20, None), (21, 3), (29, 3), (35, 6), (136, 40)])
def test_options_for_a_short_run_leave_room_for_all_windows(steps: int, observed: int | None) -> None:
    assert options_for(steps) == ("" if observed is None else f"--steps {observed}")
