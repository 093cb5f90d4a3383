"""Terminal report: verdict first, then evidence, then remedies."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from headrace.doctor.causes import Prescription, hanging
from headrace.doctor.measure import (
    Diagnosis,
    Finding,
    LoaderProduction,
    ProbeCost,
    StepBudget,
    TimePart,
    phases_text,
)
from headrace.doctor.quantities import counted, duration, number, percent
from headrace.doctor.report.first_screen import FirstScreen, first_screen
from headrace.doctor.report.remedy_text import RemedyRow, bound_rows, helping, remedy_rows
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
    window_text,
)
from headrace.doctor.report.terminal_layout import (
    ALL,
    CELL,
    CELL_WITH_REMEDIES,
    SCREEN,
    SCREEN_WITH_REMEDIES,
    ReportDetail,
    TerminalPage,
    TerminalRow,
)
from headrace.doctor.session.after_run import DataFault
from headrace.doctor.session.model import Session

TEXT_WIDTH = 100
WAIT = "data wait"
HOT, WARM = 0.3, 0.1
"""Shares of a step from which waiting is shown in red and in yellow."""
SLOW = 2.0
"""Multiple of the median from which a sample counts as slow."""
PLACE_ROOM = 14
"""Cells of a row reserved for columns next to a source place."""
KEY_CELLS = 40
"""Maximum length of a sample's key, so that its cost stays visible."""
REFUSED = "refused"
"""Text in place of the gain of a refuted remedy."""
TITLE = 0.38
"""Maximum share of the page's width for titles next to figures."""


def show(
    session: Session,
    diagnosis: Diagnosis,
    console: Console,
    prescription: Prescription | None = None,
    verbose: bool = False,
    again: str = "",
    in_cell: bool = False,
) -> None:
    """Print the report with the console's width and colours, in ASCII if the console supports nothing else.

    `again` is the command that renders the report again, or how to get one. It is empty below a notebook cell.
    """
    page = TerminalPage(console.width, ascii_only=console.options.ascii_only)
    detail, with_remedies = (CELL, CELL_WITH_REMEDIES) if in_cell else (SCREEN, SCREEN_WITH_REMEDIES)
    if verbose:
        detail = ALL
    elif prescription is not None and helping(prescription):
        detail = with_remedies
    put_report(page, session, diagnosis, prescription, detail=detail, again=again)
    page.show(console)


def text(session: Session, diagnosis: Diagnosis, prescription: Prescription | None = None, *, again: str = "") -> str:
    """Return the whole report as plain text."""
    page = TerminalPage(TEXT_WIDTH)
    put_report(page, session, diagnosis, prescription, detail=ALL, again=again)
    return "".join(line.plain.rstrip() + "\n" for line in page.lines)


def put_report(
    page: TerminalPage,
    session: Session,
    diagnosis: Diagnosis,
    prescription: Prescription | None,
    *,
    detail: ReportDetail,
    again: str,
) -> None:
    """Add every section of the report to the page."""
    screen = first_screen(diagnosis, prescription)
    _put_first(page, screen, diagnosis)
    page.line(f"{ending(session.outcome)}: {command_line(session)}", indent=0, style="dim")
    if detail.windows and (windows := window_text(session)):
        page.sentence(windows, lead="windows: ", style="dim")
    if detail.windows and (phases := phases_text(session)):
        page.sentence(phases, lead="phases: ", style="dim")
    _put_quoted(page, "Last lines of the command", last_words(session), detail)
    for process, stack in hanging(session):
        _put_quoted(page, f"Process {process.pid} hangs here", stack.rstrip().splitlines(), detail)
    _put_steps(page, diagnosis, detail)
    _put_loaders(page, diagnosis, detail)
    _put_ranks(page, diagnosis, detail)
    _put_machines(page, session, detail)
    _put_faults(page, session.faults)
    _put_findings(page, diagnosis.findings, detail, said=screen)
    _put_remedies(page, prescription, detail)
    _put_notes(page, session, diagnosis.cost, screen, detail)
    if again:
        page.copyable(again, lead="Again: ")


def _put_first(page: TerminalPage, screen: FirstScreen, diagnosis: Diagnosis) -> None:
    waits = diagnosis.wait_share if diagnosis.data_share is None else diagnosis.data_share
    page.sentence(screen.sentence, style="bold" if waits is None else f"bold {heat(waits)}")
    for bullet in screen.bullets:
        page.sentence(bullet, lead="  • ")
    if screen.recommendation is not None:
        page.sentence(screen.recommendation.text, lead="→ ", style="bold")
        if terms := screen.recommendation.terms:
            page.sentence(" · ".join(terms), lead="  ")


