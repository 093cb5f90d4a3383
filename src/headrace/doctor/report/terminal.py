"""Terminal report: one screen with the verdict, its cause and the best remedies; or, if verbose, the whole view."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from headrace.doctor.measure import WAIT
from headrace.doctor.quantities import ABSENT, counted, duration, percent, times
from headrace.doctor.report.remedy_text import FirstScreen, RemedyRow, RemedyRows, interval, part_line
from headrace.doctor.report.terminal_layout import TerminalPage, TerminalRow, heat
from headrace.doctor.report.view import LoaderView, ReportView, Row, StepSection
from headrace.doctor.session.after_run import DataCheck, DataFault

TEXT_WIDTH = 100
PLACE_ROOM = 14
"""Cells of a row reserved for columns next to a source place."""
REFUSED = "refused"
"""Text in place of the gain of a refuted remedy."""
TITLE = 0.38
"""Maximum share of the page's width for titles next to figures."""
MOST_REMEDIES = 3
MOST_LAST_LINES = 6
"""Lines of a failed command's output, and of a hanging process's stack, on one screen."""


def show(view: ReportView, console: Console, *, verbose: bool = False) -> None:
    """Print the report at the console's width, in ASCII if it must be. Unless `verbose`, it fits about 40 lines."""
    page = TerminalPage(console.width, ascii_only=console.options.ascii_only)
    _put_first(page, view.screen, "bold" if view.waits is None else f"bold {heat(view.waits)}")
    page.line(f"{view.ended}: {view.command}", indent=0, style="dim")
    if view.check is not None:
        _put_check(page, view, view.check)
    else:
        (_put_all if verbose else _put_screen)(page, view)
    if view.again:
        page.copyable(view.again, lead="Again: ")
    page.show(console)


def _put_check(page: TerminalPage, view: ReportView, check: DataCheck) -> None:
    _put_quoted(page, "Last lines of the command", view.last_words[-MOST_LAST_LINES:])
    _put_faults(page, view.faults)
    for title, texts in (("What was looked at", check.looked_at), ("What could not be seen", check.unseen)):
        if texts:
            page.heading(title)
        for text in texts:
            page.sentence(text, lead="  • ")


def _put_screen(page: TerminalPage, view: ReportView) -> None:
    _put_quoted(page, "Last lines of the command", view.last_words[-MOST_LAST_LINES:])
    for title, stack in view.hanging[:1]:
        _put_quoted(page, title, stack[-MOST_LAST_LINES:])
    if view.faults:
        codes = ", ".join(dict.fromkeys(fault.code for fault in view.faults))
        page.sentence(f"Faults of the data: {codes}. `headrace check` says more", style="bold")
    _put_remedies(page, view)
    rest = [counted(len(view.findings), "finding"), counted(len(view.notes), "note")]
    page.line(f"--verbose shows the step, the loader, the machine, {' and '.join(rest)}", indent=0, style="dim")


def _put_all(page: TerminalPage, view: ReportView) -> None:
    _put_quoted(page, "Last lines of the command", view.last_words)
    for title, stack in view.hanging:
        _put_quoted(page, title, stack)
    for step in view.steps:
        _put_step(page, step)
    for loader in view.loaders:
        _put_loader(page, loader)
    _put_ranks(page, view.ranks)
    for machine in view.machines:
        page.heading("Machine", machine.names)
        for text in filter(None, (machine.use, machine.software)):
            page.sentence(text, lead="  ")
    _put_faults(page, view.faults)
    _put_findings(page, view)
    _put_reasons(page, view)
    _put_notes(page, view)


def _put_first(page: TerminalPage, screen: FirstScreen, style: str) -> None:
    page.sentence(screen.sentence, style=style)
    for bullet in screen.bullets:
        page.sentence(bullet, lead="  • ")
    if screen.recommendation is not None:
        page.sentence(screen.recommendation.text, lead="→ ", style="bold")
        if terms := screen.recommendation.terms:
            page.sentence(" · ".join(terms), lead="  ")


def _put_quoted(page: TerminalPage, title: str, lines: Sequence[str]) -> None:
    """Add lines of foreign output."""
    if lines:
        page.heading(title)
        for line in lines:
            page.quote(line)


def _put_faults(page: TerminalPage, faults: Sequence[DataFault]) -> None:
    if faults:
        page.heading("Faults of the data")
    for fault in faults:
        page.sentence(f"{fault.code} ({fault.certainty})  {fault.evidence}", lead="  • ")
        page.sentence(fault.mend, lead="    → ")
        for line in fault.patch.expandtabs().splitlines():
            page.code(line, indent=5)


def _put_step(page: TerminalPage, step: StepSection) -> None:
    page.heading(step.title, " · ".join(step.summary))
    rows = []
    for part in step.parts:
        *figures, gpu = part.cells
        style = heat(part.share or 0.0) if part.label == WAIT else "cyan"
        rows.append(TerminalRow(part.label, figures, part.share, style, gpu))
    page.rows(rows)
    for lead, parts in (("of the wait", step.wait), ("caused by", step.causes)):
        if parts:
            page.sentence(" · ".join(f"{part.label} {part.cells[1]}" for part in parts), lead=f"  {lead}: ")


