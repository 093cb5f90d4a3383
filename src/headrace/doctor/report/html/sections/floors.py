"""What bounds the step: the same run on batches that were kept, with and without its workers, and the loader alone."""

from __future__ import annotations

from headrace.doctor.report.escaping import duration
from headrace.doctor.report.html.bars import Measure, measures
from headrace.doctor.report.html.blocks import Block, Cell, Section, Table, Texts
from headrace.doctor.report.html.report import Report
from headrace.doctor.report.remedy_text import floor_rows

_MEANS = {
    "as it is": "the run as it was observed",
    "kept batches": "batches kept from before, workers idle: no loader makes a step shorter than this",
    "workers beside": "kept batches while the workers go on: what is longer, they take from the training by sharing "
    "cores and memory with it",
    "loader alone": "a step's batches taken as fast as they come, nothing trained: the loader's own ceiling",
}
HOW = (
    "Where the loader alone takes longer than kept batches do, the loader holds the training up; where it takes less, "
    "the training itself is what a step takes."
)


def floors(report: Report) -> Section | None:
    prescription = report.prescription
    if prescription is None:
        return None
    if prescription.floors is None:
        why = prescription.why_no_windows
        blocks: list[Block] = [Texts([("Not measured", why)])]
        return Section("floors", "Floors", blocks) if why else None
    rows = list(floor_rows(prescription.floors))
    top = max(us for _, us in rows if us is not None)
    return Section("floors", "Floors: what bounds a step", [_table(rows, top)])


def _table(rows: list[tuple[str, float | None]], top: float) -> Table:
    shown: list[list[Cell]] = [
        [
            name,
            measures(
                [] if us is None else [Measure("floor" if name != "as it is" else "now", us)],
                top=top,
                label=f"{name}: {duration(us)} a step",
            ),
            duration(us),
            _MEANS[name],
        ]
        for name, us in rows
    ]
    return Table("", ["", "", "a step", "what it is"], shown, HOW, figures=frozenset({2}), charts=frozenset({1}))