def waiting_most(diagnosis: Diagnosis) -> list[StepBudget]:
    """Return the budgets of all ranks, longest data wait first. The report is about the first rank."""
    return sorted(diagnosis.budgets, key=lambda budget: (-budget.share(WAIT), budget.rank))


def heat(of_whole: float) -> str:
    """Return the colour for a share that should be small."""
    return "red" if of_whole >= HOT else "yellow" if of_whole >= WARM else "green"


def _put_quoted(page: TerminalPage, title: str, lines: Sequence[str], detail: ReportDetail) -> None:
    """Add the last lines of foreign output."""
    if lines:
        page.heading(title)
        for line in lines[-detail.last_lines :]:
            page.quote(line)


def _put_left(page: TerminalPage, left: int, one: str, detail: ReportDetail) -> None:
    """Add the number of omitted items and how to see them."""
    if left > 0:
        page.line(f"and {counted(left, one)} more: {detail.rest}", style="dim")


# The step


def _put_steps(page: TerminalPage, diagnosis: Diagnosis, detail: ReportDetail) -> None:
    """Add the budgets of the first ranks, each with the parts and causes of its wait."""
    waits = {wait.pid: wait.parts for wait in diagnosis.waits}
    causes = {cause.pid: cause.parts for cause in diagnosis.causes}
    for budget in waiting_most(diagnosis)[: detail.budgets]:
        name = _budget_name(budget, diagnosis)
        several = budget.unit == "step" and budget.micro_batches > 1
        half = "" if budget.mean_half_us is None else f" ± {duration(budget.mean_half_us)}"
        summary = [
            f"{duration(budget.mean_us)}{half} on average",
            f"median {duration(budget.median_us)}",
            f"95 % below {duration(budget.p95_us)}",
            counted(budget.steps, budget.unit),
            *([f"{number(budget.micro_batches)} batches a step"] if several else []),
        ]
        page.heading(name if budget.unit == "step" else f"{name} (by {budget.unit})", " · ".join(summary))
        cpu = {part.name: part for part in budget.parts}
        gpu = {part.name: part for part in budget.device or []}
        rows = [_part_row(name, cpu.get(name), gpu.get(name), budget.device is not None) for name in {**cpu, **gpu}]
        page.rows([row for row in rows if row is not None])
        for lead, parts, most in (
            ("of the wait", waits.get(budget.pid, []), detail.stages),
            ("caused by", causes.get(budget.pid, []), detail.causes),
        ):
            heaviest = sorted((part for part in parts if part.share > 0), key=lambda part: -part.share)[:most]
            if heaviest:
                shown = [f"{name_text(part.name)} {percent(part.share)}" for part in heaviest]
                page.sentence(" · ".join(shown), lead=f"  {lead}: ")


def _budget_name(budget: StepBudget, diagnosis: Diagnosis) -> str:
    """Return a name with the rank if there are several, and the process if several train the same rank in turn."""
    if len(diagnosis.budgets) == 1:
        return "Step"
    same = [other for other in diagnosis.budgets if other.rank == budget.rank]
    return f"Rank {budget.rank}" if len(same) == 1 else f"Process {budget.pid}, rank {budget.rank}"


def _part_row(name: str, cpu: TimePart | None, gpu: TimePart | None, sees_gpu: bool) -> TerminalRow | None:
    """Return the row of a part that took time, with the GPU's view of the part if measured."""
    if not any(part and part.us for part in (cpu, gpu)):
        return None
    us, of_whole = (None, None) if cpu is None else (cpu.us, cpu.share)
    return TerminalRow(
        label=name,
        cells=(duration(us), percent(of_whole)),
        share=of_whole,
        style=heat(max(part.share for part in (cpu, gpu) if part)) if name == WAIT else "cyan",
        remark=f"GPU {duration(gpu.us)}, {percent(gpu.share)}" if gpu else "GPU –" if sees_gpu else "",
    )


# Workers and ranks


def _put_loaders(page: TerminalPage, diagnosis: Diagnosis, detail: ReportDetail) -> None:
    """Add the loaders: first those of the rank that waits longest, and of these the busiest first."""
    ranks = {budget.pid: budget.rank for budget in waiting_most(diagnosis)}
    order = {pid: place for place, pid in enumerate(ranks)}
    loaders = sorted(
        diagnosis.batch_production, key=lambda one: (order.get(one.trainer, len(order)), -one.batches * one.batch_us)
    )
    for loader in loaders[: detail.loaders]:
        where = [f"rank {ranks[loader.trainer]}"] if len(ranks) > 1 and loader.trainer in ranks else []
        where += [f"loader {loader.loader}"] if len(loaders) > max(len(ranks), 1) else []
        who = counted(loader.workers, loader.makers) if loader.workers else "No workers"
        summary = [
            f"busy {percent(loader.busy)} of the time" if loader.workers else "made in the training thread",
            f"{number(loader.cores)} cores used",
            counted(loader.batches, "batch"),
            f"{duration(loader.batch_us)} a batch, of which:",
        ]
        page.heading(f"{who} ({', '.join(where)})" if where else who, " · ".join(summary))
        _put_production(page, loader, detail)
        page.sentence(start_up_text(loader), lead="  start-up: ")
    _put_left(page, len(loaders) - detail.loaders, "loader", detail)


