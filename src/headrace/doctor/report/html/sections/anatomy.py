"""Where an average step goes, as the training thread and as the GPU see it."""

from __future__ import annotations

from markupsafe import Markup

from headrace.doctor.measure.diagnosis import Part, StepBudget
from headrace.doctor.report.escaping import duration, share
from headrace.doctor.report.html.bars import Segment, stacked
from headrace.doctor.report.html.blocks import Cell, Key, Section, Table
from headrace.doctor.report.html.colours import of_part
from headrace.doctor.report.html.report import Report

HOW = (
    "The whole bar is one step: from the end of one optimizer.step() to that of the next. Data wait is the time in "
    "which the training thread stands in next() of a DataLoader. The GPU runs behind the thread, so it may still have "
    "work while the thread waits; its own wait is the time in which it had none."
)


def anatomy(report: Report) -> Section | None:
    budget = report.budget
    if budget is None or not budget.parts:
        return None
    rows: list[list[Cell]] = [["training thread", _bar(budget.parts, budget.mean_us), duration(budget.mean_us)]]
    if budget.device:
        whole = sum(part.us for part in budget.device)
        rows.append(["GPU", _bar(budget.device, whole), duration(whole)])
    table = Table(
        title="",
        head=["seen by", "", f"a {budget.unit}"],
        rows=rows,
        how=HOW,
        figures=frozenset({2}),
        charts=frozenset({1}),
        keys=_keys(budget),
    )
    return Section("step", f"Where a {budget.unit} goes{report.whose}", [table])


def _bar(parts: list[Part], whole_us: float) -> Markup:
    said = ", ".join(f"{part.name} {duration(part.us)} ({share(part.share)})" for part in parts if part.us > 0)
    segments = [
        Segment(of_part(part.name), part.us, f"{part.name}: {duration(part.us)}, {share(part.share)}") for part in parts
    ]
    return stacked(segments, top=whole_us, label=said)


def _keys(budget: StepBudget) -> list[Key]:
    """The figures behind the bars: what a part takes, its share, and its share as the GPU sees it."""
    gpu = {part.name: f" · GPU {share(part.share)}" for part in budget.device or []}
    names = {part.name: f"{duration(part.us)} · {share(part.share)}" for part in budget.parts if part.us > 0}
    names |= {name: "–" for name in gpu if name not in names}
    return [Key(of_part(name), name, figure + gpu.get(name, "")) for name, figure in names.items()]
