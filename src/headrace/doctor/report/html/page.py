"""The HTML report as one document: its head, its sections and its style."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from headrace.doctor.causes.remedy import Prescription
from headrace.doctor.measure.diagnosis import Diagnosis
from headrace.doctor.measure.steps import BOUND, WAIT
from headrace.doctor.report.escaping import counted, duration, share
from headrace.doctor.report.html.blocks import ReportData, Section
from headrace.doctor.report.html.charts import seen
from headrace.doctor.report.html.machine_sections import environment, notes
from headrace.doctor.report.html.queue_section import queue
from headrace.doctor.report.html.remedy_sections import findings, remedies
from headrace.doctor.report.html.step_sections import anatomy, floors, timeline, waits
from headrace.doctor.report.html.worker_sections import ranks, samples, workers
from headrace.doctor.report.remedy_text import interval, is_refused, times, together
from headrace.doctor.report.run_text import command_line, ending
from headrace.doctor.report.terminal import HOT, first_to_do
from headrace.doctor.session.model import Session

# -- from doctor/report/html/summary.py: The head of the page: the verdict, a few figures, and how the command ended.


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


def summary(report: ReportData) -> Summary:
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


def _heat(report: ReportData, *, is_stopped: bool) -> str:
    """As the verdict has it: what it does not call input-bound is not shown as such."""
    waits = report.diagnosis.wait_share
    if waits is None:
        return ""
    return "green" if is_stopped or waits < BOUND else "red" if waits >= HOT else "yellow"


def _about(report: ReportData) -> Iterator[str]:
    session = report.session
    yield ending(session.outcome)
    yield session.created
    if session.machines:
        yield ", ".join(machine.host for machine in session.machines[:MOST_HOSTS])
    if session.headrace:
        yield f"Headrace {session.headrace}"


def _tiles(report: ReportData) -> Iterator[Tile]:
    budget = report.budget
    if budget is not None:
        below = f"95 % below {duration(budget.p95_us)} · {counted(budget.steps, budget.unit)}"
        yield Tile(f"Mean {budget.unit}{report.whose}", duration(budget.mean_us), below)
        wait = next((part for part in budget.parts if part.name == WAIT), None)
        if wait is not None:
            yield Tile("Of it waiting for data", duration(wait.us), _seen_share(report, wait.share))
    yield from _ahead(report)


def _seen_share(report: ReportData, of_cpu: float) -> str:
    by_gpu = report.diagnosis.seen_by == "gpu" and report.diagnosis.wait_share is not None
    gpu = f", {share(report.diagnosis.wait_share)} as the GPU sees it" if by_gpu else ""
    return f"{share(of_cpu)} of the {report.budget.unit if report.budget else 'step'}{gpu}"


def _ahead(report: ReportData) -> Iterator[Tile]:
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


# -- from doctor/report/html/sections/__init__.py: The page's sections, in order. Each is None where there is nothing
# to say.


SECTIONS: tuple[Callable[[ReportData], Section | None], ...] = (
    anatomy,
    remedies,
    floors,
    timeline,
    waits,
    workers,
    queue,
    ranks,
    samples,
    findings,
    environment,
    notes,
)


def sections(report: ReportData) -> list[Section]:
    made = [section(report) for section in SECTIONS]
    return [section for section in made if section is not None]


# -- from doctor/report/html/page.py: The whole report as one HTML document.


FOLDER = Path(__file__).parent / "templates"
MOST_BYTES = 1_000_000
"""Of the file: it is mailed and opened on phones."""
TEXT_LIMITS = (1_200, 240, 60)
"""Characters of one text that are shown; the shorter ones where the file would be too large."""


def html_page(
    session: Session, diagnosis: Diagnosis, prescription: Prescription | None = None, *, again: str = ""
) -> str:
    """A document that loads nothing and runs nothing, of less than 1 MB. Pure, but for its own templates."""
    report = ReportData(session, diagnosis, prescription, again)
    content = {"summary": summary(report), "sections": sections(report)}
    for limit in TEXT_LIMITS:
        page = _rendered(content, limit)
        if len(page.encode()) < MOST_BYTES:
            break
    return page


def _rendered(content: dict[str, Any], limit: int) -> str:
    style = _style()
    template = _environment(limit).get_template("page.html")
    return template.render(content, style=Markup(style), policy=_policy(style))


@cache
def _style() -> str:
    return (FOLDER / "style.css").read_text(encoding="utf-8")


@cache
def _environment(limit: int) -> Environment:
    """Every text is escaped twice over: by Jinja for HTML, and before that whatever would not be seen as itself."""

    def shown(value: object) -> object:
        return value if isinstance(value, Markup) or not isinstance(value, str) else seen(value, most=limit)

    return Environment(
        loader=FileSystemLoader(FOLDER),
        autoescape=True,
        finalize=shown,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _policy(style: str) -> str:
    """Of all that a browser can load or run, only this style sheet."""
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
