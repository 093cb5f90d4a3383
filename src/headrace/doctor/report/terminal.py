"""The terminal report: the verdict first, then what to do, then the evidence."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from headrace.doctor.causes.remedy import Prescription
from headrace.doctor.measure.diagnosis import (
    Diagnosis,
    Finding,
    LoaderProduction,
    RankView,
    StagePart,
    StepBudget,
    TimePart,
)
from headrace.doctor.report.escaping import counted, duration, number, share
from headrace.doctor.report.remedy_text import RemedyRow, RemedyRows, first_gain, floor_rows, helping, remedy_rows
from headrace.doctor.report.run_text import command_line, ending, put_hung, put_last_lines, put_machines, put_notes
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
from headrace.doctor.session.model import MeasuredWindow, Session, Trainer

# -- from doctor/report/remedies.py: What to do about it, on a page: the floors, what helps, and what would not.


REFUSED = "refused"
"""In place of a gain that a proof spoke against."""
TITLE = 0.36
"""Share of the page's width that titles may take where figures stand beside them."""


def put_remedies(page: TerminalPage, prescription: Prescription | None, detail: ReportDetail) -> None:
    """Those that help, the most gain first, then those that would not, each with its number."""
    if prescription is None or (prescription.floors is None and not prescription.remedies):
        return
    page.heading("What to do", _floors(prescription))
    rows = remedy_rows(prescription)
    if detail.reasons:
        for place, row in _shown(rows.helps, detail.remedies):
            _put_whole(page, row, place)
        _put_left(page, len(rows.helps) - len(_shown(rows.helps, detail.remedies)), detail)
        _put_together(page, rows)
    else:
        _put_rows(page, rows, most=detail.remedies)
    _put_idle(page, rows.idle, detail)


def _floors(prescription: Prescription) -> str:
    """A line: what the step is, and what it would be at best. Why there is none, where there is none."""
    if prescription.floors is None:
        why = prescription.why_no_windows
        return f"no floors were measured: {why}" if why else ""
    observed, *floors = floor_rows(prescription.floors)
    rows = [(name, us) for name, us in (observed, ("again", prescription.again_us), *floors) if us is not None]
    return " · ".join(f"{name} {duration(us)}" for name, us in rows)


def _put_rows(page: TerminalPage, rows: RemedyRows, *, most: int) -> None:
    first = _shown(rows.helps, most)
    shown = [_figures(row, row.title) for _, row in first]
    if len(rows.helps) > 1:
        left = len(rows.helps) - len(first)
        shown.append(_figures(rows.together, f"Together with {left} more" if left > 0 else "Together"))
    page.entries(shown, most_label=round(page.width * TITLE))


def _shown(helps: Sequence[RemedyRow], most: int) -> list[tuple[int, RemedyRow]]:
    """The first ones, and all that were tried, each with its number."""
    return [(place, row) for place, row in enumerate(helps, start=1) if place <= most or row.outcome is not None]


def _figures(row: RemedyRow, label: str) -> TerminalRow:
    """What a proof said says more than what it costs, which then waits for the whole report."""
    remark = "; ".join(filter(None, (row.proved, row.without))) or (f"costs {row.costs}" if row.costs else "")
    gained = REFUSED if row.is_refused and row.prediction is not None else row.speedup
    interval = f"({row.interval})" if row.interval else ""
    return TerminalRow(label, (row.step, interval, gained), remark=remark)


def _put_whole(page: TerminalPage, row: RemedyRow, place: int) -> None:
    page.sentence(f"{row.title}: {row.predicted or 'what it gains is not known'}", lead=f"  {place}. ")
    if row.outcome is not None:
        page.sentence("; ".join(filter(None, (row.proved, row.samples))), lead="     ")
    page.sentence(f"{row.why} (confidence {row.confidence})", lead="     ", style="dim")
    if row.costs:
        page.sentence(f"costs {row.costs}", lead="     ", style="dim")
    if row.edit is not None:
        for line in row.edit.diff.expandtabs().splitlines():
            page.code(line, indent=5)
    elif row.hint:
        page.sentence(row.hint, lead="     → ")


def _put_left(page: TerminalPage, left: int, detail: ReportDetail) -> None:
    if left > 0:
        page.line(f"and {left} more: {detail.rest}", style="dim")


