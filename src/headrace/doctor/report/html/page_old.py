"""The whole report as one HTML document."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from headrace.doctor.causes.remedy import Prescription
from headrace.doctor.measure.diagnosis import Diagnosis
from headrace.doctor.report.html.page import summary
from headrace.doctor.report.html.report import Report
from headrace.doctor.report.html.sections import sections
from headrace.doctor.report.html.svg import seen
from headrace.doctor.session.model import Session

FOLDER = Path(__file__).parent / "templates"
MOST_BYTES = 1_000_000
"""Of the file: it is mailed and opened on phones."""
TEXT_LIMITS = (1_200, 240, 60)
"""Characters of one text that are shown; the shorter ones where the file would be too large."""


def html_page(
    session: Session, diagnosis: Diagnosis, prescription: Prescription | None = None, *, again: str = ""
) -> str:
    """A document that loads nothing and runs nothing, of less than 1 MB. Pure, but for its own templates."""
    report = Report(session, diagnosis, prescription, again)
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