def _put_loader(page: TerminalPage, loader: LoaderView) -> None:
    """Add stages with their cost, CPU share and number of calls, then source lines."""
    page.heading(loader.title, " · ".join(loader.summary) + ", of which:")
    rows = []
    for stage in loader.stages:
        of_whole, *figures = stage.cells
        units = zip(figures, ("/sample", " CPU", "/batch"), strict=True)
        texts = [f"{figure}{unit}" for figure, unit in units if figure not in ("", ABSENT)]
        rows.append(TerminalRow(stage.label, (of_whole,), stage.share, heat(stage.share or 0.0), ", ".join(texts)))
    page.rows(rows)
    places = [page.shorten(line.label, page.width - PLACE_ROOM, keep="end") for line in loader.lines]
    page.rows([TerminalRow(f"line {at}", line.cells) for at, line in zip(places, loader.lines, strict=True)])
    page.sentence(loader.start_up, lead="  start-up: ")


def _put_ranks(page: TerminalPage, ranks: Sequence[Row]) -> None:
    if not ranks:
        return
    page.heading(f"{len(ranks)} ranks", "how often each is the last to arrive, and what it waits for in a step")
    rows = [TerminalRow("", ("last", "late by", "data", "a peer", "sending"), remark="late because of")]
    rows += [TerminalRow(label, figures, remark=cause) for label, (_, *figures, cause), *_ in ranks]
    page.rows(rows)


def _put_findings(page: TerminalPage, view: ReportView) -> None:
    if view.findings:
        page.heading("What to look at")
    for finding in view.findings:
        weight = f"{percent(finding.weight)} of a step  " if finding.weight > 0 else ""
        page.sentence(f"{weight}{finding.text}", lead="  • ")
        page.sentence(finding.evidence, lead="    ", style="dim")
        if finding.advice:
            page.sentence(finding.advice, lead="    → ")


def _put_notes(page: TerminalPage, view: ReportView) -> None:
    """Add notes. For a note with many lines, such as a traceback, the last line comes first as the summary."""
    if view.notes or view.cost:
        page.heading("Notes")
    for head, text in view.notes:
        lines = text.rstrip().splitlines() or [""]
        page.sentence(f"{head}: {lines[-1]}" if head else lines[-1], lead="  • ")
        for line in lines[:-1]:
            page.quote(line, indent=4)
    if view.cost:
        page.sentence(view.cost, lead="  • ")


# Remedies


def _put_bounds(page: TerminalPage, view: ReportView) -> bool:
    """Add the heading of the remedies with the lower bounds of a step. Return False if there are neither."""
    if not view.bounds and not view.has_remedies:
        return False
    bounds = [*view.bounds]
    bounds += [f"no lower bounds: {view.no_bounds}"] if view.no_bounds else []
    page.heading("What to do", " · ".join(bounds))
    return True


def _put_remedies(page: TerminalPage, view: ReportView) -> None:
    """Add the first remedies, and those that were tried, in the prescription's order and with their numbers."""
    if not _put_bounds(page, view):
        return
    rows = view.remedies
    numbered = list(enumerate(rows.helps, 1))
    first = [(number, row) for number, row in numbered if row.outcome or number <= MOST_REMEDIES][:MOST_REMEDIES]
    shown = [_remedy_row(row, f"{number}. {row.title}") for number, row in first]
    if len(rows.numbers) > 1:
        shown.append(_remedy_row(rows.together, f"{rows.together.title}: {rows.combined}"))
    if len(rows.helps) > len(first):
        shown.append(TerminalRow(f"and {counted(len(rows.helps) - len(first), 'remedy')} more", ("", "", "")))
    page.entries(shown, most_label=round(page.width * TITLE))


def _remedy_row(row: RemedyRow, label: str) -> TerminalRow:
    """Return a remedy's figures. A proof takes the place of the costs, which the whole report shows."""
    remark = "; ".join(filter(None, (row.proved, row.without))) or (f"costs {row.costs}" if row.costs else "")
    prediction = row.prediction
    if prediction is None:
        return TerminalRow(label, (ABSENT, "", ""), remark=remark)
    between = interval(prediction.low_us, prediction.high_us)
    gained = REFUSED if row.is_refused else times(prediction.speedup)
    return TerminalRow(label, (duration(prediction.step_us), f"({between})" if between else "", gained), remark=remark)


def _put_reasons(page: TerminalPage, view: ReportView) -> None:
    """Add all remedies with the reason and the change of each, and those that would not help."""
    if not _put_bounds(page, view):
        return
    rows = view.remedies
    for number, row in enumerate(rows.helps, 1):
        _put_reason(page, number, row)
    _put_together(page, rows)
    for title, why in rows.idle:
        page.sentence(f"{title} – {why}", lead="  would not help: ")


def _put_reason(page: TerminalPage, number: int, row: RemedyRow) -> None:
    page.sentence(f"{row.title}: {row.predicted or 'its gain is unknown'}", lead=f"  {number}. ")
    if row.outcome is not None:
        page.sentence("; ".join(filter(None, (row.proved, row.samples))), lead="     ")
    remedy = row.remedy
    if remedy is None:
        return
    page.sentence(f"{remedy.why} (confidence {remedy.confidence})", lead="     ", style="dim")
    if row.costs:
        page.sentence(f"costs {row.costs}", lead="     ", style="dim")
    for part in remedy.parts:
        page.sentence(part_line(part), lead="     • ", style="dim")
    if remedy.edit is not None:
        for line in remedy.edit.diff.expandtabs().splitlines():
            page.code(line, indent=5)
    elif remedy.hint:
        page.sentence(remedy.hint, lead="     → ")


def _put_together(page: TerminalPage, rows: RemedyRows) -> None:
    whole = rows.together
    text = "; ".join(filter(None, (whole.predicted, whole.proved, whole.samples, whole.without)))
    if text and len(rows.numbers) > 1:
        page.sentence(text, lead=f"  together ({rows.combined}): ")
