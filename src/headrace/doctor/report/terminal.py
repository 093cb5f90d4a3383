"""Terminal report: verdict first, then evidence, then remedies. It shows as many rows of the view as `ReportDetail`."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from headrace.doctor.measure import WAIT
from headrace.doctor.quantities import ABSENT, counted, duration, percent, times
from headrace.doctor.report.first_screen import FirstScreen
from headrace.doctor.report.remedy_text import RemedyRow, RemedyRows, interval, part_line
from headrace.doctor.report.terminal_layout import (
    ALL,
    SCREEN,
    SCREEN_WITH_REMEDIES,
    ReportDetail,
    TerminalPage,
    TerminalRow,
    heat,
)
from headrace.doctor.report.view import FindingRow, LoaderView, ReportView, Row, StepSection

TEXT_WIDTH = 100
PLACE_ROOM = 14
"""Cells of a row reserved for columns next to a source place."""
"""Maximum length of a sample's key, so that its cost stays visible."""
REFUSED = "refused"
"""Text in place of the gain of a refuted remedy."""
TITLE = 0.38
"""Maximum share of the page's width for titles next to figures."""


def show(view: ReportView, console: Console, *, verbose: bool = False) -> None:
    """Print the report with the console's width and colours, in ASCII if the console supports nothing else."""
    page = TerminalPage(console.width, ascii_only=console.options.ascii_only)
    put_report(page, view, ALL if verbose else SCREEN_WITH_REMEDIES if view.remedies.helps else SCREEN)
    page.show(console)


def text(view: ReportView) -> str:
    """Return the whole report as plain text."""
    page = TerminalPage(TEXT_WIDTH)
    put_report(page, view, ALL)
    return "".join(line.plain.rstrip() + "\n" for line in page.lines)


def put_report(page: TerminalPage, view: ReportView, detail: ReportDetail) -> None:
    """Add every section of the report to the page."""
    _put_first(page, view.screen, "bold" if view.waits is None else f"bold {heat(view.waits)}")
    page.line(f"{view.ended}: {view.command}", indent=0, style="dim")
    for lead, said in (("windows: ", view.windows), ("phases: ", view.phases)):
        if detail.windows and said:
            page.sentence(said, lead=lead, style="dim")
    _put_quoted(page, "Last lines of the command", view.last_words, detail)
    for title, stack in view.hanging:
        _put_quoted(page, title, stack, detail)
    for step in view.steps[: detail.budgets]:
        _put_step(page, step, detail)
    for loader in view.loaders[: detail.loaders]:
        _put_loader(page, loader, detail)
    _put_left(page, len(view.loaders) - detail.loaders, "loader", detail)
    _put_ranks(page, view.ranks, detail)
    for machine in view.machines[: detail.machines]:
        page.heading("Machine", machine.names)
        for name, said in machine.lines:
            page.sentence(said, lead=f"  {name:<7} ")
    _put_left(page, len(view.machines) - detail.machines, "machine", detail)
    if view.faults:
        page.heading("Faults of the data", counted(len(view.faults), "kind"))
    for fault in view.faults:
        page.sentence(f"{fault.code} ({fault.certainty})  {fault.evidence}", lead="  • ")
        page.sentence(fault.mend, lead="    → ")
        for line in fault.patch.expandtabs().splitlines():
            page.code(line, indent=5)
    _put_findings(page, view.findings, detail)
    _put_remedies(page, view, detail)
    _put_notes(page, view, detail)
    if view.again:
        page.copyable(view.again, lead="Again: ")


def _put_first(page: TerminalPage, screen: FirstScreen, style: str) -> None:
    page.sentence(screen.sentence, style=style)
    for bullet in screen.bullets:
        page.sentence(bullet, lead="  • ")
    if screen.recommendation is not None:
        page.sentence(screen.recommendation.text, lead="→ ", style="bold")
        if terms := screen.recommendation.terms:
            page.sentence(" · ".join(terms), lead="  ")


