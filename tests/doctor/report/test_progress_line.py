"""The progress line: what it says, that it never stands in the command's way, and that nothing of it stays."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from attach_runs import interrupted_on_terminal
from machine_findings import quantities
from rich.console import Console
from test_live_view import CHOSEN, append, evidence, settings, step

from headrace.doctor.measure import (
    CurrentWindow,
    DiagnosisPlan,
    PhaseClock,
    RunProgress,
    about,
    options_for,
    phases_text,
    run_phases,
)
from headrace.doctor.report.live import RunStatus, progress_text
from headrace.doctor.session.model import CommandOutcome, Session
from headrace.doctor.session.trainers import MeasuredWindow, OptimizerSteps, Trainer

ERASED = "\r\x1b[2K"
PLAN = DiagnosisPlan(steps=200, warmup=None, replay=40, drain_s=10.0, trial_s=10.0)
TEN_A_SECOND = RunProgress(33, 10.0, 0.5, 2, 0.9)


def test_at_the_start_it_says_how_long_it_will_take() -> None:
    assert quantities(PLAN.text()) == ["50 s", "100 ms", "200", "80"]
    small = DiagnosisPlan(steps=5, warmup=0, replay=40, drain_s=10.0, prove_s=120.0)
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
    early = replace(PLAN, ends_early=True)
    assert PLAN.seconds_left("observe", 0, 1.0) - early.seconds_left("observe", 0, 1.0) == pytest.approx(140)
    assert early.seconds_left("observe", 0, 0.1) == PLAN.seconds_left("observe", 0, 0.1)


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "about 5 s"), (43, "about 45 s"), (89, "about 90 s"), (130, "about 2 min")]
)
def test_an_estimate_has_no_digits_that_it_does_not_bear(seconds: float, text: str) -> None:
    assert about(seconds) == text


@pytest.mark.parametrize(
    ("window", "figures"),
    [
        (None, []),
        (CurrentWindow("warm-up", 2), ["100 ms", "50 s"]),
        (CurrentWindow("observe", 34, 200), ["34", "200", "100 ms", "45 s"]),
        (CurrentWindow("drain"), ["100 ms", "20 s"]),
        (CurrentWindow("end"), ["100 ms", "15 s"]),
    ],
)
def test_how_far_a_run_is(window: CurrentWindow | None, figures: list[str]) -> None:
    assert quantities(progress_text(PLAN, replace(TEN_A_SECOND, window=window))) == figures


@pytest.mark.parametrize(("steps", "observed"), [(13, None), (14, 3), (22, 3), (28, 6), (129, 40)])
def test_options_for_a_short_run_leave_room_for_all_windows(steps: int, observed: int | None) -> None:
    assert options_for(steps) == ("" if observed is None else f"--warmup 3 --steps {observed}")


# On a terminal.


class Terminal:
    def __init__(self, folder: Path, *, is_terminal: bool = True) -> None:
        self.file = io.StringIO()
        console = Console(
            file=self.file, force_terminal=is_terminal, width=60, color_system=None, _environ={"TERM": "xterm"}
        )
        self.now = 0.0
        self.line = RunStatus(settings(folder, steps=20, replay=40), PLAN, console, clock=lambda: self.now)

    def looks(self) -> str:
        """Return what one more look writes."""
        self.now += 1.0
        before = len(self.file.getvalue())
        self.line.look()
        return self.file.getvalue()[before:]


@pytest.fixture
def terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Terminal:
    append(evidence(tmp_path) / "a.jsonl", CHOSEN, *(step(n, n * 100_000, (n + 1) * 100_000) for n in range(9)))
    monkeypatch.setattr("os.isatty", lambda descriptor: True)
    return Terminal(tmp_path)


def test_one_line_is_drawn_over_and_over_and_goes_in_the_end(terminal: Terminal) -> None:
    with terminal.line:
        line = terminal.looks()
        assert line.startswith(f"{ERASED}headrace: ")
        assert re.findall(r"\d+", line.removeprefix(ERASED)) == ["2", "20", "100", "50"]
        assert terminal.looks().startswith(ERASED)
    assert terminal.file.getvalue().endswith(ERASED)
    assert "\n" not in terminal.file.getvalue()


def test_it_makes_room_for_the_commands_own_output(terminal: Terminal) -> None:
    with terminal.line as line:
        terminal.looks()
        line.hide()
        assert terminal.file.getvalue().endswith(ERASED)
        line.wrote(1, b"epoch 1\r 10%")
        assert terminal.looks() == ""  # a bar of the command's: the line is not ours
        line.wrote(2, b" 100%\n")
        assert terminal.looks() != ""


def test_it_shows_what_the_doctor_does_after_the_run(terminal: Terminal) -> None:
    clock = PhaseClock(iter(range(10)).__next__, terminal.line.begins)
    with terminal.line, clock.phase("survey"):
        assert terminal.file.getvalue().endswith("the files")
    assert clock.rows == [("survey", 0, 1)]


def test_what_is_no_terminal_gets_one_line_at_the_start(tmp_path: Path) -> None:
    pipe = Terminal(tmp_path, is_terminal=False)
    with pipe.line as line:
        line.announce()
        assert pipe.looks() == ""
        line.begins("survey")
    assert pipe.file.getvalue() == f"headrace: {PLAN.text()}\n"


def test_on_a_pseudo_terminal_nothing_stays_of_it_after_ctrl_c(tmp_path: Path) -> None:
    """The command gets the signal and the report comes, on lines of their own."""
    drawn_again = "headrace: the script starts"  # below what the command has printed
    status, shown = interrupted_on_terminal(tmp_path, shows=("under way\r\n", drawn_again))
    assert status == 130, shown
    assert shown.index("about 50 s") < shown.index("under way\r\n") < shown.index("interrupted")
    left = [line.rpartition("\x1b[2K")[2] for line in shown.split("\n")]  # what a reader sees of each line
    assert not [line for line in left if "the script starts" in line or "diagnosing" in line]


# What the phases took.


def session(*windows: tuple[str, int, int]) -> Session:
    """A run of four steps of one second, from second 3 on."""
    steps = OptimizerSteps(number=list(range(4)), start=[3, 4, 5, 6], end=[4, 5, 6, 7])
    found: list[Any] = [MeasuredWindow(name, 0, 1, 0, start, end) for name, start, end in windows]
    trainer = Trainer(1, "vm", 0, steps=steps, windows=found)
    outcome = CommandOutcome(["x"], 0, "finished", 9)
    return Session("", "measure", "", None, 4, outcome, trainers=[trainer])


@pytest.mark.parametrize(
    ("windows", "rows"),
    [
        ([], [("start", 0, 3), ("observe", 3, 7), ("end", 7, 9)]),
        (
            [("observe", 4, 5), ("replay", 5, 7)],
            [("start", 0, 3), ("warm-up", 3, 4), ("observe", 4, 5), ("replay", 5, 7), ("end", 7, 9)],
        ),
        (
            [("early", 4, 5), ("observe", 3, 7)],
            [("start", 0, 3), ("observe", 3, 4), ("early", 4, 5), ("observe", 5, 7), ("end", 7, 9)],
        ),
        (
            [("early", 4, 5), ("observe", 6, 7)],
            [("start", 0, 3), ("warm-up", 3, 4), ("early", 4, 5), ("warm-up", 5, 6), ("observe", 6, 7), ("end", 7, 9)],
        ),
    ],
    ids=["it ended first", "all windows", "early within", "early before"],
)
def test_the_phases_of_a_run_lie_end_to_end(windows: list[Any], rows: list[Any]) -> None:
    assert run_phases(session(*windows), 9) == rows


def test_phases_in_words() -> None:
    run = session()
    assert phases_text(run) == ""
    run.phases = [("start", 0, 3_000_000), ("trial", 3_000_000, 5_000_000), ("trial", 6_000_000, 7_500_000)]
    assert phases_text(run).split(" · ") == ["start 3.0 s", "trial 3.5 s", "all 7.5 s"]
