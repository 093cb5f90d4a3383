"""How many batches lay ready, over time."""

from __future__ import annotations

from itertools import pairwise

from headrace.doctor.report.escaping import duration, number, share
from headrace.doctor.report.html.axis import plain_axis, time_axis
from headrace.doctor.report.html.blocks import Figure, Key, Section
from headrace.doctor.report.html.charts import MOST, Columns, Layer, columns
from headrace.doctor.report.html.queue_section import Depth, depth
from headrace.doctor.report.html.report import Report

HOW = (
    "Height is how many batches were made and not yet taken, on average over the column's time. At zero the training "
    "waits for the workers; at the top line the queue is full, and the workers wait for the training. Where some are "
    "ready and steps still wait, one slow batch holds up those behind it."
)


def queue(report: Report) -> Section | None:
    training = report.training
    measured = None if training is None else depth(training, report.join)
    if measured is None or len(measured.times) < 2:
        return None
    edges = _edges(measured)
    means = _means(measured, edges)
    start, whole = edges[0], edges[-1] - edges[0]
    axis = plain_axis(max([*means, measured.most]), whole=True)
    chart = Columns(
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
    figure = Figure("", columns(chart), HOW, keys=keys, unit="batches ready, over the time of the measured steps")
    return Section("queue", f"Batches ready{report.whose}", [figure], lead=_lead(measured))


def _lead(measured: Depth) -> str:
    mean = measured.mean(measured.times[0], measured.times[-1])
    most = f", of {measured.most} that may be in flight" if measured.most else ""
    return f"None was ready in {share(measured.empty)} of the time; {number(mean)} on average{most}."


def _edges(measured: Depth) -> list[float]:
    """As many columns as there are changes to tell, up to those that can be drawn."""
    count = min(MOST, max(len(measured.counts), 1))
    start, end = measured.times[0], measured.times[-1]
    return [start + (end - start) * place / count for place in range(count + 1)]


def _means(measured: Depth, edges: list[float]) -> list[float]:
    return [measured.mean(start, end) for start, end in pairwise(edges)]


def _times(whole: float) -> list[tuple[float, str, str]]:
    axis = time_axis(whole, lines=5)
    return [(us, text, axis.unit) for us, text in axis.ticks if us <= whole]