def _put_quoted(page: TerminalPage, title: str, lines: Sequence[str], detail: ReportDetail) -> None:
    """Add the last lines of foreign output."""
    if lines:
        page.heading(title)
        for line in lines[-detail.last_lines :]:
            page.quote(line)


def _left(left: int, one: str, detail: ReportDetail) -> str:
    """Return the number of omitted items and how to see them; empty if there are none."""
    return f"and {counted(left, one)} more: {detail.rest}" if left > 0 else ""


def _put_left(page: TerminalPage, left: int, one: str, detail: ReportDetail) -> None:
    if said := _left(left, one, detail):
        page.line(said, style="dim")


def _put_step(page: TerminalPage, step: StepSection, detail: ReportDetail) -> None:
    page.heading(step.title, " · ".join(step.summary))
    rows = []
    for part in step.parts:
        *figures, gpu = part.cells
        style = heat(part.share or 0.0) if part.label == WAIT else "cyan"
        rows.append(TerminalRow(part.label, figures, part.share, style, gpu))
    page.rows(rows)
    for lead, parts in (("of the wait", step.wait[: detail.stages]), ("caused by", step.causes[: detail.causes])):
        if parts:
            page.sentence(" · ".join(f"{part.label} {part.cells[1]}" for part in parts), lead=f"  {lead}: ")


def _put_loader(page: TerminalPage, loader: LoaderView, detail: ReportDetail) -> None:
    """Add stages with their cost, CPU share and number of calls, then source lines."""
    page.heading(loader.title, " · ".join(loader.summary) + ", of which:")
    rows = []
    for stage in loader.stages[: detail.stages]:
        of_whole, *figures = stage.cells
        units = zip(figures, ("/sample", " CPU", "/batch"), strict=True)
        said = [f"{one}{unit}" for one, unit in units if one not in ("", ABSENT)]
        rows.append(TerminalRow(stage.label, (of_whole,), stage.share, heat(stage.share or 0.0), ", ".join(said)))
    if (left := len(loader.stages) - detail.stages) > 0:
        share, us = loader.production.rest(detail.stages)
        rows.append(TerminalRow(f"{left} more", (percent(share),), share, "dim", f"{duration(us)}/sample"))
    page.rows(rows)
    places = [page.shorten(line.label, page.width - PLACE_ROOM, keep="end") for line in loader.lines[: detail.lines]]
    page.rows([TerminalRow(f"line {at}", line.cells) for at, line in zip(places, loader.lines, strict=False)])
    page.sentence(loader.start_up, lead="  start-up: ")


def _put_ranks(page: TerminalPage, ranks: Sequence[Row], detail: ReportDetail) -> None:
    if not ranks:
        return
    page.heading(f"{len(ranks)} ranks", "how often each is the last to arrive, and what it waits for in a step")
    rows = [TerminalRow("", ("last", "late by", "data", "a peer", "sending"), remark="late because of")]
    for label, (_, *figures, cause), _ in ranks[: detail.ranks]:
        rows.append(TerminalRow(label, figures, remark=cause))
    page.rows(rows)
    _put_left(page, len(ranks) - detail.ranks, "rank", detail)


def _put_findings(page: TerminalPage, findings: Sequence[FindingRow], detail: ReportDetail) -> None:
    if findings:
        page.heading("What to look at", _left(len(findings) - detail.findings, "finding", detail))
    for one in findings[: detail.findings]:
        weight = f"{one.weight} of a step  " if one.weight else ""
        page.sentence(f"{weight}{one.text}", lead="  • ")
        page.sentence(one.evidence, lead="    ", style="dim")
        if detail.advice and one.advice:
            page.sentence(one.advice, lead="    → ")