def _put_production(page: TerminalPage, loader: LoaderProduction, detail: ReportDetail) -> None:
    """Add stages with their cost, CPU share and number of calls, then source lines and slow samples."""
    rows = []
    stages = sorted(loader.stages, key=lambda stage: -stage.share)
    for stage in stages[: detail.stages]:
        calls = f"{number(stage.calls)}/batch" if stage.calls > 0 else ""
        cpu = computing_share(stage)
        computing = "" if cpu is None else f"{percent(cpu)} CPU"
        remark = ", ".join(filter(None, (f"{duration(stage.wall_us)}/sample", computing, calls)))
        rows.append(TerminalRow(stage_text(stage), (percent(stage.share),), stage.share, heat(stage.share), remark))
    if rest := stages[detail.stages :]:
        of_whole = sum(stage.share for stage in rest)
        time = f"{duration(sum(stage.wall_us for stage in rest))}/sample"
        rows.append(TerminalRow(f"{len(rest)} more", (percent(of_whole),), of_whole, "dim", time))
    page.rows(rows)
    lines = loader.lines[: detail.lines]
    places = [page.shorten(line.place, page.width - PLACE_ROOM, keep="end") for line in lines]
    page.rows([TerminalRow(f"line {at}", (percent(line.share),)) for at, line in zip(places, lines, strict=True)])
    for slow in [one for one in loader.slow if one.times >= SLOW][: detail.slow]:
        key, stage_name = page.shorten(slow.key, KEY_CELLS), name_text(slow.stage)
        page.line(
            f"slow sample {key}: {duration(slow.wall_us)}, {number(slow.times)} × the median, most in {stage_name}"
        )


def _put_ranks(page: TerminalPage, diagnosis: Diagnosis, detail: ReportDetail) -> None:
    """Add the ranks, most often late first; nothing for a single rank."""
    if len(diagnosis.ranks) < 2:
        return
    ranks = latest_ranks(diagnosis)
    page.heading(f"{len(ranks)} ranks", "how often each is the last to arrive, and what it waits for in a step")
    rows = [TerminalRow("", ("last", "late by", "data", "a peer", "sending"), remark="late because of")]
    for rank in ranks[: detail.ranks]:
        times = (rank.lateness_us, rank.data_wait_us, rank.peer_wait_us, rank.collective_us)
        cells = (percent(rank.late), *map(duration, times))
        rows.append(TerminalRow(f"rank {rank.rank}", cells, remark=name_text(rank.cause or "")))
    page.rows(rows)
    _put_left(page, len(ranks) - detail.ranks, "rank", detail)


# The machine, findings and notes


def _put_machines(page: TerminalPage, session: Session, detail: ReportDetail) -> None:
    for machine in session.machines[: detail.machines]:
        page.heading("Machine", " · ".join(machine_names(machine)))
        for name, said in machine_lines(machine):
            page.sentence(said, lead=f"  {name:<7} ")
    _put_left(page, len(session.machines) - detail.machines, "machine", detail)


def _put_faults(page: TerminalPage, faults: list[DataFault]) -> None:
    """Add faults of the data, each with its mend."""
    if faults:
        page.heading("Faults of the data", counted(len(faults), "kind"))
    for fault in faults:
        page.sentence(f"{fault.code} ({fault.certainty})  {fault.evidence}", lead="  • ")
        page.sentence(fault.mend, lead="    → ")


def _put_findings(page: TerminalPage, findings: list[Finding], detail: ReportDetail, *, said: FirstScreen) -> None:
    """Add findings with evidence and advice, without advice that `said` already shows at the top."""
    first = "" if said.recommendation is None else said.recommendation.text
    if not findings:
        return
    left = len(findings) - detail.findings
    page.heading("What to look at", f"and {counted(left, 'finding')} more: {detail.rest}" if left > 0 else "")
    for finding in findings[: detail.findings]:
        weight = f"{percent(finding.weight)} of a step  " if finding.weight > 0 else ""
        page.sentence(f"{weight}{finding.text}", lead="  • ")
        if detail.evidence:
            page.sentence(finding.evidence, lead="    ", style="dim")
        if detail.advice and finding.advice and finding.advice != first:
            page.sentence(finding.advice, lead="    → ")


