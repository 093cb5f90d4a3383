"""Charts over time: columns side by side, stacked from zero, with an axis of round figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from markupsafe import Markup

from headrace.doctor.report.html.axis import Axis
from headrace.doctor.report.html.svg import element, figure, percent

MOST = 240
"""Columns that a chart draws: more can hardly be told apart, and cost room in the file."""
APART = 80
"""Columns up to which there is a gap between two."""
GAP = 0.14
PLOT_PX, FOOT_PX, HEAD_PX = 168, 20, 8
SCALE_PX = 38
EDGE = 0.04
"""Share of the width, next to either end, where a text has no room on both sides of its place."""


@dataclass(frozen=True)
class Layer:
    """One part of every column, in order from the zero line up; None where it was not measured."""

    colour: str
    values: Sequence[float | None]


@dataclass(frozen=True)
class Columns:
    """A chart. `titles` are shown where a pointer rests on a column; `places` are [share of the width, text] below the
    zero line; `mark` is a value with a line across."""

    layers: Sequence[Layer]
    titles: Sequence[str]
    axis: Axis
    places: Sequence[tuple[float, str]]
    label: str
    mark: float | None = None
    cut: Sequence[int] = field(default_factory=list)
    """Columns that reach beyond the axis, which a sign says."""


def buckets(count: int, most: int = MOST) -> list[range]:
    """Neighbours put together, so that there are at most `most` columns."""
    each = max(-(-count // most), 1)
    return [range(start, min(start + each, count)) for start in range(0, count, each)]


def columns(chart: Columns) -> Markup:
    """The scale beside the plot keeps its width; the plot takes what there is."""
    return element("div", _scale(chart.axis), _plot(chart), class_="columns")


def _scale(axis: Axis) -> Markup:
    texts = [
        element("text", text, class_="tick end", x=SCALE_PX - 5, y=_y(value, axis) + 4) for value, text in axis.ticks
    ]
    height = HEAD_PX + PLOT_PX + FOOT_PX
    return element("svg", *texts, class_="scale", width=SCALE_PX, height=height, aria_hidden="true")


def _plot(chart: Columns) -> Markup:
    count = len(chart.titles)
    lines = [_level(value, chart.axis, "grid" if value else "zero") for value, _ in chart.axis.ticks]
    marks = [] if chart.mark is None else [_level(chart.mark, chart.axis, "mark")]
    return element(
        "svg",
        *lines,
        _areas(chart, count),
        *marks,
        *_cuts(chart, count),
        *_places(chart.places),
        *_titles(chart.titles),
        class_="plot",
        width="100%",
        height=HEAD_PX + PLOT_PX + FOOT_PX,
        role="img",
        aria_label=chart.label,
    )


def _level(value: float, axis: Axis, kind: str) -> Markup:
    y = _y(value, axis)
    return element("line", class_=kind, x1="0", x2="100%", y1=y, y2=y)


def _y(value: float, axis: Axis) -> float:
    return round(HEAD_PX + PLOT_PX * (1 - min(value / axis.top, 1.0)), 2)


def _areas(chart: Columns, count: int) -> Markup:
    """The highest is drawn first and the lowest last, each down to the zero line, so that no seam shows."""
    heights = _cumulative(chart.layers, count)
    paths = [
        element("path", class_=f"fill c-{layer.colour}", d=_path(reached, chart.axis, gap=GAP if count <= APART else 0))
        for layer, reached in reversed(list(zip(chart.layers, heights, strict=True)))
    ]
    return element(
        "svg",
        *paths,
        viewBox=f"0 0 {max(count, 1)} {PLOT_PX}",
        preserveAspectRatio="none",
        x=0,
        y=HEAD_PX,
        width="100%",
        height=PLOT_PX,
    )


def _cumulative(layers: Sequence[Layer], count: int) -> list[list[float]]:
    reached, sums = [0.0] * count, []
    for layer in layers:
        reached = [below + (value or 0.0) for below, value in zip(reached, layer.values, strict=True)]
        sums.append(reached)
    return sums


def _path(reached: Sequence[float], axis: Axis, *, gap: float) -> str:
    """A column of its own each where there is a gap between them, else one outline."""
    tops = [figure(PLOT_PX * (1 - min(value / axis.top, 1.0))) for value in reached]
    if gap:
        width = figure(1 - gap)
        return "".join(
            f"M{figure(place + gap / 2)} {PLOT_PX}V{top}h{width}V{PLOT_PX}z"
            for place, top in enumerate(tops)
            if reached[place] > 0
        )
    return f"M0 {PLOT_PX}" + "".join(f"V{top}h1" for top in tops) + f"V{PLOT_PX}z"


def _cuts(chart: Columns, count: int) -> list[Markup]:
    return [element("text", "▲", class_="cut", x=percent((place + 0.5) / count), y=HEAD_PX + 3) for place in chart.cut]


def _places(places: Sequence[tuple[float, str]]) -> list[Markup]:
    y = HEAD_PX + PLOT_PX + FOOT_PX - 5
    return [element("text", text, class_=f"tick {_anchor(share)}", x=percent(share), y=y) for share, text in places]


def _anchor(share: float) -> str:
    """Where its place is in a text, so that none reaches beyond the plot."""
    return "start" if share < EDGE else "end" if share > 1 - EDGE else "middle"


def _titles(titles: Sequence[str]) -> list[Markup]:
    width = percent(1 / max(len(titles), 1))
    return [
        element(
            "rect",
            element("title", title),
            class_="touch",
            x=percent(place / len(titles)),
            width=width,
            height=HEAD_PX + PLOT_PX,
        )
        for place, title in enumerate(titles)
    ]
