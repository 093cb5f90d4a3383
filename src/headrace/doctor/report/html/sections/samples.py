"""The slowest samples, and the lines of the user's own code that time was seen in."""

from __future__ import annotations

from headrace.doctor.report.escaping import duration, number, share
from headrace.doctor.report.html.bars import Segment, stacked
from headrace.doctor.report.html.blocks import Block, Cell, Section, Table
from headrace.doctor.report.html.report import Report
from headrace.doctor.report.making import SLOW

MOST = 16
LEAST = 0.005
"""Of the making of batches, below which a line is not worth one."""
HOW_SLOW = (
    "Times is against the median sample; those below twice of it are not shown. A batch is as late as its slowest "
    "sample, and, in order, holds up those behind it."
)
HOW_LINES = (
    "Every few milliseconds it was looked at where the making of a batch stood; the share is that of the innermost "
    "line of your own code, calls into libraries included."
)


def samples(report: Report) -> Section | None:
    budget = report.budget
    makings = [making for making in report.diagnosis.makings if budget is None or making.trainer == budget.pid]
    slow: list[list[Cell]] = [
        [one.key, duration(one.wall_us), f"{number(one.times)} ×", one.stage.replace(":", " ", 1)]
        for making in makings
        for one in making.slow
        if one.times >= SLOW
    ]
    lines = [(line.place, line.share) for making in makings for line in making.lines]
    blocks: list[Block] = []
    if slow:
        head = ["sample", "took", "times", "most in"]
        blocks.append(Table("Slow samples", head, slow[:MOST], HOW_SLOW, figures=frozenset({1, 2})))
    if lines:
        blocks.append(_lines(lines))
    return Section("samples", "Slow samples and lines", blocks) if blocks else None


def _lines(lines: list[tuple[str, float]]) -> Table:
    top = max(of_making for _, of_making in lines)
    rows: list[list[Cell]] = [
        [_shortened(place), _bar(place, of_making, top), share(of_making)]
        for place, of_making in sorted(lines, key=lambda line: -line[1])[:MOST]
        if of_making >= LEAST
    ]
    head = ["line of your code", "", "of making"]
    return Table("Lines", head, rows, HOW_LINES, figures=frozenset({2}), charts=frozenset({1}), long_names=True)


def _shortened(place: str) -> str:
    """Of the path, the folder and the file: `…/data/dataset.py:41:__getitem__`."""
    path, _, rest = place.rpartition("/")
    folder = path.rpartition("/")
    return f"…/{folder[2]}/{rest}" if folder[0] else place


def _bar(place: str, of_making: float, top: float) -> Cell:
    label = f"{place}: {share(of_making)} of making batches"
    return stacked([Segment("slate", of_making, label)], top=top, label=label, labelled=False)
