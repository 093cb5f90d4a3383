"""What the wait consists of, and what it comes from."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.doctor.measure.diagnosis import Part
from headrace.doctor.report.escaping import duration, share
from headrace.doctor.report.html.bars import Segment, stacked
from headrace.doctor.report.html.blocks import Block, Cell, Section, Table
from headrace.doctor.report.html.colours import of_category
from headrace.doctor.report.html.report import Report

MOST = 12
_MEANS = {
    "start-up": "iter() of the loader, and workers that had not begun yet",
    "shut-down": "the next() that ended an epoch",
    "not ready": "no batch was ready: they are made too slowly",
    "ready but out of order": "a later batch was ready: one slow batch holds up the others",
    "pickle": "the worker writes the batch into its pipe",
    "unpickle and copy": "the training process reads it",
    "pin": "it is copied to pinned memory",
    "made here": "there are no workers: the training thread makes it",
    "sampler": "the next indices are drawn",
    "unknown": "the making of the batch was not seen",
}
OF_WAIT = (
    "The wait of each next() is cut along the way of the batch that it returned: being made, sent, received. The parts "
    "sum to the wait."
)
CAUSES = (
    "The time in which a batch was waited for because it was still being made is shared out by the stages of that very "
    "batch, so slow batches weigh as much as they are waited for."
)


def waits(report: Report) -> Section | None:
    budget = report.budget
    if budget is None:
        return None
    split = next((one.parts for one in report.diagnosis.waits if one.pid == budget.pid), [])
    causes = next((one.parts for one in report.diagnosis.causes if one.pid == budget.pid), [])
    blocks: list[Block] = []
    if any(part.us > 0 for part in split):
        blocks.append(_table("What the wait consists of", split, OF_WAIT, means=True))
    if any(part.us > 0 for part in causes):
        blocks.append(_table("What it comes from", causes, CAUSES, means=False))
    return Section("wait", f"The wait for data{report.whose}", blocks) if blocks else None


def _table(title: str, parts: Sequence[Part], how: str, *, means: bool) -> Table:
    heaviest = sorted((part for part in parts if part.us > 0), key=lambda part: -part.us)
    top = heaviest[0].us
    rows = [_row(part, top, means=means) for part in heaviest[:MOST]]
    head = ["", "", "a step", "share", *(["what it is"] if means else [])]
    left = len(heaviest) - MOST
    return Table(
        title,
        head,
        rows,
        how,
        figures=frozenset({2, 3}),
        charts=frozenset({1}),
        left_out=f"and {left} smaller" if left > 0 else "",
    )


def _row(part: Part, top: float, *, means: bool) -> list[Cell]:
    name = part.name.replace(":", " ", 1)
    colour = "wait" if means else of_category(part.name.partition(":")[0])
    label = f"{name}: {duration(part.us)} a step, {share(part.share)} of the wait"
    bar = stacked([Segment(colour, part.us, label)], top=top, label=label, labelled=False)
    cells: list[Cell] = [name, bar, duration(part.us), share(part.share)]
    return [*cells, _MEANS.get(part.name, "")] if means else cells
