"""Reports as the terminals of different people would show them."""

from __future__ import annotations

import io
from pathlib import Path

from machine_findings import quantities
from rich.console import Console

from headrace.doctor.causes import Prescription, gaining
from headrace.doctor.measure import Diagnosis, Statement
from headrace.doctor.report.remedy_text import first_screen
from headrace.doctor.report.terminal import TEXT_WIDTH, show
from headrace.doctor.report.view import ReportView, report_view
from headrace.doctor.session.model import Session

GOLDEN = Path(__file__).parent / "golden"
AGAIN = "headrace doctor show session.json"
NOTHING = Diagnosis(Statement("no-training", "No training was seen."), None, "cpu")


def printed(
    session: Session,
    diagnosis: Diagnosis,
    prescription: Prescription | None = None,
    *,
    width: int = 100,
    encoding: str = "utf-8",
    colour: bool = False,
    verbose: bool = False,
) -> str:
    """What a terminal of that width and encoding receives."""
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding, newline="")
    colours = "standard" if colour else None
    plain = {"force_terminal": colour, "color_system": colours, "legacy_windows": False, "_environ": {}}
    console = Console(file=file, width=width, **plain)
    show(report_view(session, diagnosis, prescription, again=AGAIN), console, verbose=verbose)
    file.flush()
    return file.buffer.getvalue().decode(encoding)  # type: ignore[attr-defined]


def text(view: ReportView) -> str:
    """The whole report, as --verbose prints it without colours."""
    file = io.StringIO()
    show(view, Console(file=file, width=TEXT_WIDTH, legacy_windows=False, _environ={}), verbose=True)
    return file.getvalue()


def said(diagnosis: Diagnosis) -> str:
    """Everything that the first screen may say of a diagnosis, in its order."""
    return " ".join(one.text for one in (*diagnosis.ending, diagnosis.verdict, *diagnosis.statements))


def codes(diagnosis: Diagnosis) -> list[str]:
    """Codes of everything that the first screen may say of a diagnosis, in its order."""
    return [one.code for one in (*diagnosis.ending, diagnosis.verdict, *diagnosis.statements)]


def figures(diagnosis: Diagnosis) -> list[str]:
    """Quantities of everything that the first screen may say of a diagnosis, in its order."""
    return quantities(said(diagnosis))


def first_gain(prescription: Prescription) -> str:
    """What is recommended of remedies that gain; nothing where none does."""
    found = None if gaining(prescription) is None else first_screen(NOTHING, prescription).recommendation
    return "" if found is None else found.text
