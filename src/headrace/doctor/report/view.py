"""View of a report: everything that its forms show, built once, in display order and as text."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from headrace.doctor.causes import Prescription, hanging
from headrace.doctor.measure import (
    Diagnosis,
    Finding,
    Host,
    RankView,
    StagePart,
    StepBudget,
    TimePart,
    hosts,
)
from headrace.doctor.quantities import ABSENT, counted, duration, number, percent
from headrace.doctor.report.remedy_text import FirstScreen, RemedyRows, bound_rows, first_screen, remedy_rows
from headrace.doctor.report.run_text import cost_text, ending, last_words, machine_line, name_text, note_texts, versions
from headrace.doctor.session.after_run import DataCheck, DataFault
from headrace.doctor.session.model import Session

LEAST_LINE = 0.05
"""Share of batch production from which a line is shown."""


class Row(NamedTuple):
    label: str
    cells: tuple[str, ...]
    share: float | None = None
    """Share that a bar shows; None without a bar."""


@dataclass(frozen=True)
class StepSection:
    title: str
    summary: Sequence[str]
    parts: Sequence[Row]
    """Time, share, and both on the GPU if measured."""
    wait: Sequence[Row]
    """Parts of the wait for data: time and share, longest first."""
    causes: Sequence[Row]


@dataclass(frozen=True)
class LoaderView:
    title: str
    summary: Sequence[str]
    stages: Sequence[Row]
    """Share, wall time per sample, share of it spent computing, and calls per batch if any."""
    lines: Sequence[Row]
    """Share of batch production."""
    start_up: str


class MachineView(NamedTuple):
    names: str
    use: str
    """Cores and memory, and what of them was used."""
    software: str


@dataclass(frozen=True)
class ReportView:
    """The whole report. Unknown texts are empty, except for figures, which are dashes."""

    screen: FirstScreen
    command: str
    ended: str
    last_words: Sequence[str]
    hanging: Sequence[tuple[str, Sequence[str]]]
    """Title and stack of each process that hangs."""
    faults: Sequence[DataFault]
    again: str
    """Command that renders the report again, or how to get one."""
    check: DataCheck | None
    """Summary of a check for faults of the data; None for a report on speed."""
    waits: float | None = None
    """Share of a step that waits for data, for the verdict's colour; 0 if data is not worth a change."""
    steps: Sequence[StepSection] = ()
    """Ranks, longest data wait first."""
    loaders: Sequence[LoaderView] = ()
    """Loaders of the first rank first."""
    ranks: Sequence[Row] = ()
    """Step, share of steps in which it is last, lateness, waits, collectives and cause; the latest rank first."""
    machines: Sequence[MachineView] = ()
    findings: Sequence[Finding] = ()
    """Findings, without the advice that the first screen gives."""
    bounds: Sequence[str] = ()
    """Baseline and lower bounds of a step."""
    no_bounds: str = ""
    """Reason that there are no lower bounds."""
    remedies: RemedyRows = field(default_factory=RemedyRows)
    notes: Sequence[tuple[str, str]] = ()
    cost: str = ""

    @property
    def has_remedies(self) -> bool:
        return bool(self.remedies.helps or self.remedies.idle)


def report_view(
    session: Session, diagnosis: Diagnosis, prescription: Prescription | None = None, *, again: str = ""
) -> ReportView:
    """Return the view of a session. The report of a check says nothing on speed, but how the command ended."""
    outcome, check = session.outcome, session.check
    screen = first_screen(diagnosis, prescription) if check is None else _check_screen(session, check, diagnosis)
    is_checked = check is not None and outcome.why == "steps"
    view = ReportView(
        screen=screen,
        command=shlex.join(outcome.command),
        ended=f"ended by the check in {duration(outcome.duration)}" if is_checked else ending(outcome),
        last_words=last_words(session),
        hanging=[(f"Process {one.pid} hangs here", stack.rstrip().splitlines()) for one, stack in hanging(session)],
        faults=session.faults,
        again=again,
        check=check,
    )
    if check is not None:
        return view
    first = "" if screen.recommendation is None else screen.recommendation.text
    waits = diagnosis.wait_share if diagnosis.data_share is None else diagnosis.data_share
    is_stopped = prescription is not None and bool(prescription.stop)
    ranks = diagnosis.ranks_by_lateness if len(diagnosis.ranks) > 1 else []
    return replace(
        view,
        waits=0.0 if is_stopped and waits is not None else waits,
        steps=list(_steps(diagnosis)),
        loaders=list(_loaders(diagnosis)),
        ranks=[_rank(one) for one in ranks],
        machines=[_machine(session, one) for one in hosts(session)],
        findings=[replace(one, advice="") if one.advice == first else one for one in diagnosis.findings],
        bounds=[f"{name} {duration(us)}" for name, us in bound_rows(prescription) if us is not None],
        no_bounds="" if prescription is None else prescription.why_no_windows,
        remedies=remedy_rows(prescription),
        notes=[*(("", text) for text in screen.rest), *note_texts(session)],
        cost=cost_text(diagnosis.cost) if diagnosis.cost.evidence_bytes > 0 else "",
    )


