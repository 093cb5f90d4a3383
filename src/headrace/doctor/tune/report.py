"""Report of `headrace tune`."""

from __future__ import annotations

import os
import shlex

from rich.console import Console

from headrace.doctor.causes.remedy import DISTURBING
from headrace.doctor.quantities import counted, duration, number
from headrace.doctor.report.remedy_text import times
from headrace.doctor.report.terminal_layout import TerminalPage, TerminalRow
from headrace.doctor.tune.candidates import EVEN, MeasuredArguments
from headrace.doctor.tune.result import TuneResult
from headrace.doctor.tune.run import INTERRUPTED, OUT_OF_RUNS, OUT_OF_TIME

MOST_LABEL = 44
_ENDINGS = {
    OUT_OF_TIME: "No further one fitted into --max-seconds, and another may gain: give it more.",
    OUT_OF_RUNS: "No further one was asked for, and another may gain: --runs allows more.",
    INTERRUPTED: "Interrupted: another may gain.",
}


def show(result: TuneResult, console: Console) -> None:
    """Prints it, in ASCII where the terminal knows no more."""
    page = TerminalPage(console.width, ascii_only=console.options.ascii_only)
    put_report(page, result)
    page.show(console)


def put_report(page: TerminalPage, result: TuneResult) -> None:
    page.sentence(_verdict(result), style="bold")
    if not result.is_kept:
        page.copyable(result.paste.line, lead=f"{_shown(result.paste.where)}  ")
    page.line(f"{shlex.join(result.command)}", indent=0, style="dim")
    page.heading("Tried", "a step, and what it lies between in 95 of 100 cases")
    page.entries([_row(result, one) for one in result.runs], most_label=MOST_LABEL)
    page.sentence(_counts(result), lead="  ", style="dim")
    if result.notes:
        page.heading("What does not pay, or was left alone")
        for note in result.notes:
            page.sentence(note, lead="  • ")
    if result.files:
        page.heading("Files of yours")
        for text in result.files:
            page.sentence(text, lead="  • ")
    if result.paste.diff and not result.is_kept:
        page.heading("The change")
        for line in result.paste.diff.splitlines():
            page.quote(line)


def _verdict(result: TuneResult) -> str:
    before, after = result.runs[0].interval, result.choice.interval
    if result.is_kept or before is None or after is None:
        return f"Keep what you have: {result.present}. No other that was tried gains more than {100 * EVEN:.0f} %."
    steps = f"a step takes {duration(after[0])} in place of {duration(before[0])}"
    return f"{times(result.speedup)}: {result.choice.arguments} in place of {result.present}; {steps}."


def _row(result: TuneResult, one: MeasuredArguments) -> TerminalRow:
    prediction = result.predictions.get(one.arguments)
    is_first = one is result.runs[0]
    taken = "taken" if one is result.choice else ""
    predicted = "as it is" if is_first or prediction is None else f"predicted {duration(prediction.step_us)}"
    return TerminalRow(str(one.arguments), (predicted, _measured(one), taken), remark=_remark(one))


def _measured(one: MeasuredArguments) -> str:
    return "not measured" if one.interval is None else f"measured {duration(one.interval[0])}"


def _remark(one: MeasuredArguments) -> str:
    if one.interval is None:
        last = next((line for line in reversed(one.detail.splitlines()) if line.strip()), "")
        said = {"different samples": "other samples than before: never taken"}.get(one.why, one.why)
        return f"{said}: {last}" if last else said
    _, low, high = one.interval
    others = one.others_cores or 0.0
    beside = f"; other programs kept {number(others)} cores busy" if others >= DISTURBING else ""
    return f"{duration(low)} to {duration(high)}{beside}"


def _counts(result: TuneResult) -> str:
    untried = len(result.predictions) - len({one.arguments for one in result.runs})
    runs = f"{counted(len(result.runs), 'run')} in {duration(result.seconds * 1e6)}"
    return f"{runs}; {counted(untried, 'further setting')} told by prediction alone. {_ENDINGS.get(result.ended, '')}"


def _shown(where: str) -> str:
    """Files below the current folder by their name from there."""
    path, _, line = where.rpartition(":")
    relative = os.path.relpath(path) if os.path.isabs(path) else path
    return where if relative.startswith("..") else f"{relative}:{line}"