def _put_notes(page: TerminalPage, view: ReportView, detail: ReportDetail) -> None:
    """Add notes. For a note with many lines, such as a traceback, the last line comes first as the summary."""
    if view.notes or view.cost:
        page.heading("Notes", _left(len(view.notes) - detail.notes, "note", detail))
    for head, said in view.notes[: detail.notes]:
        lines = said.rstrip().splitlines() or [""]
        page.sentence(f"{head}: {lines[-1]}" if head else lines[-1], lead="  • ")
        for line in lines[:-1][: detail.note_lines]:
            page.quote(line, indent=4)
    if view.cost:
        page.sentence(view.cost, lead="  • ")


# Remedies


def _put_remedies(page: TerminalPage, view: ReportView, detail: ReportDetail) -> None:
    """Add helpful remedies in the prescription's order, then the others, each with its number."""
    rows = view.remedies
    if not view.bounds and not view.has_remedies:
        return
    bounds = [f"{one.label} {one.cells[0]}" for one in view.bounds if one.bar]
    bounds += [f"no lower bounds: {view.no_bounds}"] if view.no_bounds else []
    page.heading("What to do", " · ".join(bounds))
    first = [(place, row) for place, row in enumerate(rows.helps, 1) if place <= detail.remedies or row.outcome]
    left = _left(len(rows.helps) - len(first), "remedy", detail)
    if detail.reasons:
        _put_reasons(page, first, rows, left)
    else:
        shown = [_remedy_row(row, f"{place}. {row.title}") for place, row in first]
        if len(rows.numbers) > 1:
            shown.append(_remedy_row(rows.together, f"{rows.together.title}: {rows.combined}"))
        if left:
            shown.append(TerminalRow(left, ("", "", "")))
        page.entries(shown, most_label=round(page.width * TITLE))
    for place, (title, why) in enumerate(rows.idle[: detail.idle_remedies], start=1):
        others = len(rows.idle) - place if place == detail.idle_remedies else 0
        more = f" · and {others} more: {detail.rest}" if others > 0 else ""
        page.sentence(f"{title} – {why}{more}", lead="  would not help: ")


def _remedy_row(row: RemedyRow, label: str) -> TerminalRow:
    """Return a remedy's figures. A proof takes the place of the costs, which the whole report shows."""
    remark = "; ".join(filter(None, (row.proved, row.without))) or (f"costs {row.costs}" if row.costs else "")
    prediction = row.prediction
    if prediction is None:
        return TerminalRow(label, (ABSENT, "", ""), remark=remark)
    between = interval(prediction.low_us, prediction.high_us)
    gained = REFUSED if row.is_refused else times(prediction.speedup)
    return TerminalRow(label, (duration(prediction.step_us), f"({between})" if between else "", gained), remark=remark)


def _put_reasons(page: TerminalPage, first: Sequence[tuple[int, RemedyRow]], rows: RemedyRows, left: str) -> None:
    """Add remedies with the reason and the change of each."""
    for place, row in first:
        page.sentence(f"{row.title}: {row.predicted or 'its gain is unknown'}", lead=f"  {place}. ")
        if row.outcome is not None:
            page.sentence("; ".join(filter(None, (row.proved, row.samples))), lead="     ")
        if (own := row.remedy) is None:
            continue
        page.sentence(f"{own.why} (confidence {own.confidence})", lead="     ", style="dim")
        if row.costs:
            page.sentence(f"costs {row.costs}", lead="     ", style="dim")
        for part in own.parts:
            page.sentence(part_line(part), lead="     • ", style="dim")
        if own.edit is not None:
            for line in own.edit.diff.expandtabs().splitlines():
                page.code(line, indent=5)
        elif own.hint:
            page.sentence(own.hint, lead="     → ")
    if left:
        page.line(left, style="dim")
    whole = rows.together
    said = "; ".join(filter(None, (whole.predicted, whole.proved, whole.samples, whole.without)))
    if said and len(rows.numbers) > 1:
        page.sentence(said, lead=f"  together ({rows.combined}): ")