def _put_together(page: TerminalPage, rows: RemedyRows) -> None:
    """All that go together, where that is more than one."""
    row = rows.together
    said = "; ".join(filter(None, (row.predicted, row.proved, row.samples, row.without)))
    if said:
        page.sentence(said, lead="  together: ")


def _put_idle(page: TerminalPage, idle: list[tuple[str, str]], detail: ReportDetail) -> None:
    most = detail.idle_remedies
    for place, (title, why) in enumerate(idle[:most], start=1):
        left = len(idle) - place if place == most else 0
        more = f" · and {left} more: {detail.rest}" if left > 0 else ""
        page.sentence(f"{title} – {why}{more}", lead="  would not help: ")


# -- from doctor/report/step.py: The step's budget and the split of the wait, on a page.


WAIT = "data wait"
HOT, WARM = 0.3, 0.1
"""Shares of a step from which waiting is shown in red, in yellow."""


def put_step(page: TerminalPage, diagnosis: Diagnosis, detail: ReportDetail) -> None:
    """The budgets of the first ranks, each followed by what its wait consists of and comes from."""
    waits = {wait.pid: wait.parts for wait in diagnosis.waits}
    causes = {cause.pid: cause.parts for cause in diagnosis.causes}
    for budget in waiting_most(diagnosis)[: detail.budgets]:
        name = _part_name(budget, diagnosis)
        page.heading(name if budget.unit == "step" else f"{name} (by {budget.unit})", _step_summary(budget))
        _put_parts(page, budget)
        _put_shares(page, waits.get(budget.pid, []), lead="  of the wait: ", most=detail.stages)
        _put_shares(page, causes.get(budget.pid, []), lead="  caused by: ", most=detail.causes)


def _part_name(budget: StepBudget, diagnosis: Diagnosis) -> str:
    """The rank, where there are several; the process, where a rank is trained by several, one after the other."""
    if len(diagnosis.budgets) == 1:
        return "Step"
    same = [other for other in diagnosis.budgets if other.rank == budget.rank]
    return f"Rank {budget.rank}" if len(same) == 1 else f"Process {budget.pid}, rank {budget.rank}"


def waiting_most(diagnosis: Diagnosis) -> list[StepBudget]:
    """The budgets of all ranks; that of the one which waits longest for data, and so is spoken of, first."""
    return sorted(diagnosis.budgets, key=lambda budget: (-budget.share(WAIT), budget.rank))


def heat(of_whole: float) -> str:
    """The colour of a share that had better be small."""
    return "red" if of_whole >= HOT else "yellow" if of_whole >= WARM else "green"


def _step_summary(budget: StepBudget) -> str:
    texts = [
        f"{duration(budget.mean_us)} on average",
        f"median {duration(budget.median_us)}",
        f"95 % below {duration(budget.p95_us)}",
        counted(budget.steps, budget.unit),
    ]
    if budget.unit == "step" and budget.micro_batches > 1:
        texts.append(f"{number(budget.micro_batches)} batches a step")
    return " · ".join(texts)


def _put_parts(page: TerminalPage, budget: StepBudget) -> None:
    """One row a part that took time. As the GPU sees it stands beside it, where that was measured."""
    cpu = {part.name: part for part in budget.parts}
    gpu = {part.name: part for part in budget.device or []}
    names = [*cpu, *(name for name in gpu if name not in cpu)]
    rows = [_part_row(name, cpu.get(name), gpu.get(name), sees_gpu=budget.device is not None) for name in names]
    page.rows([row for row in rows if row is not None])


def _part_row(name: str, cpu: TimePart | None, gpu: TimePart | None, *, sees_gpu: bool) -> TerminalRow | None:
    if not any(part and part.us for part in (cpu, gpu)):
        return None
    us, of_whole = (None, None) if cpu is None else (cpu.us, cpu.share)
    return TerminalRow(
        label=name,
        cells=(duration(us), share(of_whole)),
        share=of_whole,
        style=heat(max(part.share for part in (cpu, gpu) if part)) if name == WAIT else "cyan",
        remark=f"GPU {duration(gpu.us)}, {share(gpu.share)}" if gpu else "GPU –" if sees_gpu else "",
    )


