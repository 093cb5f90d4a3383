"""Report of `headrace tune` for a terminal and as JSON: the line to paste, the trials and notes."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console

from headrace.doctor.causes import ProofOutcome
from headrace.doctor.measure import LEAST_GAIN
from headrace.doctor.quantities import counted, duration, percent, times
from headrace.doctor.report.remedy_text import interval, proved
from headrace.doctor.report.terminal_layout import TerminalPage, TerminalRow
from headrace.doctor.simulate import Prediction

SCHEMA = 2
MOST_LABEL = 44
_ENDINGS = {"runs": "Another may gain: --runs allows more.", "interrupted": "Interrupted: another may gain."}


@dataclass(frozen=True)
class Paste:
    """Line to paste and its place."""

    line: str
    where: str
    """Place such as `train.py:42`, or a description if the call that made the loader is uncertain."""
    diff: str
    """Diff of the user's file; empty if uncertain or if nothing is to be changed."""


@dataclass(frozen=True, kw_only=True)
class TuneReport:
    """All measurements, predictions and proposals."""

    command: Sequence[str]
    present: dict[str, Any]
    """Arguments that the script passes to its loader."""
    choice: dict[str, Any]
    """Proposed arguments, equal to `present` if the script is best left unchanged."""
    ended: str
    """Reason that no further run followed: `time`, `runs`, `interrupted` or `nothing to gain`."""
    paste: Paste
    notes: Sequence[str]
    """Notes on options that do not pay, on omissions, and on other places where the choice applies."""
    seconds: float
    runs: Sequence[tuple[dict[str, Any], ProofOutcome]]
    """Arguments and outcome of each run, the unchanged command first."""
    grid: Sequence[tuple[dict[str, Any], Prediction]]
    """All settings considered."""

    @property
    def is_unchanged(self) -> bool:
        """True if the proposal changes nothing."""
        return self.choice == self.present

    @property
    def best(self) -> ProofOutcome:
        """Outcome of the proposed arguments."""
        return next(outcome for one, outcome in self.runs if one == self.choice)

    def document(self) -> dict[str, Any]:
        """Return the JSON document, with times in microseconds."""
        return {
            "schema": SCHEMA,
            "outcome": "keep" if self.is_unchanged else "change",
            "speedup": self.best.speedup,
            **asdict(self),
            "runs": [{"arguments": one, **asdict(outcome)} for one, outcome in self.runs],
            "grid": [{**one, "predicted": asdict(made)} for one, made in self.grid],
        }


def show_tuning(result: TuneReport, console: Console) -> None:
    """Print the verdict and the line to paste, then the trials and what does not pay."""
    page = TerminalPage(console.width, ascii_only=console.options.ascii_only)
    first, best = result.runs[0][1], result.best
    present, choice = first.remedies[0], best.remedies[0]
    if result.is_unchanged:
        gains = f"No other that was tried gains more than {percent(LEAST_GAIN)}."
        page.sentence(f"Keep what you have: {present}. {gains}", style="bold")
    else:
        steps = f"a step takes {duration(best.step_us)} in place of {duration(first.step_us)}"
        page.sentence(f"{times(best.speedup or 1.0)}: {choice} in place of {present}; {steps}.", style="bold")
        page.copyable(result.paste.line, lead=f"{result.paste.where.removeprefix(os.getcwd() + os.sep)}  ")
    page.line(shlex.join(result.command), indent=0, style="dim")
    page.heading("Tried", "a step, and what it lies between in 95 of 100 cases")
    page.entries([_row(one, first, best) for _, one in result.runs], most_label=MOST_LABEL)
    tried = sum(one.why != "not tried" for _, one in result.runs)
    untried = f"{counted(len(result.grid) - tried, 'further setting')} judged by prediction alone"
    runs = f"{counted(tried, 'run')} in {duration(result.seconds * 1e6)}"
    page.sentence(f"{runs}; {untried}. {_ENDINGS.get(result.ended, '')}", lead="  ", style="dim")
    if result.notes:
        page.heading("What does not pay, or was left alone")
        for text in result.notes:
            page.sentence(text, lead="  • ")
    if result.paste.diff:
        page.heading("The change")
        for line in result.paste.diff.splitlines():
            page.quote(line)
    page.show(console)


def _row(one: ProofOutcome, first: ProofOutcome, best: ProofOutcome) -> TerminalRow:
    predicted = "" if one.predicted is None else f"predicted {duration(one.predicted.step_us)}"
    said = f"measured {duration(one.step_us)}" if one is first else proved(one)
    between = interval(one.low_us, one.high_us)
    remark = said if between in said else f"{said} ({between})"
    cells = ("baseline" if one is first else predicted, "taken" if one is best else "")
    return TerminalRow(one.remedies[0], cells, remark=remark)
