"""Sections on steps: their parts, their course, the data wait and its lower bounds."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, quantiles

from markupsafe import Markup

from headrace.doctor.measure.diagnosis import StepBudget, TimePart
from headrace.doctor.measure.steps import ORDER, MeasuredStep, MeasuredTraining
from headrace.doctor.measure.view import step_parts
from headrace.doctor.report.escaping import counted, duration, share
from headrace.doctor.report.html.blocks import Block, Cell, Figure, HtmlTable, Key, ReportData, Section, Texts
from headrace.doctor.report.html.charts import (
    Axis,
    BarMeasure,
    BarSegment,
    ColumnChart,
    Layer,
    buckets,
    category_colour,
    columns,
    measures,
    part_colour,
    round_step,
    stacked,
    time_axis,
)
from headrace.doctor.report.remedy_text import floor_rows

# -- from doctor/report/html/sections/timeline.py: Every measured step, one after the other, with its parts.


FAR = 3.0
"""Times the 95th percentile, from which on a column is cut off so that the others can be seen."""
ROOM = 1.2
"""Of the 95th percentile, the axis's reach where columns are cut off."""
PLACES = 6
HOW_TIMELINE = (
    "Each column is {each}, from zero; its parts are stacked in the order of the legend, data wait at the bottom. Even "
    "columns are a steady run. Orange in each of them says that batches are made too slowly, orange in a few that some "
    "batches take long, or that an epoch begins."
)


def timeline(report: ReportData) -> Section | None:
    training = report.training
    if training is None:
        return None
    groups = buckets(len(training.steps))
    parts = [_mean([step_parts(training, training.steps[row]) for row in group]) for group in groups]
    names = [name for name in ORDER if any(name in of_group for of_group in parts)]
    wholes = [sum(of_group.values()) for of_group in parts]
    axis = _axis(wholes)
    cut = [place for place, whole in enumerate(wholes) if whole > axis.top * 1.001]
    chart = ColumnChart(
        layers=[Layer(part_colour(name), [of_group.get(name) for of_group in parts]) for name in names],
        titles=[_title(training, group, of_group) for group, of_group in zip(groups, parts, strict=True)],
        axis=axis,
        places=_places(training, groups),
        label=_label(training, len(groups)),
        cut=cut,
    )
    each = f"one {training.unit}" if len(groups) == len(training.steps) else f"the mean of {_each(groups, training)}"
    figure = Figure(
        title="",
        chart=columns(chart),
        how=" ".join(filter(None, (HOW_TIMELINE.format(each=each), _cut(cut, wholes)))),
        keys=[Key(part_colour(name), name) for name in names],
        unit=f"{axis.unit} a {training.unit}, by its number",
    )
    return Section("timeline", f"Steps over time{report.whose}", [figure], lead=_extremes(training))


def _mean(steps: list[dict[str, float]]) -> dict[str, float]:
    names = {name for step in steps for name in step}
    return {name: fmean(step.get(name, 0.0) for step in steps) for name in ORDER if name in names}


def _axis(wholes: list[float]) -> Axis:
    longest = max(wholes)
    usual = quantiles(wholes, n=20, method="inclusive")[-1] if len(wholes) > 1 else longest
    return time_axis(usual * ROOM if longest > FAR * usual > 0 else longest)


def _places(training: MeasuredTraining, groups: list[range]) -> list[tuple[float, str]]:
    """Columns that hold a step of a round number, by that number, each in the middle of its column."""
    numbers = [[training.steps[row].number for row in group] for group in groups]
    apart = round_step(numbers[-1][-1] - numbers[0][0] + 1, most=PLACES)
    named = [(place, next((number for number in of if number % apart == 0), None)) for place, of in enumerate(numbers)]
    return [((place + 0.5) / len(groups), str(number)) for place, number in named if number is not None]


def _each(groups: list[range], training: MeasuredTraining) -> str:
    return counted(len(groups[0]), training.unit)


def _title(training: MeasuredTraining, group: range, parts: dict[str, float]) -> str:
    first, last = training.steps[group[0]], training.steps[group[-1]]
    which = f"{training.unit} {first.number}" if first is last else f"{training.unit}s {first.number} to {last.number}"
    at = duration(first.start - training.steps[0].start)
    said = ", ".join(f"{name} {duration(us)}" for name, us in parts.items() if us > 0)
    return f"{which}, at {at}: {duration(sum(parts.values()))} – {said}"


def _label(training: MeasuredTraining, count: int) -> str:
    return f"{counted(len(training.steps), training.unit)} in {counted(count, 'column')}. {_extremes(training)}"


def _extremes(training: MeasuredTraining) -> str:
    def words(step: MeasuredStep) -> str:
        return f"{duration(step.duration)} ({training.unit} {step.number})"

    longest = max(training.steps, key=lambda step: step.duration)
    shortest = min(training.steps, key=lambda step: step.duration)
    return f"The shortest took {words(shortest)}, the longest {words(longest)}."


def _cut(cut: list[int], wholes: list[float]) -> str:
    if not cut:
        return ""
    longest = duration(max(wholes[place] for place in cut))
    return f"▲ marks {counted(len(cut), 'column')} longer than the axis, up to {longest}."


# -- from doctor/report/html/sections/waits.py: What the wait consists of, and what it comes from.