def _put_shares(page: TerminalPage, parts: list[TimePart], *, lead: str, most: int) -> None:
    heaviest = sorted((part for part in parts if part.share > 0), key=lambda part: -part.share)[:most]
    if heaviest:
        shown = [f"{part.name.replace(':', ' ', 1)} {share(part.share)}" for part in heaviest]
        page.sentence(" · ".join(shown), lead=lead)


# -- from doctor/report/making.py: How batches were made, on a page: stages, lines, slow samples, start-up.


SLOW = 2.0
"""Times the median: below that, the slowest samples are no slow ones."""
PLACE_ROOM = 14
"""Cells of a row that are no place of a line."""
KEY_CELLS = 40
"""A sample's key is cut where it is longer: what it cost stands behind it."""


def put_making(page: TerminalPage, diagnosis: Diagnosis, detail: ReportDetail) -> None:
    """The loaders of the rank that waits longest come first, and of those, the ones that made most."""
    ranks = {budget.pid: budget.rank for budget in waiting_most(diagnosis)}
    order = list(ranks)
    makings = sorted(diagnosis.makings, key=lambda making: (_place(order, making), -making.batches * making.batch_us))
    for making in makings[: detail.loaders]:
        rank = ranks.get(making.trainer) if len(ranks) > 1 else None
        loader = making.loader if len(makings) > max(len(ranks), 1) else None
        page.heading(_title(making, rank=rank, loader=loader), _production_summary(making))
        _put_stages(page, making, detail.stages)
        _put_lines(page, making, detail.lines)
        _put_slow(page, making, detail.slow)
        page.sentence(_start_up(making), lead="  start-up: ")
    if len(makings) > detail.loaders:
        page.line(f"and {counted(len(makings) - detail.loaders, 'loader')} more: {detail.rest}", style="dim")


def _place(order: list[int], making: LoaderProduction) -> int:
    return order.index(making.trainer) if making.trainer in order else len(order)


def _title(making: LoaderProduction, *, rank: int | None, loader: int | None) -> str:
    """The rank and the loader are named where there are several."""
    who = counted(making.workers, making.makers) if making.workers else "No workers"
    which = (("rank", rank), ("loader", loader))
    where = ", ".join(f"{what} {number}" for what, number in which if number is not None)
    return f"{who} ({where})" if where else who


def _production_summary(making: LoaderProduction) -> str:
    first = f"busy {share(making.busy)} of the time" if making.workers else "made in the training thread"
    batches = counted(making.batches, "batch")
    return " · ".join(
        [first, f"{number(making.cores)} cores used", batches, f"{duration(making.batch_us)} a batch, of which:"]
    )


def _put_stages(page: TerminalPage, making: LoaderProduction, most: int) -> None:
    stages = sorted(making.stages, key=lambda stage: -stage.share)
    rows = [_stage_row(stage) for stage in stages[:most]]
    rest = stages[most:]
    if rest:
        of_whole = sum(stage.share for stage in rest)
        time = f"{duration(sum(stage.wall_us for stage in rest))}/sample"
        rows.append(TerminalRow(f"{len(rest)} more", (share(of_whole),), of_whole, "dim", time))
    page.rows(rows)


def _stage_row(stage: StagePart) -> TerminalRow:
    label = f"{stage.category} {stage.label}" if stage.label else stage.category
    return TerminalRow(label, (share(stage.share),), stage.share, heat(stage.share), _remark(stage))


def _remark(stage: StagePart) -> str:
    """What it costs, whether it computes or waits, and how often it is called."""
    calls = f"{number(stage.calls)}/batch" if stage.calls > 0 else ""
    cpu = None if stage.cpu_us is None or stage.wall_us <= 0 else min(stage.cpu_us / stage.wall_us, 1.0)
    computing = "" if cpu is None else f"{share(cpu)} CPU"
    return ", ".join(filter(None, (f"{duration(stage.wall_us)}/sample", computing, calls)))


def _put_lines(page: TerminalPage, making: LoaderProduction, most: int) -> None:
    places = [page.shorten(line.place, page.width - PLACE_ROOM, keep="end") for line in making.lines[:most]]
    shares = [share(line.share) for line in making.lines[:most]]
    page.rows([TerminalRow(f"line {place}", (part,)) for place, part in zip(places, shares, strict=True)])


