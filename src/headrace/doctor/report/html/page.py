"""HTML report: one offline page, rendered from templates."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from headrace.doctor.causes import Prescription, hanging
from headrace.doctor.measure import BOUND, Diagnosis, is_late
from headrace.doctor.quantities import counted, duration, number, percent
from headrace.doctor.report.first_screen import first_screen
from headrace.doctor.report.html import tables, timelines
from headrace.doctor.report.html.charts import (
    FOLDER,
    BarMeasure,
    BarSegment,
    ChartKey,
    category_colour,
    columns,
    measures,
    seen,
    stacked,
)
from headrace.doctor.report.html.report_data import ReportData
from headrace.doctor.report.remedy_text import bound_rows, remedy_rows
from headrace.doctor.report.run_text import (
    command_line,
    computing_share,
    cost_text,
    ending,
    last_words,
    latest_ranks,
    machine_lines,
    machine_names,
    name_text,
    note_texts,
    stage_text,
    start_up_text,
)
from headrace.doctor.report.terminal import HOT
from headrace.doctor.session.model import Session

MOST_BYTES = 1_000_000
"""Size limit of the file in bytes, since it is mailed and opened on phones."""
TEXT_LIMITS = (1_200, 240, 60)
"""Maximum characters of one text. Smaller limits apply if the file would be too large."""
_BADGES = {"red": "● Input-bound", "yellow": "◐ Partly input-bound", "green": "○ Not input-bound"}
"""Text equivalents of the colours for accessibility."""
_FUNCTIONS = (
    *(counted, duration, number, percent, remedy_rows, bound_rows),
    *(columns, measures, stacked, BarMeasure, BarSegment, ChartKey, category_colour, is_late, hanging, latest_ranks),
    *(command_line, ending, cost_text, last_words, machine_lines, machine_names),
    *(name_text, stage_text, start_up_text, note_texts, computing_share),
)
"""Functions available in templates, in addition to `tables` and `timelines`."""


def html_page(
    session: Session, diagnosis: Diagnosis, prescription: Prescription | None = None, *, again: str = ""
) -> str:
    """Return a document under 1 MB without scripts or external resources. Pure except for reading its templates."""
    report = ReportData(session, diagnosis, prescription, again)
    style = (FOLDER / "style.css").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    colour = _heat(report)
    for limit in TEXT_LIMITS:
        page = (
            _environment(limit)
            .get_template("page.html")
            .render(
                report=report,
                heat=colour,
                badge=_BADGES.get(colour, ""),
                screen=first_screen(diagnosis, prescription),
                contents=[],
                style=Markup(style),
                policy=f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'",
            )
        )
        if len(page.encode()) < MOST_BYTES:
            break
    return page


def _heat(report: ReportData) -> str:
    """Return `red`, `yellow`, `green` or empty; never red or yellow if the verdict is not input-bound."""
    diagnosis, prescription = report.diagnosis, report.prescription
    waits = diagnosis.wait_share if diagnosis.data_share is None else diagnosis.data_share
    if waits is None:
        return ""
    is_stopped = prescription is not None and bool(prescription.stop)
    return "green" if is_stopped or waits < BOUND else "red" if waits >= HOT else "yellow"


@cache
def _environment(limit: int) -> Environment:
    """Return the template environment, which escapes every text twice.

    `seen` first escapes characters that are not plainly visible, then Jinja escapes the text for HTML.
    """

    def shown(value: object) -> object:
        return value if isinstance(value, Markup) or not isinstance(value, str) else seen(value, most=limit)

    environment = Environment(
        loader=FileSystemLoader(FOLDER),
        autoescape=True,
        finalize=shown,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    own: dict[str, Any] = {function.__name__: function for function in _FUNCTIONS}
    environment.globals.update(own, tables=tables, timelines=timelines)
    return environment
