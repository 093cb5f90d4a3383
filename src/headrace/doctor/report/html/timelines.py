"""Charts over time in the HTML report: steps, ready batches and busy cores."""

from __future__ import annotations

from itertools import pairwise
from statistics import fmean, quantiles

from headrace.doctor.measure import (
    ORDER,
    Host,
    Join,
    MeasuredStep,
    MeasuredTraining,
    queue_depth,
    step_parts,
    training,
    with_loaders_as_one,
)
from headrace.doctor.quantities import counted, duration, number, percent
from headrace.doctor.report.html.charts import (
    MOST_COLUMNS,
    ColumnChart,
    Layer,
    buckets,
    colour_of,
    plain_axis,
    round_step,
    time_axis,
)
from headrace.doctor.report.view import ReportView
from headrace.doctor.session.model import Session

FAR = 3.0
"""Multiple of the 95th percentile from which columns are truncated to keep the others readable."""
ROOM = 1.2
"""Axis limit if columns are truncated, in multiples of the 95th percentile."""
PLACES = 6
COMMAND, BUSY = "cpu_cores_command", "cpu_cores_busy"


# Steps


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


# Batches ready


def batches_ready(session: Session, training: MeasuredTraining) -> ColumnChart | None:
    """Draw the number of ready batches over the time of the measured steps."""
    measured = queue_depth(training, Join(session))
    if measured is None or len(measured.times) < 2:
        return None
    # One column per change, up to the maximum number of columns.
    count, first, last = min(MOST_COLUMNS, len(measured.counts)), measured.times[0], measured.times[-1]
    edges = [first + (last - first) * place / count for place in range(count + 1)]
    means = [measured.mean(start, end) for start, end in pairwise(edges)]
    mean = measured.mean(first, last)
    most = f", of {measured.most} that may be in flight" if measured.most else ""
    each = zip(edges[:-1], means, strict=True)
    lead = f"None was ready in {percent(measured.empty)} of the time; {number(mean)} on average{most}."
    return ColumnChart(
        layers=[Layer("sky", means, "ready and not taken")],
        titles=[f"at {duration(start - first)}: {number(mean)} ready" for start, mean in each],
        axis=plain_axis(max([*means, measured.most]), whole=True),
        places=_times(last - first),
        label=lead,
        mark=float(measured.most) if measured.most else None,
        mark_name="as many as may be in flight",
        unit="batches ready, over the time of the measured steps",
        lead=lead,
    )


def _times(whole_us: float) -> list[tuple[float, str]]:
    """Return round times along the axis by their share of the width."""
    axis = time_axis(max(whole_us, 1), lines=5)
    return [(us / whole_us, f"{text} {axis.unit}") for us, text in axis.ticks if us <= whole_us > 0]


# Cores busy


def cores_busy(host: Host) -> ColumnChart | None:
    """Draw the busy cores; None without readings."""
    machine, top = host.machine, host.cores
    busy = machine.columns.get(BUSY, [])
    mean = _mean_of(busy, range(len(busy)))
    if mean is None or len(machine.time) < 2:
        return None
    groups = buckets(len(machine.time))
    own = [_mean_of(machine.columns.get(COMMAND, []), group) for group in groups]
    wholes = [_mean_of(busy, group) for group in groups]
    pairs = zip(wholes, own, strict=True)
    others = [None if whole is None else max(whole - (part or 0.0), 0.0) for whole, part in pairs]
    start = machine.time[0]
    return ColumnChart(
        layers=[Layer("blue", own, "this command"), Layer("other", others, "others")],
        titles=[
            f"at {duration(machine.time[group[0]] - start)}: {number(part)} by this command, {number(other)} by others"
            for group, part, other in zip(groups, own, others, strict=True)
        ],
        axis=plain_axis(max([top or 0.0, *(value or 0.0 for value in busy)])),
        places=_times(machine.time[-1] - start),
        label=f"{number(mean)} of {number(top)} cores busy on average",
        mark=top,
        mark_name="all cores",
        unit="cores, over the whole run",
    )


def _mean_of(values: list[float | None], group: range) -> float | None:
    known = [value for row in group if row < len(values) and (value := values[row]) is not None]
    return fmean(known) if known else None
