"""The status below a command's output: what it says, that it never stands in the way, and that nothing of it stays."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from pathlib import Path

import pytest
from attach_runs import interrupted_on_terminal
from growing_evidence import CHOSEN, append, evidence, settings, step
from machine_findings import quantities
from rich.console import Console

from headrace.doctor.measure import CurrentWindow, DiagnosisPlan, RunProgress
from headrace.doctor.report.live import RunStatus, progress_text

ERASED = "\r\x1b[2K"
PLAN = DiagnosisPlan(settings(Path(), steps=200, replay=40, drain_s=10.0), trial_s=10.0)
TEN_A_SECOND = RunProgress(33, 10.0)


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


# On a terminal.


class Terminal:
    def __init__(self, folder: Path, *, is_terminal: bool = True) -> None:
        self.file = io.StringIO()
        console = Console(
            file=self.file, force_terminal=is_terminal, width=60, color_system=None, _environ={"TERM": "xterm"}
        )
        self.now = 0.0
        self.line = RunStatus(
            settings(folder, steps=20, replay=40),
            PLAN,
            console,
            clock=lambda: self.now,
        )

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
    with terminal.line as line:
        line.begins("survey")
        assert terminal.file.getvalue().endswith("the files")


def test_what_is_no_terminal_gets_one_line_at_the_start(tmp_path: Path) -> None:
    pipe = Terminal(tmp_path, is_terminal=False)
    with pipe.line as line:
        line.announce()
        assert pipe.looks() == ""
        line.begins("survey")
    assert pipe.file.getvalue() == f"headrace: {PLAN.text()}\n"


@pytest.mark.long
def test_on_a_pseudo_terminal_nothing_stays_of_it_after_ctrl_c(tmp_path: Path) -> None:
    """The command gets the signal and the report comes, on lines of their own."""
    drawn_again = "headrace: the script starts"  # below what the command has printed
    status, shown = interrupted_on_terminal(tmp_path, shows=("under way\r\n", drawn_again))
    assert status == 130, shown
    assert shown.index("about 50 s") < shown.index("under way\r\n") < shown.index("interrupted")
    left = [line.rpartition("\x1b[2K")[2] for line in shown.split("\n")]  # what a reader sees of each line
    assert not [line for line in left if "the script starts" in line or "diagnosing" in line]


# Live rows.