def _check_screen(session: Session, check: DataCheck, diagnosis: Diagnosis) -> FirstScreen:
    certain = sum(fault.certainty == "certain" for fault in session.faults)
    sentence = "No fault found in what was looked at." if check.looked_at else "Nothing was looked at."
    if session.faults:
        sentence = f"{counted(len(session.faults), 'fault')} of the data, {certain} certain."
    texts = [*(one.text for one in diagnosis.ending), sentence]
    return FirstScreen(texts[0], texts[1:], None)


def _steps(diagnosis: Diagnosis) -> Iterator[StepSection]:
    waits = {one.pid: one.parts for one in diagnosis.waits}
    causes = {one.pid: one.parts for one in diagnosis.causes}
    for budget in diagnosis.budgets_by_wait:
        name = _budget_name(budget, diagnosis)
        summary = [
            f"{duration(budget.mean_us)} on average",
            f"median {duration(budget.median_us)}",
            f"95 % below {duration(budget.p95_us)}",
            counted(budget.steps, budget.unit),
        ]
        if budget.unit == "step" and budget.micro_batches > 1:
            summary.append(f"{number(budget.micro_batches)} batches a step")
        yield StepSection(
            title=name if budget.unit == "step" else f"{name} (by {budget.unit})",
            summary=summary,
            parts=list(_parts(budget)),
            wait=_heaviest(waits.get(budget.pid, [])),
            causes=_heaviest(causes.get(budget.pid, [])),
        )


def _budget_name(budget: StepBudget, diagnosis: Diagnosis) -> str:
    """Return a name with the rank if there are several, and the process if several train the same rank in turn."""
    if len(diagnosis.budgets) == 1:
        return "Step"
    same = [other for other in diagnosis.budgets if other.rank == budget.rank]
    return f"Rank {budget.rank}" if len(same) == 1 else f"Process {budget.pid}, rank {budget.rank}"


def _parts(budget: StepBudget) -> Iterator[Row]:
    """Yield parts that took time, with the GPU's view of each if measured."""
    cpu = {part.name: part for part in budget.parts}
    gpu = {part.name: part for part in budget.device or []}
    for name in {**cpu, **gpu}:
        on_cpu, on_gpu = cpu.get(name), gpu.get(name)
        if any(part and part.us for part in (on_cpu, on_gpu)):
            said = "" if budget.device is None else f"GPU {ABSENT}"
            if on_gpu:
                said = f"GPU {duration(on_gpu.us)}, {percent(on_gpu.share)}"
            figures = (ABSENT, ABSENT) if on_cpu is None else (duration(on_cpu.us), percent(on_cpu.share))
            yield Row(name, (*figures, said), None if on_cpu is None else on_cpu.share)


def _heaviest(parts: Sequence[TimePart]) -> list[Row]:
    heaviest = sorted((part for part in parts if part.share > 0), key=lambda part: -part.share)
    return [Row(name_text(one.name), (duration(one.us), percent(one.share)), one.share) for one in heaviest]


def _loaders(diagnosis: Diagnosis) -> Iterator[LoaderView]:
    ranks = {budget.pid: budget.rank for budget in diagnosis.budgets}
    for one in diagnosis.loaders_by_rank:
        where = [f"rank {ranks[one.trainer]}"] if len(ranks) > 1 and one.trainer in ranks else []
        where += [f"loader {one.loader}"] if len(diagnosis.batch_production) > max(len(ranks), 1) else []
        who = counted(one.workers, "worker") if one.workers else "No workers"
        again = " (new workers each time)" if one.respawned else ""
        yield LoaderView(
            title=f"{who} ({', '.join(where)})" if where else who,
            summary=[
                f"busy {percent(one.busy)} of the time" if one.workers else "made in the training thread",
                f"{number(one.cores)} cores used",
                counted(one.batches, "batch"),
                f"{duration(one.batch_us)} a batch",
            ],
            stages=[_stage(stage) for stage in one.stages],
            lines=[Row(at.place, (percent(at.share),), at.share) for at in one.lines if at.share >= LEAST_LINE],
            start_up=(
                f"{duration(one.start_up_us)} to start, {duration(one.first_batch_us)} to the first batch, "
                f"{counted(one.passes, 'pass')}{again}"
            ),
        )


def _stage(stage: StagePart) -> Row:
    calls = number(stage.calls) if stage.calls > 0 else ""
    name = f"{stage.category} {stage.label}".rstrip()
    cells = (percent(stage.share), duration(stage.wall_us), percent(stage.computing), calls)
    return Row(name, cells, stage.share)


def _rank(one: RankView) -> Row:
    times = (one.lateness_us, one.data_wait_us, one.peer_wait_us, one.collective_us)
    lateness, data_wait, peer_wait, collective = map(duration, times)
    figures = (duration(one.step_us), percent(one.late), lateness, data_wait, peer_wait, collective)
    return Row(f"rank {one.rank}", (*figures, name_text(one.cause or "")))


def _machine(session: Session, host: Host) -> MachineView:
    known = versions(session, host.trainers[0]) if host.trainers else {}
    software = ", ".join(f"{name} {version}" for name, version in known.items())
    names = filter(None, (host.machine.host, host.machine.facts.get("cpu_model")))
    return MachineView(" · ".join(map(str, names)), machine_line(host), software)