MOST_WAITS = 12
_WAIT_MEANS = {
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
HOW_WAIT = (
    "The wait of each next() is cut along the way of the batch that it returned: being made, sent, received. The parts "
    "sum to the wait."
)
HOW_CAUSES = (
    "The time in which a batch was waited for because it was still being made is shared out by the stages of that very "
    "batch, so slow batches weigh as much as they are waited for."
)


def waits(report: ReportData) -> Section | None:
    budget = report.budget
    if budget is None:
        return None
    split = next((one.parts for one in report.diagnosis.waits if one.pid == budget.pid), [])
    causes = next((one.parts for one in report.diagnosis.causes if one.pid == budget.pid), [])
    blocks: list[Block] = []
    if any(part.us > 0 for part in split):
        blocks.append(_wait_table("What the wait consists of", split, HOW_WAIT, means=True))
    if any(part.us > 0 for part in causes):
        blocks.append(_wait_table("What it comes from", causes, HOW_CAUSES, means=False))
    return Section("wait", f"The wait for data{report.whose}", blocks) if blocks else None


def _wait_table(title: str, parts: Sequence[TimePart], how: str, *, means: bool) -> HtmlTable:
    heaviest = sorted((part for part in parts if part.us > 0), key=lambda part: -part.us)
    top = heaviest[0].us
    rows = [_wait_row(part, top, means=means) for part in heaviest[:MOST_WAITS]]
    head = ["", "", "a step", "share", *(["what it is"] if means else [])]
    left = len(heaviest) - MOST_WAITS
    return HtmlTable(
        title,
        head,
        rows,
        how,
        figures=frozenset({2, 3}),
        charts=frozenset({1}),
        left_out=f"and {left} smaller" if left > 0 else "",
    )


def _wait_row(part: TimePart, top: float, *, means: bool) -> list[Cell]:
    name = part.name.replace(":", " ", 1)
    colour = "wait" if means else category_colour(part.name.partition(":")[0])
    label = f"{name}: {duration(part.us)} a step, {share(part.share)} of the wait"
    bar = stacked([BarSegment(colour, part.us, label)], top=top, label=label, labelled=False)
    cells: list[Cell] = [name, bar, duration(part.us), share(part.share)]
    return [*cells, _WAIT_MEANS.get(part.name, "")] if means else cells


# -- from doctor/report/html/sections/anatomy.py: Where an average step goes, as the training thread and as the GPU
# see it.


HOW_ANATOMY = (
    "The whole bar is one step: from the end of one optimizer.step() to that of the next. Data wait is the time in "
    "which the training thread stands in next() of a DataLoader. The GPU runs behind the thread, so it may still have "
    "work while the thread waits; its own wait is the time in which it had none."
)


def anatomy(report: ReportData) -> Section | None:
    budget = report.budget
    if budget is None or not budget.parts:
        return None
    rows: list[list[Cell]] = [["training thread", _budget_bar(budget.parts, budget.mean_us), duration(budget.mean_us)]]
    if budget.device:
        whole = sum(part.us for part in budget.device)
        rows.append(["GPU", _budget_bar(budget.device, whole), duration(whole)])
    table = HtmlTable(
        title="",
        head=["seen by", "", f"a {budget.unit}"],
        rows=rows,
        how=HOW_ANATOMY,
        figures=frozenset({2}),
        charts=frozenset({1}),
        keys=_budget_keys(budget),
    )
    return Section("step", f"Where a {budget.unit} goes{report.whose}", [table])


def _budget_bar(parts: list[TimePart], whole_us: float) -> Markup:
    said = ", ".join(f"{part.name} {duration(part.us)} ({share(part.share)})" for part in parts if part.us > 0)
    segments = [
        BarSegment(part_colour(part.name), part.us, f"{part.name}: {duration(part.us)}, {share(part.share)}")
        for part in parts
    ]
    return stacked(segments, top=whole_us, label=said)


def _budget_keys(budget: StepBudget) -> list[Key]:
    """The figures behind the bars: what a part takes, its share, and its share as the GPU sees it."""
    gpu = {part.name: f" · GPU {share(part.share)}" for part in budget.device or []}
    names = {part.name: f"{duration(part.us)} · {share(part.share)}" for part in budget.parts if part.us > 0}
    names |= {name: "–" for name in gpu if name not in names}
    return [Key(part_colour(name), name, figure + gpu.get(name, "")) for name, figure in names.items()]


# -- from doctor/report/html/sections/floors.py: What bounds the step: the same run on batches that were kept, with
# and without its workers, and the loader alone.


_FLOOR_MEANS = {
    "as it is": "the run as it was observed",
    "kept batches": "batches kept from before, workers idle: no loader makes a step shorter than this",
    "workers beside": "kept batches while the workers go on: what is longer, they take from the training by sharing "
    "cores and memory with it",
    "loader alone": "a step's batches taken as fast as they come, nothing trained: the loader's own ceiling",
}
HOW_FLOORS = (
    "Where the loader alone takes longer than kept batches do, the loader holds the training up; where it takes less, "
    "the training itself is what a step takes."
)


def floors(report: ReportData) -> Section | None:
    prescription = report.prescription
    if prescription is None:
        return None
    if prescription.floors is None:
        why = prescription.why_no_windows
        blocks: list[Block] = [Texts([("Not measured", why)])]
        return Section("floors", "Floors", blocks) if why else None
    rows = list(floor_rows(prescription.floors))
    top = max(us for _, us in rows if us is not None)
    return Section("floors", "Floors: what bounds a step", [_floor_table(rows, top)])


def _floor_table(rows: list[tuple[str, float | None]], top: float) -> HtmlTable:
    shown: list[list[Cell]] = [
        [
            name,
            measures(
                [] if us is None else [BarMeasure("floor" if name != "as it is" else "now", us)],
                top=top,
                label=f"{name}: {duration(us)} a step",
            ),
            duration(us),
            _FLOOR_MEANS[name],
        ]
        for name, us in rows
    ]
    return HtmlTable(
        "", ["", "", "a step", "what it is"], shown, HOW_FLOORS, figures=frozenset({2}), charts=frozenset({1})
    )
