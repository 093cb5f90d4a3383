"""Terminal report: one screen with the verdict, its cause and the best remedies; or, if verbose, the whole view."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from headrace.doctor.measure import WAIT, Diagnosis, Host, LoaderProduction, RankView, StagePart, StepBudget, TimePart
from headrace.doctor.quantities import ABSENT, counted, duration, number, percent, times
from headrace.doctor.report.remedy_text import FirstScreen, RemedyRow, RemedyRows, interval, part_line
from headrace.doctor.report.run_text import last_words, machine_line, name_text, versions
from headrace.doctor.report.terminal_layout import TerminalPage, TerminalRow, heat
from headrace.doctor.report.view import ReportView
from headrace.doctor.session.after_run import DataCheck, DataFault

TEXT_WIDTH = 100
LEAST_LINE = 0.05
"""Share of batch production from which a line is shown."""
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
    if view.session.check is not None:
        _put_check(page, view, view.session.check)
    else:
        (_put_all if verbose else _put_screen)(page, view)
    if view.again:
        page.copyable(view.again, lead="Again: ")
    page.show(console)


def _put_check(page: TerminalPage, view: ReportView, check: DataCheck) -> None:
    _put_quoted(page, "Last lines of the command", last_words(view.session)[-MOST_LAST_LINES:])
    _put_faults(page, view.session.faults)
    for title, texts in (("What was looked at", check.looked_at), ("What could not be seen", check.unseen)):
        if texts:
            page.heading(title)
        for text in texts:
            page.sentence(text, lead="  • ")


def _put_screen(page: TerminalPage, view: ReportView) -> None:
    _put_quoted(page, "Last lines of the command", last_words(view.session)[-MOST_LAST_LINES:])
    for title, stack in view.hanging[:1]:
        _put_quoted(page, title, stack[-MOST_LAST_LINES:])
    if view.session.faults:
        codes = ", ".join(dict.fromkeys(fault.code for fault in view.session.faults))
        page.sentence(f"Faults of the data: {codes}. `headrace check` says more", style="bold")
    _put_remedies(page, view)
    rest = [counted(len(view.findings), "finding"), counted(len(view.notes), "note")]
    page.line(f"--verbose shows the step, the loader, the machine, {' and '.join(rest)}", indent=0, style="dim")


def _put_all(page: TerminalPage, view: ReportView) -> None:
    _put_quoted(page, "Last lines of the command", last_words(view.session))
    for title, stack in view.hanging:
        _put_quoted(page, title, stack)
    for budget in view.diagnosis.budgets_by_wait:
        _put_step(page, budget, view.diagnosis)
    for loader in view.diagnosis.loaders_by_rank:
        _put_loader(page, loader, view.diagnosis)
    _put_ranks(page, view.ranks)
    for host in view.hosts:
        _put_machine(page, view, host)
    _put_faults(page, view.session.faults)
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


def _put_step(page: TerminalPage, budget: StepBudget, diagnosis: Diagnosis) -> None:
    """Add the parts of a step that took time, with the GPU's figures if measured, and those of its wait."""
    summary = [f"{duration(budget.mean_us)} on average", f"median {duration(budget.median_us)}"]
    summary += [f"95 % below {duration(budget.p95_us)}", counted(budget.steps, budget.unit)]
    if budget.unit == "step" and budget.micro_batches > 1:
        summary.append(f"{number(budget.micro_batches)} batches a step")
    by = "" if budget.unit == "step" else f" (by {budget.unit})"
    page.heading(f"{_step_title(budget, diagnosis)}{by}", " · ".join(summary))
    cpu, gpu = ({part.name: part for part in parts or []} for parts in (budget.parts, budget.device))
    rows = []
    for name in {**cpu, **gpu}:
        on_cpu, on_gpu = cpu.get(name), gpu.get(name)
        if any(part and part.us for part in (on_cpu, on_gpu)):
            figures = (ABSENT, ABSENT) if on_cpu is None else (duration(on_cpu.us), percent(on_cpu.share))
            share = None if on_cpu is None else on_cpu.share
            remark = "" if budget.device is None else f"GPU {ABSENT}"
            remark = f"GPU {duration(on_gpu.us)}, {percent(on_gpu.share)}" if on_gpu else remark
            rows.append(TerminalRow(name, figures, share, heat(share or 0.0) if name == WAIT else "cyan", remark))
    page.rows(rows)
    for lead, splits in (("of the wait", diagnosis.waits), ("caused by", diagnosis.causes)):
        parts = [part for one in splits if one.pid == budget.pid for part in one.parts if part.share > 0]
        if parts:
            page.sentence(" · ".join(map(_shared, sorted(parts, key=lambda part: -part.share))), lead=f"  {lead}: ")


