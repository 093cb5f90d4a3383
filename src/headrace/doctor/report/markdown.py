"""Markdown report for a pull request or issue: verdict, step, remedies and findings."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from html import escape

from headrace.doctor.causes import Prescription
from headrace.doctor.measure import Diagnosis
from headrace.doctor.quantities import ABSENT, duration, percent
from headrace.doctor.report.escaping import safe
from headrace.doctor.report.first_screen import first_screen
from headrace.doctor.report.remedy_text import bound_rows, remedy_rows
from headrace.doctor.report.run_text import command_line, ending, machine_names, stage_text
from headrace.doctor.report.terminal import waiting_most
from headrace.doctor.session.model import Session

_SPECIAL = re.compile(r"([\\`*_\[\]|#~])")
MOST_FINDINGS, MOST_STAGES, MOST_REMEDIES = 5, 5, 5


def escaped(text: object) -> str:
    """Return text escaped so that Markdown shows it literally."""
    return _SPECIAL.sub(r"\\\1", escape(safe(text), quote=False))


def table(head: Sequence[str], rows: Sequence[Sequence[str]], right: int = 0) -> list[str]:
    """Return the lines of a table with columns 1 to `right` aligned right and all others left."""
    marks = ["---:" if 1 <= place <= right else "---" for place in range(len(head))]
    lines = [f"| {' | '.join(map(escaped, row))} |" for row in rows]
    return [f"| {' | '.join(head)} |", f"|{'|'.join(marks)}|", *lines, ""]


def markdown(session: Session, diagnosis: Diagnosis, prescription: Prescription | None = None) -> str:
    """Return a report of about one page."""
    return "\n".join(_lines(session, diagnosis, prescription)).rstrip() + "\n"


def _lines(session: Session, diagnosis: Diagnosis, prescription: Prescription | None) -> Iterator[str]:
    screen = first_screen(diagnosis, prescription)
    yield f"**{escaped(screen.sentence)}**"
    yield ""
    yield from [f"- {escaped(bullet)}" for bullet in screen.bullets]
    if screen.recommendation is not None:
        yield from ("", f"**→ {escaped(screen.recommendation.text)}**")
        yield from ("", escaped(" · ".join(screen.recommendation.terms)))
    yield ""
    budgets = waiting_most(diagnosis)[:1]
    for budget in budgets:
        head = (f"Step: {duration(budget.mean_us)}", "time", "share")
        yield from table(head, [(part.name, duration(part.us), percent(part.share)) for part in budget.parts], 2)
    for making in [one for one in diagnosis.batch_production if budgets and one.trainer == budgets[0].pid][:1]:
        stages = sorted(making.stages, key=lambda stage: -stage.share)[:MOST_STAGES]
        who = making.makers if making.workers else "process"
        yield from table(
            (f"A batch: {duration(making.batch_us)} in one {who}", "share"),
            [(stage_text(stage), percent(stage.share)) for stage in stages],
            1,
        )
    yield from [f"- **{fault.code}**: {escaped(f'{fault.evidence} {fault.mend}')}" for fault in session.faults]
    yield from [""] if session.faults else []
    yield from _remedies(prescription)
    found = [*(one.text for one in diagnosis.findings if one.weight > 0)][:MOST_FINDINGS] + screen.rest
    yield from [f"- {escaped(text)}" for text in found]
    if found:
        yield ""
    machines = [" · ".join(machine_names(machine)) for machine in session.machines[:1]]
    yield escaped(" · ".join([f"{ending(session.outcome)}: {command_line(session)}", *machines]))


def _remedies(prescription: Prescription | None) -> Iterator[str]:
    """Yield the lower bounds and the helpful remedies with their predictions and proofs."""
    if prescription is None:
        return
    if prescription.lower_bounds is not None:
        bounds = [f"{name} {duration(us)}" for name, us in bound_rows(prescription.lower_bounds) if us is not None]
        yield escaped(" · ".join(bounds))
        yield ""
    rows = remedy_rows(prescription).helps[:MOST_REMEDIES]
    if rows:
        cells = [(row.title, row.predicted or "unknown", row.proved or ABSENT) for row in rows]
        yield from table(("Remedy", "predicted", "proved"), cells)
