"""The report for people: the verdict first, what to do next, then the evidence, and how to render it again."""

from __future__ import annotations

from rich.console import Console

from headrace.doctor.causes.remedy import Prescription
from headrace.doctor.measure.diagnosis import Diagnosis, Finding
from headrace.doctor.report.detail import ALL, CELL, CELL_WITH_REMEDIES, SCREEN, SCREEN_WITH_REMEDIES, Detail
from headrace.doctor.report.ending import command_line, ending, put_last_lines
from headrace.doctor.report.escaping import counted, share
from headrace.doctor.report.making import put_making
from headrace.doctor.report.notes import put_hung, put_notes
from headrace.doctor.report.ranks import put_ranks
from headrace.doctor.report.remedies import put_remedies
from headrace.doctor.report.remedy_text import first_gain, helping
from headrace.doctor.report.run_text import put_machines
from headrace.doctor.report.step import heat, put_step
from headrace.doctor.report.terminal_layout import Page
from headrace.doctor.report.windows import put_windows
from headrace.doctor.session.model import Session

TEXT_WIDTH = 100


def show(
    session: Session,
    diagnosis: Diagnosis,
    console: Console,
    prescription: Prescription | None = None,
    verbose: bool = False,
    again: str = "",
    in_cell: bool = False,
) -> None:
    """Prints the report, as wide and as colourful as the console is, in ASCII where it knows no more. `again` is the
    command that renders it again, or how to get one; below the cell of a notebook there is none."""
    page = Page(console.width, ascii_only=console.options.ascii_only)
    detail = ALL if verbose else _least_detail(prescription, in_cell)
    put_report(page, session, diagnosis, prescription, detail=detail, again=again)
    page.show(console)


def text(session: Session, diagnosis: Diagnosis, prescription: Prescription | None = None, *, again: str = "") -> str:
    """The whole report as a plain text."""
    page = Page(TEXT_WIDTH)
    put_report(page, session, diagnosis, prescription, detail=ALL, again=again)
    return "".join(line.plain.rstrip() + "\n" for line in page.lines)


def put_report(
    page: Page, session: Session, diagnosis: Diagnosis, prescription: Prescription | None, *, detail: Detail, again: str
) -> None:
    page.sentence(diagnosis.verdict, style=f"bold {_colour(diagnosis)}")
    stop = prescription.stop if prescription is not None else ""
    first = "" if stop else first_to_do(diagnosis, prescription)
    if stop:
        page.sentence(stop, style="bold")
    if first:
        page.sentence(first, lead="→ ", style="bold")
    page.line(f"{ending(session.outcome)}: {command_line(session)}", indent=0, style="dim")
    if detail.windows:
        put_windows(page, session)
    put_last_lines(page, session, most=detail.last_lines)
    put_hung(page, session, detail)
    put_step(page, diagnosis, detail)
    put_making(page, diagnosis, detail)
    put_ranks(page, diagnosis, detail)
    put_machines(page, session, detail)
    _put_findings(page, diagnosis.findings, detail, said=first)
    put_remedies(page, prescription, detail)
    put_notes(page, session, diagnosis.cost, detail)
    if again:
        page.copyable(again, lead="Again: ")


def _least_detail(prescription: Prescription | None, in_cell: bool) -> Detail:
    if prescription is None or not helping(prescription):
        return CELL if in_cell else SCREEN
    return CELL_WITH_REMEDIES if in_cell else SCREEN_WITH_REMEDIES


def first_to_do(diagnosis: Diagnosis, prescription: Prescription | None) -> str:
    """The remedy that gains most; where none is known to help, what the heaviest finding says to look at."""
    remedy = first_gain(prescription) if prescription is not None else ""
    return remedy or next((finding.advice for finding in diagnosis.findings if finding.advice), "")


def _colour(diagnosis: Diagnosis) -> str:
    return "" if diagnosis.wait_share is None else heat(diagnosis.wait_share)


def _put_findings(page: Page, findings: list[Finding], detail: Detail, *, said: str) -> None:
    """Each with what shows it and what to look at, but for advice that was `said` at the top already."""
    if not findings:
        return
    left = len(findings) - detail.findings
    page.heading("What to look at", f"and {counted(left, 'finding')} more: {detail.rest}" if left > 0 else "")
    for finding in findings[: detail.findings]:
        weight = f"{share(finding.weight)} of a step  " if finding.weight > 0 else ""
        page.sentence(f"{weight}{finding.text}", lead="  • ")
        if detail.evidence:
            page.sentence(finding.evidence, lead="    ", style="dim")
        if detail.advice and finding.advice and finding.advice != said:
            page.sentence(finding.advice, lead="    → ")