def _put_slow(page: TerminalPage, making: LoaderProduction, most: int) -> None:
    for slow in [one for one in making.slow if one.times >= SLOW][:most]:
        key, stage = page.shorten(slow.key, KEY_CELLS), slow.stage.replace(":", " ", 1)
        page.line(f"slow sample {key}: {duration(slow.wall_us)}, {number(slow.times)} × the median, most in {stage}")


def _start_up(making: LoaderProduction) -> str:
    start = f"{duration(making.start_up_us)} to start, {duration(making.first_batch_us)} to the first batch"
    again = " (new workers each time)" if making.respawned else ""
    return f"{start}, {counted(making.passes, 'pass')}{again}"


# -- from doctor/report/ranks.py: The ranks beside each other, on a page.


def put_ranks(page: TerminalPage, diagnosis: Diagnosis, detail: ReportDetail) -> None:
    """Nothing with one rank. Those that are late most come first."""
    if len(diagnosis.ranks) < 2:
        return
    ranks = sorted(diagnosis.ranks, key=lambda rank: (-rank.late, rank.rank))
    page.heading(f"{len(ranks)} ranks", "how often each is the last to arrive, and what it waits for in a step")
    page.rows([_RANK_HEAD, *(_rank_row(rank) for rank in ranks[: detail.ranks])])
    if len(ranks) > detail.ranks:
        page.line(f"and {counted(len(ranks) - detail.ranks, 'rank')} more: {detail.rest}", style="dim")


_RANK_HEAD = TerminalRow("", ("last", "late by", "data", "a peer", "sending"), remark="late because of")


def _rank_row(rank: RankView) -> TerminalRow:
    times = (rank.lateness_us, rank.data_wait_us, rank.peer_wait_us, rank.collective_us)
    cause = rank.cause.replace(":", " ", 1) if rank.cause is not None else ""
    return TerminalRow(f"rank {rank.rank}", (share(rank.late), *map(duration, times)), remark=cause)


# -- from doctor/report/windows.py: The windows that a measured run went through, on a page.


_WINDOW_DONE = {"observe": "observed", "replay": "replayed", "load": "replayed beside the workers", "drain": "drained"}


def put_windows(page: TerminalPage, session: Session) -> None:
    """A line: what was done for how long, on the first rank that had windows; all go through the same."""
    trainer = next((one for one in session.trainers if one.windows), None)
    if trainer is not None:
        page.sentence(
            " · ".join(_window_words(window, trainer) for window in trainer.windows), lead="windows: ", style="dim"
        )


def _window_words(window: MeasuredWindow, trainer: Trainer) -> str:
    """`40 steps replayed in 1.2 s`, without those that settle, in a time with them."""
    done = _WINDOW_DONE.get(window.name, window.name)
    many = (
        counted(window.steps - window.settling, "step")
        if window.steps
        else counted(len(trainer.drained.index), "batch")
    )
    return f"{many} {done} in {duration(window.end - window.start)}"


# -- from doctor/report/terminal.py: The report for people: the verdict first, what to do next, then the evidence, and
# how to render it again.


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
    page = TerminalPage(console.width, ascii_only=console.options.ascii_only)
    detail = ALL if verbose else _least_detail(prescription, in_cell)
    put_report(page, session, diagnosis, prescription, detail=detail, again=again)
    page.show(console)


def text(session: Session, diagnosis: Diagnosis, prescription: Prescription | None = None, *, again: str = "") -> str:
    """The whole report as a plain text."""
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


def _least_detail(prescription: Prescription | None, in_cell: bool) -> ReportDetail:
    if prescription is None or not helping(prescription):
        return CELL if in_cell else SCREEN
    return CELL_WITH_REMEDIES if in_cell else SCREEN_WITH_REMEDIES


def first_to_do(diagnosis: Diagnosis, prescription: Prescription | None) -> str:
    """The remedy that gains most; where none is known to help, what the heaviest finding says to look at."""
    remedy = first_gain(prescription) if prescription is not None else ""
    return remedy or next((finding.advice for finding in diagnosis.findings if finding.advice), "")


def _colour(diagnosis: Diagnosis) -> str:
    return "" if diagnosis.wait_share is None else heat(diagnosis.wait_share)


def _put_findings(page: TerminalPage, findings: list[Finding], detail: ReportDetail, *, said: str) -> None:
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