def _put_notes(
    page: TerminalPage, session: Session, cost: ProbeCost, screen: FirstScreen, detail: ReportDetail
) -> None:
    """Add statements that do not fit on the first screen, then notes.

    For a note with many lines, such as a traceback, the last line comes first as the summary.
    """
    notes = [*(("", text) for text in screen.rest), *note_texts(session)]
    is_measured = cost.evidence_bytes > 0
    if notes or is_measured:
        left = len(notes) - detail.notes
        page.heading("Notes", f"and {counted(left, 'note')} more: {detail.rest}" if left > 0 else "")
    for head, said in notes[: detail.notes]:
        lines = said.rstrip().splitlines() or [""]
        page.sentence(head + lines[-1], lead="  • ")
        for line in lines[:-1][: detail.note_lines]:
            page.quote(line, indent=4)
    if is_measured:
        page.sentence(cost_text(cost), lead="  • ")


# Remedies


def _put_remedies(page: TerminalPage, prescription: Prescription | None, detail: ReportDetail) -> None:
    """Add helpful remedies in the prescription's order, then the others, each with its number."""
    if prescription is None or (prescription.lower_bounds is None and not prescription.remedies):
        return
    bounds = f"no lower bounds: {prescription.why_no_windows}" if prescription.why_no_windows else ""
    if prescription.lower_bounds is not None:
        baseline, *others = bound_rows(prescription.lower_bounds)
        said = (baseline, ("again", prescription.again_us), *others)
        known = [f"{name} {duration(us)}" for name, us in said if us is not None]
        bounds = " · ".join([*known, *([bounds] if bounds else [])])
    page.heading("What to do", bounds)
    rows = remedy_rows(prescription)
    first = [(place, row) for place, row in enumerate(rows.helps, 1) if place <= detail.remedies or row.outcome]
    left = len(rows.helps) - len(first)
    if detail.reasons:
        for place, row in first:
            _put_whole(page, row, place)
        _put_left(page, left, "remedy", detail)
        whole = rows.together
        said_of_all = "; ".join(filter(None, (whole.predicted, whole.proved, whole.samples, whole.without)))
        if said_of_all and len(rows.numbers) > 1:
            page.sentence(said_of_all, lead=f"  together ({_numbers(rows.numbers)}): ")
    else:
        shown = [_remedy_row(row, f"{place}. {row.title}") for place, row in first]
        if len(rows.numbers) > 1:
            shown.append(_remedy_row(rows.together, f"{rows.together.title}: {_numbers(rows.numbers)}"))
        if left > 0:
            shown.append(TerminalRow(f"and {counted(left, 'remedy')} more: {detail.rest}", ("", "", "")))
        page.entries(shown, most_label=round(page.width * TITLE))
    for place, (title, why) in enumerate(rows.idle[: detail.idle_remedies], start=1):
        left = len(rows.idle) - place if place == detail.idle_remedies else 0
        more = f" · and {left} more: {detail.rest}" if left > 0 else ""
        page.sentence(f"{title} – {why}{more}", lead="  would not help: ")


def _numbers(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))


def _remedy_row(row: RemedyRow, label: str) -> TerminalRow:
    """Return a remedy's figures. A proof takes the place of the costs, which the whole report shows."""
    remark = "; ".join(filter(None, (row.proved, row.without))) or (f"costs {row.costs}" if row.costs else "")
    gained = REFUSED if row.is_refused and row.prediction is not None else row.speedup
    interval = f"({row.interval})" if row.interval else ""
    return TerminalRow(label, (row.step, interval, gained), remark=remark)


def _put_whole(page: TerminalPage, row: RemedyRow, place: int) -> None:
    page.sentence(f"{row.title}: {row.predicted or 'its gain is unknown'}", lead=f"  {place}. ")
    if row.outcome is not None:
        page.sentence("; ".join(filter(None, (row.proved, row.samples))), lead="     ")
    if row.why:
        page.sentence(f"{row.why} (confidence {row.confidence})", lead="     ", style="dim")
    if row.costs:
        page.sentence(f"costs {row.costs}", lead="     ", style="dim")
    for text in row.part_lines:
        page.sentence(text, lead="     • ", style="dim")
    if row.edit is not None:
        for line in row.edit.diff.expandtabs().splitlines():
            page.code(line, indent=5)
    elif row.hint:
        page.sentence(row.hint, lead="     → ")
