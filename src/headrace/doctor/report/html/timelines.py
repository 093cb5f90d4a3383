"""Section on the prefetch queue: how many batches lay ready, over time."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf

from headrace.doctor.measure.batches import Finder, Join
from headrace.doctor.measure.production import fed_loaders
from headrace.doctor.measure.steps import MeasuredTraining, queue_of
from headrace.doctor.measure.waits import is_here
from headrace.doctor.report.escaping import duration, number, share
from headrace.doctor.report.html.blocks import Figure, Key, ReportData, Section
from headrace.doctor.report.html.charts import MOST_COLUMNS, ColumnChart, Layer, columns, plain_axis, time_axis
from headrace.doctor.session.model import Trainer, TrainerPass

# -- from doctor/report/html/depth.py: How many batches lay ready and were not yet taken, at any time of the measured
# steps.


@dataclass(frozen=True)
class QueueDepth:
    """From `times[row]` to the next time (the last is the end), `counts[row]` batches lay ready."""

    times: list[float]
    counts: list[int]
    most: int
    """Batches that may be in flight at once."""

    def mean(self, start: float, end: float) -> float:
        """Over a stretch of time, weighted by it."""
        weighted = sum(inside * count for inside, count in self._stretches(start, end))
        return weighted / (end - start) if end > start else 0.0

    @property
    def empty(self) -> float:
        """Share of the time in which none was ready."""
        whole = self.times[-1] - self.times[0]
        stretches = zip(pairwise(self.times), self.counts, strict=True)
        return sum(end - start for (start, end), count in stretches if not count) / whole if whole > 0 else 0.0

    def _stretches(self, start: float, end: float) -> Iterator[tuple[float, int]]:
        row = max(bisect_right(self.times, start) - 1, 0)
        while row < len(self.counts) and self.times[row] < end:
            yield min(self.times[row + 1], end) - max(self.times[row], start), self.counts[row]
            row += 1


def queue_depth(training: MeasuredTraining, join: Join) -> QueueDepth | None:
    """Of the loaders that the steps waited for. None where no worker made batches, or where some of their evidence was
    thinned, since batches that are not known of would be missing."""
    trainer = training.trainer
    fed = fed_loaders(training)
    passes = [one for one in trainer.passes if one.loader in fed and not is_here(trainer, one)]
    finders = [join.finder(trainer, one) for one in passes]
    if not passes or any(finder.is_thinned for finder in finders):
        return None
    start, end = training.steps[0].start, training.steps[-1].end
    asked = _asked(trainer)
    changes: dict[float, int] = {}
    for one, finder in zip(passes, finders, strict=True):
        for sent, taken in _ready(one, finder, asked, _thrown_away(one, passes)):
            if sent < end and taken > max(start, sent):
                for time, change in ((max(sent, start), 1), (min(taken, end), -1)):
                    changes[time] = changes.get(time, 0) + change
    return _depth(changes, start, end, sum(queue_of(trainer, loader) for loader in fed))


def _asked(trainer: Trainer) -> dict[tuple[int, int], int]:
    """When the next() that gave a batch began, by pass and index."""
    return {
        (number, index): start
        for gets in (trainer.gets, trainer.fetches)
        for number, index, start in zip(gets.pass_, gets.index, gets.start, strict=True)
    }


def _ready(
    one: TrainerPass, finder: Finder, asked: dict[tuple[int, int], int], thrown_away: float
) -> Iterator[tuple[float, float]]:
    """From when until when each batch of a pass lay ready; one that was asked for before it was sent never did."""
    for maker, row in finder.batches():
        sent, index = maker.batches.sent[row], maker.batches.index[row]
        if sent is not None:
            yield sent, asked.get((one.number, index), thrown_away)


def _thrown_away(one: TrainerPass, passes: Sequence[TrainerPass]) -> float:
    """When the batches of a pass that nobody asked for are of no more use: as the loader's next pass begins."""
    return min((other.start for other in passes if other.loader == one.loader and other.start > one.start), default=inf)


def _depth(changes: dict[float, int], start: float, end: float, most: int) -> QueueDepth:
    times, counts, now = [float(start)], [], 0
    for time in sorted(changes):
        if time > times[-1]:
            counts.append(now)
            times.append(time)
        now += changes[time]
    if end > times[-1]:
        counts.append(now)
        times.append(float(end))
    return QueueDepth(times, counts, most)


# -- from doctor/report/html/sections/queue.py: How many batches lay ready, over time.


HOW_QUEUE = (
    "Height is how many batches were made and not yet taken, on average over the column's time. At zero the training "
    "waits for the workers; at the top line the queue is full, and the workers wait for the training. Where some are "
    "ready and steps still wait, one slow batch holds up those behind it."
)


def queue(report: ReportData) -> Section | None:
    training = report.training
    measured = None if training is None else queue_depth(training, report.join)
    if measured is None or len(measured.times) < 2:
        return None
    edges = _edges(measured)
    means = _means(measured, edges)
    start, whole = edges[0], edges[-1] - edges[0]
    axis = plain_axis(max([*means, measured.most]), whole=True)
    chart = ColumnChart(
        layers=[Layer("sky", means)],
        titles=[
            f"at {duration(begun - start)}: {number(mean)} ready"
            for (begun, _), mean in zip(pairwise(edges), means, strict=True)
        ],
        axis=axis,
        places=[(us / whole, f"{text} {unit}") for us, text, unit in _times(whole)],
        label=_lead(measured),
        mark=float(measured.most) if measured.most else None,
    )
    keys = [Key("sky", "ready and not taken"), Key("floor", "as many as may be in flight")]
    keys = keys if measured.most else keys[:1]
    figure = Figure("", columns(chart), HOW_QUEUE, keys=keys, unit="batches ready, over the time of the measured steps")
    return Section("queue", f"Batches ready{report.whose}", [figure], lead=_lead(measured))


def _lead(measured: QueueDepth) -> str:
    mean = measured.mean(measured.times[0], measured.times[-1])
    most = f", of {measured.most} that may be in flight" if measured.most else ""
    return f"None was ready in {share(measured.empty)} of the time; {number(mean)} on average{most}."


def _edges(measured: QueueDepth) -> list[float]:
    """As many columns as there are changes to tell, up to those that can be drawn."""
    count = min(MOST_COLUMNS, max(len(measured.counts), 1))
    start, end = measured.times[0], measured.times[-1]
    return [start + (end - start) * place / count for place in range(count + 1)]


def _means(measured: QueueDepth, edges: list[float]) -> list[float]:
    return [measured.mean(start, end) for start, end in pairwise(edges)]


def _times(whole: float) -> list[tuple[float, str, str]]:
    axis = time_axis(whole, lines=5)
    return [(us, text, axis.unit) for us, text in axis.ticks if us <= whole]