def _step_title(budget: StepBudget, diagnosis: Diagnosis) -> str:
    """Return a title with the rank if there are several, and the process if several train the same rank in turn."""
    if len(diagnosis.budgets) == 1:
        return "Step"
    same = [other for other in diagnosis.budgets if other.rank == budget.rank]
    return f"Rank {budget.rank}" if len(same) == 1 else f"Process {budget.pid}, rank {budget.rank}"


def _shared(part: TimePart) -> str:
    return f"{name_text(part.name)} {percent(part.share)}"


def _put_loader(page: TerminalPage, loader: LoaderProduction, diagnosis: Diagnosis) -> None:
    """Add stages with their cost, CPU share and number of calls, then source lines."""
    ranks = {budget.pid: budget.rank for budget in diagnosis.budgets}
    where = [f"rank {ranks[loader.trainer]}"] if len(ranks) > 1 and loader.trainer in ranks else []
    where += [f"loader {loader.loader}"] if len(diagnosis.batch_production) > max(len(ranks), 1) else []
    who = counted(loader.workers, "worker") if loader.workers else "No workers"
    busy = f"busy {percent(loader.busy)} of the time" if loader.workers else "made in the training thread"
    summary = [busy, f"{number(loader.cores)} cores used", counted(loader.batches, "batch")]
    summary += [f"{duration(loader.batch_us)} a batch, of which:"]
    page.heading(f"{who} ({', '.join(where)})" if where else who, " · ".join(summary))
    page.rows([_stage_row(stage) for stage in loader.stages])
    lines = [line for line in loader.lines if line.share >= LEAST_LINE]
    places = [page.shorten(line.place, page.width - PLACE_ROOM, keep="end") for line in lines]
    page.rows([TerminalRow(f"line {at}", (percent(line.share),)) for at, line in zip(places, lines, strict=True)])
    start_up = f"{duration(loader.start_up_us)} to start, {duration(loader.first_batch_us)} to the first batch"
    again = " (new workers each time)" if loader.respawned else ""
    page.sentence(f"{start_up}, {counted(loader.passes, 'pass')}{again}", lead="  start-up: ")


def _stage_row(stage: StagePart) -> TerminalRow:
    figures = (duration(stage.wall_us), percent(stage.computing), number(stage.calls) if stage.calls > 0 else "")
    units = zip(figures, ("/sample", " CPU", "/batch"), strict=True)
    remark = ", ".join(f"{figure}{unit}" for figure, unit in units if figure not in ("", ABSENT))
    label = f"{stage.category} {stage.label}".rstrip()
    return TerminalRow(label, (percent(stage.share),), stage.share, heat(stage.share), remark)


def _put_ranks(page: TerminalPage, ranks: Sequence[RankView]) -> None:
    if not ranks:
        return
    page.heading(f"{len(ranks)} ranks", "how often each is the last to arrive, and what it waits for in a step")
    rows = [TerminalRow("", ("last", "late by", "data", "a peer", "sending"), remark="late because of")]
    for one in ranks:
        times_us = (one.lateness_us, one.data_wait_us, one.peer_wait_us, one.collective_us)
        figures = (percent(one.late), *map(duration, times_us))
        rows.append(TerminalRow(f"rank {one.rank}", figures, remark=name_text(one.cause or "")))
    page.rows(rows)


def _put_machine(page: TerminalPage, view: ReportView, host: Host) -> None:
    """Add the names of a machine, its cores and memory with what was used of them, and its software."""
    names = filter(None, (host.machine.host, host.machine.facts.get("cpu_model")))
    page.heading("Machine", " · ".join(map(str, names)))
    known = versions(view.session, host.trainers[0]) if host.trainers else {}
    software = ", ".join(f"{name} {version}" for name, version in known.items())
    for text in filter(None, (machine_line(host), software)):
        page.sentence(text, lead="  ")


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
    if view.notes:
        page.heading("Notes")
    for head, text in view.notes:
        lines = text.rstrip().splitlines() or [""]
        page.sentence(f"{head}: {lines[-1]}" if head else lines[-1], lead="  • ")
        for line in lines[:-1]:
            page.quote(line, indent=4)


# Remedies


def _put_bounds(page: TerminalPage, view: ReportView) -> bool:
    """Add the heading of the remedies with the lower bounds of a step. Return False if there are neither."""
    if not (view.bounds or view.remedies.helps or view.remedies.idle):
        return False
    page.heading("What to do", " · ".join(view.bounds))
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
    for place, row in enumerate(rows.helps, 1):
        _put_reason(page, place, row)
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
