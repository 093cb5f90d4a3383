"""Markdown report for a pull request or issue: verdict, step, remedies and findings of the view."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from html import escape

from headrace.doctor.quantities import ABSENT, duration
from headrace.doctor.report.escaping import safe
from headrace.doctor.report.view import ReportView

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


def markdown(view: ReportView) -> str:
    """Return a report of about one page: the first rows of the view."""
    return "\n".join(_lines(view)).rstrip() + "\n"


def _lines(view: ReportView) -> Iterator[str]:
    screen = view.screen
    yield from (f"**{escaped(screen.sentence)}**", "")
    yield from [f"- {escaped(bullet)}" for bullet in screen.bullets]
    if screen.recommendation is not None:
        yield from ("", f"**→ {escaped(screen.recommendation.text)}**")
        yield from ("", escaped(" · ".join(screen.recommendation.terms)))
    yield ""
    for step in view.steps[:1]:
        rows = [(part.label, *part.cells[:2]) for part in step.parts]
        yield from table((f"Step: {duration(step.budget.mean_us)}", "time", "share"), rows, 2)
        for loader in view.own_loaders[:1]:
            making = loader.production
            head = f"A batch: {duration(making.batch_us)} in one {making.makers if making.workers else 'process'}"
            yield from table((head, "share"), [(one.label, one.cells[0]) for one in loader.stages[:MOST_STAGES]], 1)
    yield from _list(
        [f"**{one.code}** ({one.certainty}): {escaped(f'{one.evidence} {one.mend}')}" for one in view.faults]
    )
    if view.bounds:
        yield from (escaped(" · ".join(f"{one.label} {one.cells[0]}" for one in view.bounds if one.bar)), "")
    if view.remedies.helps:
        helps = view.remedies.helps[:MOST_REMEDIES]
        cells = [(row.title, row.predicted or "unknown", row.proved or ABSENT) for row in helps]
        yield from table(("Remedy", "predicted", "proved"), cells)
    found = [one.text for one in view.findings if one.weight][:MOST_FINDINGS]
    yield from _list([escaped(text) for text in [*found, *screen.rest]])
    yield escaped(" · ".join([f"{view.ended}: {view.command}", *(one.names for one in view.machines[:1])]))


def _list(items: Sequence[str]) -> list[str]:
    return [*(f"- {item}" for item in items), ""] if items else []
