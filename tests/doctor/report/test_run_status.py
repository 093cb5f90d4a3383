"""The status of the doctor's own work: nothing of it stays, and what is no terminal gets one line."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from attach_runs import interrupted_on_terminal
from rich.console import Console

from headrace.doctor.measure import DiagnosisPlan
from headrace.doctor.probe import ProbeSettings
from headrace.doctor.report.live import RunStatus

PLAN = DiagnosisPlan(ProbeSettings("", 0, 0, ""), trial_s=10.0)


def status(*, is_terminal: bool) -> tuple[RunStatus, io.StringIO]:
    file = io.StringIO()
    console = Console(file=file, force_terminal=is_terminal, width=60, color_system=None, _environ={"TERM": "xterm"})
    return RunStatus(PLAN, console), file


def test_it_shows_what_the_doctor_does_after_the_run_and_takes_it_away() -> None:
    line, file = status(is_terminal=True)
    with line:
        line.tells("[bold]as it is[/bold]")
    assert "headrace: [bold]as it is[/bold]" in file.getvalue()
    assert file.getvalue().endswith("\x1b[2K")


def test_what_is_no_terminal_gets_one_line_at_the_start() -> None:
    line, file = status(is_terminal=False)
    with line:
        line.announce()
        line.begins("survey")
    assert file.getvalue() == f"headrace: {PLAN.text()}\n"


@pytest.mark.long
def test_on_a_pseudo_terminal_nothing_stays_of_it_after_ctrl_c(tmp_path: Path) -> None:
    """The command gets the signal and the report comes, on lines of their own."""
    code, shown = interrupted_on_terminal(tmp_path, shows=("under way\r\n",))
    assert code == 130, shown
    assert shown.index("headrace: about") < shown.index("under way\r\n") < shown.index("interrupted")
    left = [line.rpartition("\x1b[2K")[2] for line in shown.split("\n")]  # what a reader sees of each line
    assert not [line for line in left if "diagnosing" in line]
