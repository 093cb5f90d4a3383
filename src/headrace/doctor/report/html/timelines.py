"""Chart of the steps over time in the HTML report."""

from __future__ import annotations

from statistics import fmean, quantiles

from headrace.doctor.measure import (
    ORDER,
    MeasuredStep,
    MeasuredTraining,
    step_parts,
    training,
    with_loaders_as_one,
)
from headrace.doctor.quantities import counted, duration
from headrace.doctor.report.html.charts import (
    ColumnChart,
    Layer,
    buckets,
    colour_of,
    round_step,
    time_axis,
)
from headrace.doctor.report.view import ReportView

FAR = 3.0
"""Multiple of the 95th percentile from which columns are truncated to keep the others readable."""
ROOM = 1.2
"""Axis limit if columns are truncated, in multiples of the 95th percentile."""
PLACES = 6


def training_of(view: ReportView) -> MeasuredTraining | None:
    """Return the measured steps of the view's first rank; None without any."""
    budgets = [step.budget for step in view.steps[:1]]
    for trainer in view.session.trainers:
        if (trainer.pid, trainer.rank) in [(one.pid, one.rank) for one in budgets]:
            measured = training(view.session, with_loaders_as_one(trainer))
            return measured if measured.steps else None
    return None


def steps(training: MeasuredTraining) -> ColumnChart:
    """Draw every measured step in order, with its parts."""
    groups = buckets(len(training.steps))
    parts = []
    for group in groups:
        of_steps = [step_parts(training, training.steps[row]) for row in group]
        seen = [name for name in ORDER if any(name in one for one in of_steps)]
        parts.append({name: fmean(one.get(name, 0.0) for one in of_steps) for name in seen})
    names = [name for name in ORDER if any(name in of_group for of_group in parts)]
    wholes = [sum(of_group.values()) for of_group in parts]
    longest = max(wholes)
    usual = quantiles(wholes, n=20, method="inclusive")[-1] if len(wholes) > 1 else longest
    axis = time_axis(usual * ROOM if longest > FAR * usual > 0 else longest)
    cut = [place for place, whole in enumerate(wholes) if whole > axis.top * 1.001]
    each, lead = counted(len(groups[0]), training.unit), _extremes(training)
    beyond = f" ▲ marks {counted(len(cut), 'column')} longer than the axis, up to {duration(longest)}." if cut else ""
    return ColumnChart(
        layers=[Layer(colour_of(name), [of_group.get(name) for of_group in parts], name) for name in names],
        titles=[_title(training, group, of_group) for group, of_group in zip(groups, parts, strict=True)],
        axis=axis,
        places=_places(training, groups),
        label=f"{counted(len(training.steps), training.unit)} in {counted(len(groups), 'column')}. {lead}",
        cut=cut,
        unit=f"{axis.unit} a {training.unit}, by its number",
        lead=lead,
        about=(f"one {training.unit}" if len(groups) == len(training.steps) else f"the mean of {each}", beyond),
    )


def _places(training: MeasuredTraining, groups: list[range]) -> list[tuple[float, str]]:
    """Return the columns that contain a round step number, each labelled in its middle."""
    numbers = [[training.steps[row].number for row in group] for group in groups]
    apart = round_step(numbers[-1][-1] - numbers[0][0] + 1, most=PLACES)
    named = [(place, next((number for number in of if number % apart == 0), None)) for place, of in enumerate(numbers)]
    return [((place + 0.5) / len(groups), str(number)) for place, number in named if number is not None]


def _title(training: MeasuredTraining, group: range, parts: dict[str, float]) -> str:
    first, last = training.steps[group[0]], training.steps[group[-1]]
    which = f"{training.unit} {first.number}" if first is last else f"{training.unit}s {first.number} to {last.number}"
    at = duration(first.start - training.steps[0].start)
    said = ", ".join(f"{name} {duration(us)}" for name, us in parts.items() if us > 0)
    return f"{which}, at {at}: {duration(sum(parts.values()))} – {said}"


def _extremes(training: MeasuredTraining) -> str:
    def words(step: MeasuredStep) -> str:
        return f"{duration(step.duration)} ({training.unit} {step.number})"

    longest = max(training.steps, key=lambda step: step.duration)
    shortest = min(training.steps, key=lambda step: step.duration)
    return f"The shortest took {words(shortest)}, the longest {words(longest)}."
