"""The head of the page: the verdict, a few figures, and how the command ended."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from headrace.doctor.analyse.parts import WAIT
from headrace.doctor.causes.verdict import BOUND
from headrace.doctor.report.ending import command_line, ending
from headrace.doctor.report.escaping import counted, duration, share
from headrace.doctor.report.html.report import Report
from headrace.doctor.report.remedy_text import interval, is_refused, times, together
from headrace.doctor.report.step import HOT
from headrace.doctor.report.terminal import first_to_do

MOST_HOSTS = 8
_BADGES = {"red": "● Input-bound", "yellow": "◐ Partly input-bound", "green": "○ Not input-bound"}
"""How much of a step is waited for, for those who do not see the colour too."""


@dataclass(frozen=True)
class Tile:
    """One figure: what it is, its value, and a remark."""

    name: str
    value: str
    remark: str = ""


@dataclass(frozen=True)
class Summary:
    """`heat` is `red`, `yellow`, `green` or empty."""

    verdict: str
    stop: str
    first: str
    heat: str
    badge: str
    command: str
    about: list[str]
    tiles: list[Tile]


def summary(report: Report) -> Summary:
    diagnosis, prescription = report.diagnosis, report.prescription
    stop = prescription.stop if prescription is not None else ""
    colour = _heat(report, is_stopped=bool(stop))
    return Summary(
        verdict=diagnosis.verdict,
        stop=stop,
        first="" if stop else first_to_do(diagnosis, prescription),
        heat=colour,
        badge=_BADGES.get(colour, ""),
        command=command_line(report.session),
        about=list(_about(report)),
        tiles=list(_tiles(report)),
    )


def _heat(report: Report, *, is_stopped: bool) -> str:
    """As the verdict has it: what it does not call input-bound is not shown as such."""
    waits = report.diagnosis.wait_share
    if waits is None:
        return ""
    return "green" if is_stopped or waits < BOUND else "red" if waits >= HOT else "yellow"


def _about(report: Report) -> Iterator[str]:
    session = report.session
    yield ending(session.outcome)
    yield session.created
    if session.machines:
        yield ", ".join(machine.host for machine in session.machines[:MOST_HOSTS])
    if session.headrace:
        yield f"Headrace {session.headrace}"


def _tiles(report: Report) -> Iterator[Tile]:
    budget = report.budget
    if budget is not None:
        below = f"95 % below {duration(budget.p95_us)} · {counted(budget.steps, budget.unit)}"
        yield Tile(f"Mean {budget.unit}{report.whose}", duration(budget.mean_us), below)
        wait = next((part for part in budget.parts if part.name == WAIT), None)
        if wait is not None:
            yield Tile("Of it waiting for data", duration(wait.us), _seen(report, wait.share))
    yield from _ahead(report)


def _seen(report: Report, of_cpu: float) -> str:
    by_gpu = report.diagnosis.seen_by == "gpu" and report.diagnosis.wait_share is not None
    gpu = f", {share(report.diagnosis.wait_share)} as the GPU sees it" if by_gpu else ""
    return f"{share(of_cpu)} of the {report.budget.unit if report.budget else 'step'}{gpu}"


def _ahead(report: Report) -> Iterator[Tile]:
    """What it could be."""
    prescription = report.prescription
    if prescription is None:
        return
    if prescription.floors is not None and prescription.floors.replay_us is not None:
        yield Tile("Floor", duration(prescription.floors.replay_us), "on kept batches: no loader makes it shorter")
    best, outcome = prescription.best, together(prescription)
    if best is not None:
        between = interval(best.low_us, best.high_us)
        yield Tile("Predicted at best", duration(best.step_us), f"{times(best.speedup)} as fast, {between}")
    if outcome is not None and outcome.step_us is not None and outcome.speedup is not None:
        refused = ", not recommended" if is_refused(outcome) else ""
        yield Tile("Proved together", duration(outcome.step_us), f"{times(outcome.speedup)} as fast{refused}")
