"""The step's budget and the split of the wait, on a page."""

from __future__ import annotations

from headrace.doctor.measure.diagnosis import Diagnosis, Part, StepBudget
from headrace.doctor.report.detail import Detail
from headrace.doctor.report.escaping import counted, duration, number, share
from headrace.doctor.report.terminal_layout import Page, Row

WAIT = "data wait"
HOT, WARM = 0.3, 0.1
"""Shares of a step from which waiting is shown in red, in yellow."""


def put_step(page: Page, diagnosis: Diagnosis, detail: Detail) -> None:
    """The budgets of the first ranks, each followed by what its wait consists of and comes from."""
    waits = {wait.pid: wait.parts for wait in diagnosis.waits}
    causes = {cause.pid: cause.parts for cause in diagnosis.causes}
    for budget in waiting_most(diagnosis)[: detail.budgets]:
        name = _name(budget, diagnosis)
        page.heading(name if budget.unit == "step" else f"{name} (by {budget.unit})", _summary(budget))
        _put_parts(page, budget)
        _put_shares(page, waits.get(budget.pid, []), lead="  of the wait: ", most=detail.stages)
        _put_shares(page, causes.get(budget.pid, []), lead="  caused by: ", most=detail.causes)


def _name(budget: StepBudget, diagnosis: Diagnosis) -> str:
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


def _summary(budget: StepBudget) -> str:
    texts = [
        f"{duration(budget.mean_us)} on average",
        f"median {duration(budget.median_us)}",
        f"95 % below {duration(budget.p95_us)}",
        counted(budget.steps, budget.unit),
    ]
    if budget.unit == "step" and budget.micro_batches > 1:
        texts.append(f"{number(budget.micro_batches)} batches a step")
    return " · ".join(texts)


def _put_parts(page: Page, budget: StepBudget) -> None:
    """One row a part that took time. As the GPU sees it stands beside it, where that was measured."""
    cpu = {part.name: part for part in budget.parts}
    gpu = {part.name: part for part in budget.device or []}
    names = [*cpu, *(name for name in gpu if name not in cpu)]
    rows = [_row(name, cpu.get(name), gpu.get(name), sees_gpu=budget.device is not None) for name in names]
    page.rows([row for row in rows if row is not None])


def _row(name: str, cpu: Part | None, gpu: Part | None, *, sees_gpu: bool) -> Row | None:
    if not any(part and part.us for part in (cpu, gpu)):
        return None
    us, of_whole = (None, None) if cpu is None else (cpu.us, cpu.share)
    return Row(
        label=name,
        cells=(duration(us), share(of_whole)),
        share=of_whole,
        style=heat(max(part.share for part in (cpu, gpu) if part)) if name == WAIT else "cyan",
        remark=f"GPU {duration(gpu.us)}, {share(gpu.share)}" if gpu else "GPU –" if sees_gpu else "",
    )


def _put_shares(page: Page, parts: list[Part], *, lead: str, most: int) -> None:
    heaviest = sorted((part for part in parts if part.share > 0), key=lambda part: -part.share)[:most]
    if heaviest:
        shown = [f"{part.name.replace(':', ' ', 1)} {share(part.share)}" for part in heaviest]
        page.sentence(" · ".join(shown), lead=lead)
