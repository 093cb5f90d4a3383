"""Every measured step, one after the other, with its parts."""

from __future__ import annotations

from statistics import fmean, quantiles

from headrace.doctor.analyse.budget import step_parts
from headrace.doctor.analyse.parts import ORDER
from headrace.doctor.measure.steps import Step, Training
from headrace.doctor.report.escaping import counted, duration
from headrace.doctor.report.html.axis import Axis, round_step, time_axis
from headrace.doctor.report.html.blocks import Figure, Key, Section
from headrace.doctor.report.html.charts import Columns, Layer, buckets, columns
from headrace.doctor.report.html.colours import of_part
from headrace.doctor.report.html.report import Report

FAR = 3.0
"""Times the 95th percentile, from which on a column is cut off so that the others can be seen."""
ROOM = 1.2
"""Of the 95th percentile, the axis's reach where columns are cut off."""
PLACES = 6
HOW = (
    "Each column is {each}, from zero; its parts are stacked in the order of the legend, data wait at the bottom. Even "
    "columns are a steady run. Orange in each of them says that batches are made too slowly, orange in a few that some "
    "batches take long, or that an epoch begins."
)


def timeline(report: Report) -> Section | None:
    training = report.training
    if training is None:
        return None
    groups = buckets(len(training.steps))
    parts = [_mean([step_parts(training, training.steps[row]) for row in group]) for group in groups]
    names = [name for name in ORDER if any(name in of_group for of_group in parts)]
    wholes = [sum(of_group.values()) for of_group in parts]
    axis = _axis(wholes)
    cut = [place for place, whole in enumerate(wholes) if whole > axis.top * 1.001]
    chart = Columns(
        layers=[Layer(of_part(name), [of_group.get(name) for of_group in parts]) for name in names],
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
        how=" ".join(filter(None, (HOW.format(each=each), _cut(cut, wholes)))),
        keys=[Key(of_part(name), name) for name in names],
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


def _places(training: Training, groups: list[range]) -> list[tuple[float, str]]:
    """Columns that hold a step of a round number, by that number, each in the middle of its column."""
    numbers = [[training.steps[row].number for row in group] for group in groups]
    apart = round_step(numbers[-1][-1] - numbers[0][0] + 1, most=PLACES)
    named = [(place, next((number for number in of if number % apart == 0), None)) for place, of in enumerate(numbers)]
    return [((place + 0.5) / len(groups), str(number)) for place, number in named if number is not None]


def _each(groups: list[range], training: Training) -> str:
    return counted(len(groups[0]), training.unit)


def _title(training: Training, group: range, parts: dict[str, float]) -> str:
    first, last = training.steps[group[0]], training.steps[group[-1]]
    which = f"{training.unit} {first.number}" if first is last else f"{training.unit}s {first.number} to {last.number}"
    at = duration(first.start - training.steps[0].start)
    said = ", ".join(f"{name} {duration(us)}" for name, us in parts.items() if us > 0)
    return f"{which}, at {at}: {duration(sum(parts.values()))} – {said}"


def _label(training: Training, count: int) -> str:
    return f"{counted(len(training.steps), training.unit)} in {counted(count, 'column')}. {_extremes(training)}"


def _extremes(training: Training) -> str:
    def words(step: Step) -> str:
        return f"{duration(step.duration)} ({training.unit} {step.number})"

    longest = max(training.steps, key=lambda step: step.duration)
    shortest = min(training.steps, key=lambda step: step.duration)
    return f"The shortest took {words(shortest)}, the longest {words(longest)}."


def _cut(cut: list[int], wholes: list[float]) -> str:
    if not cut:
        return ""
    longest = duration(max(wholes[place] for place in cut))
    return f"▲ marks {counted(len(cut), 'column')} longer than the axis, up to {longest}."
