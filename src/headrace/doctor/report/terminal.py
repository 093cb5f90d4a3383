"""The report for people: the verdict first, what to do next, then the evidence, and how to render it again."""

from __future__ import annotations

from rich.console import Console

from headrace.doctor.analyse.diagnosis import Diagnosis, Finding
from headrace.doctor.session.model import Session

from .detail import ALL, SCREEN, Detail
from .ending import command_line, ending, put_last_lines
from .figures import counted, share
from .machine import put_machines
from .making import put_making
from .notes import put_hung, put_notes
from .page import Page
from .ranks import put_ranks
from .step import heat, put_step

TEXT_WIDTH = 100


def show(session: Session, diagnosis: Diagnosis, console: Console, verbose: bool = False, again: str = "") -> None:
    """Prints the report, as wide and as colourful as the console is, in ASCII where it knows no more. `again` is the
    command that renders it again, or how to get one."""
    page = Page(console.width, ascii_only=console.options.ascii_only)
    put_report(page, session, diagnosis, detail=ALL if verbose else SCREEN, again=again)
    page.show(console)


def text(session: Session, diagnosis: Diagnosis, *, again: str = "") -> str:
    """The whole report as a plain text."""
    page = Page(TEXT_WIDTH)
    put_report(page, session, diagnosis, detail=ALL, again=again)
    return "".join(line.plain.rstrip() + "\n" for line in page.lines)


def put_report(page: Page, session: Session, diagnosis: Diagnosis, *, detail: Detail, again: str) -> None:
    page.sentence(diagnosis.verdict, style=f"bold {_colour(diagnosis)}")
    if diagnosis.findings:
        page.sentence(diagnosis.findings[0].advice, lead="→ ", style="bold")
    page.line(f"{ending(session.outcome)}: {command_line(session)}", indent=0, style="dim")
    put_last_lines(page, session, most=detail.last_lines)
    put_hung(page, session, detail)
    put_step(page, diagnosis, detail)
    put_making(page, diagnosis, detail)
    put_ranks(page, diagnosis, most=detail.ranks)
    put_machines(page, session, most=detail.machines)
    _put_findings(page, diagnosis.findings, most=detail.findings)
    put_notes(page, session, diagnosis.cost, detail)
    if again:
        page.copyable(again, lead="Again: ")


def _colour(diagnosis: Diagnosis) -> str:
    return "" if diagnosis.wait_share is None else heat(diagnosis.wait_share)


def _put_findings(page: Page, findings: list[Finding], *, most: int) -> None:
    """The first one's advice stands at the top already; here it comes with what shows it."""
    if not findings:
        return
    page.heading("What to look at")
    for finding in findings[:most]:
        weight = f"{share(finding.weight)}  " if finding.weight > 0 else ""
        page.sentence(f"{weight}{finding.text}", lead="  • ")
        page.sentence(finding.evidence, lead="    ", style="dim")
        if finding is not findings[0]:
            page.sentence(finding.advice, lead="    → ")
    if len(findings) > most:
        page.line(f"and {counted(len(findings) - most, 'finding')} more: --verbose", style="dim")
