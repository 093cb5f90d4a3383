"""SVG charts: columns over time, stacked bars, axes and colours."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from markupsafe import Markup, escape

from headrace.doctor.quantities import percent
from headrace.doctor.report.escaping import safe

Attribute = str | float | None
MOST_TEXT = 300
"""Characters of what a chart says in words."""


def element(name: str, *children: str | Markup, **attributes: Attribute) -> Markup:
    """Return an SVG or HTML element, its texts escaped.

    `class_` and `stroke_width` are the attributes `class` and `stroke-width`; one that is None is left out.
    """
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(_text(key, value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    inner = Markup("").join(child if isinstance(child, Markup) else escape(seen(child)) for child in children)
    return Markup(f"<{name}{written}>{inner}</{name}>")


def figure(value: float) -> str:
    """Return a coordinate in as few characters as a screen can show of it."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


def css_percent(share: float) -> str:
    return f"{figure(share * 100)}%"


def seen(text: str, *, most: int = MOST_TEXT) -> str:
    """Return `text`, safe to show, in at most so many characters, with a sign where something is missing."""
    shown = safe(text[: most + 1])
    return shown if len(shown) <= most else shown[: most - 1] + "…"


def _text(key: str, value: str | float) -> str:
    if isinstance(value, str):
        return seen(value) if key == "aria_label" else value
    return figure(value)


ROUND = (1.0, 2.0, 2.5, 5.0, 10.0)
UNITS = (("s", 1e6), ("ms", 1e3), ("µs", 1.0))


@dataclass(frozen=True)
class Axis:
    """Axis from 0 to `top`. `ticks` are values and their texts."""

    top: float
    ticks: list[tuple[float, str]]
    unit: str = ""


def time_axis(most_us: float, *, lines: int = 5) -> Axis:
    """Return an axis in the largest unit that the longest time holds at least one of."""
    unit, us = next(((unit, us) for unit, us in UNITS if most_us >= us), UNITS[-1])
    axis = plain_axis(most_us / us, lines=lines)
    return Axis(axis.top * us, [(value * us, text) for value, text in axis.ticks], unit)


def plain_axis(most: float, *, lines: int = 4, whole: bool = False) -> Axis:
    """Return an axis from zero. With `whole`, no tick lies between two counts."""
    step = _step(most, lines, whole=whole)
    count = max(math.ceil(most / step - 1e-9), 1)
    return Axis(count * step, [(place * step, f"{place * step:.6g}") for place in range(count + 1)])


def round_step(count: int, *, most: int) -> int:
    """Return a round number that goes into `count` about `most` times."""
    return round(_step(count, most, whole=True))


def _step(most: float, lines: int, *, whole: bool) -> float:
    least = max(most, 1e-9) / lines
    power = 10.0 ** math.floor(math.log10(least))
    step = next(power * digit for digit in ROUND if power * digit >= least * (1 - 1e-9))
    return max(math.ceil(step), 1) if whole else step


MOST_COLUMNS = 240
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
class ColumnChart:
    """Columns side by side over time, stacked from zero.

    `titles` show where a pointer rests on a column; `places` are [share of the width, text] below the zero line;
    `mark` is a value with a line across.
    """

    layers: Sequence[Layer]
    titles: Sequence[str]
    axis: Axis
    places: Sequence[tuple[float, str]]
    label: str
    mark: float | None = None
    cut: Sequence[int] = field(default_factory=list)
    """Columns that reach beyond the axis, which a sign says."""


def buckets(count: int, most: int = MOST_COLUMNS) -> list[range]:
    """Join neighbours, so that there are at most `most` columns."""
    each = max(-(-count // most), 1)
    return [range(start, min(start + each, count)) for start in range(0, count, each)]


def columns(chart: ColumnChart) -> Markup:
    """Draw a chart. The scale keeps its width; the plot takes what there is."""
    return element("div", _scale(chart.axis), _plot(chart), class_="columns")


def _scale(axis: Axis) -> Markup:
    texts = [
        element("text", text, class_="tick end", x=SCALE_PX - 5, y=_y(value, axis) + 4) for value, text in axis.ticks
    ]
    height = HEAD_PX + PLOT_PX + FOOT_PX
    return element("svg", *texts, class_="scale", width=SCALE_PX, height=height, aria_hidden="true")


def _plot(chart: ColumnChart) -> Markup:
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


def _areas(chart: ColumnChart, count: int) -> Markup:
    """Draw the highest layer first and the lowest last, each down to the zero line, so that no seam shows."""
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
    """Return a column each where there are gaps between them, else one outline."""
    tops = [figure(PLOT_PX * (1 - min(value / axis.top, 1.0))) for value in reached]
    if gap:
        width = figure(1 - gap)
        return "".join(
            f"M{figure(place + gap / 2)} {PLOT_PX}V{top}h{width}V{PLOT_PX}z"
            for place, top in enumerate(tops)
            if reached[place] > 0
        )
    return f"M0 {PLOT_PX}" + "".join(f"V{top}h1" for top in tops) + f"V{PLOT_PX}z"


def _cuts(chart: ColumnChart, count: int) -> list[Markup]:
    return [
        element("text", "▲", class_="cut", x=css_percent((place + 0.5) / count), y=HEAD_PX + 3) for place in chart.cut
    ]


def _places(places: Sequence[tuple[float, str]]) -> list[Markup]:
    y = HEAD_PX + PLOT_PX + FOOT_PX - 5
    return [element("text", text, class_=f"tick {_anchor(share)}", x=css_percent(share), y=y) for share, text in places]


def _anchor(share: float) -> str:
    """Return a text's anchor, so that it does not reach beyond the plot."""
    return "start" if share < EDGE else "end" if share > 1 - EDGE else "middle"


def _titles(titles: Sequence[str]) -> list[Markup]:
    width = css_percent(1 / max(len(titles), 1))
    return [
        element(
            "rect",
            element("title", title),
            class_="touch",
            x=css_percent(place / len(titles)),
            width=width,
            height=HEAD_PX + PLOT_PX,
        )
        for place, title in enumerate(titles)
    ]


HEIGHT_PX = 20
LABELLED = 0.13
"""Share of the width from which on a segment's own share is written into it."""


@dataclass(frozen=True)
class BarSegment:
    """A piece of a stacked bar; `text` is shown where a pointer rests on it."""

    colour: str
    value: float
    text: str


@dataclass(frozen=True)
class BarMeasure:
    """One bar of a figure with an interval: `kind` is `now`, `predicted`, `proved` or `floor`."""

    kind: str
    value: float
    bounds: tuple[float, float] | None = None


def stacked(segments: Sequence[BarSegment], *, top: float, label: str, labelled: bool = True) -> Markup:
    """Draw pieces end to end; the whole width is `top`."""
    pieces, start = [], 0.0
    for segment in segments:
        width = segment.value / top if top > 0 else 0.0
        if width <= 0:
            continue
        pieces.append(_piece(segment, start, width, top if labelled else 0.0))
        start += width
    return element("svg", *pieces, class_="bar", width="100%", height=HEIGHT_PX, role="img", aria_label=label)


def measures(bars: Sequence[BarMeasure], *, top: float, label: str, mark: float | None = None) -> Markup:
    """Draw bars under each other, each with its interval; `mark` is a line across, such as a lower bound."""
    height = HEIGHT_PX if len(bars) == 1 else 13 * len(bars) + 2
    thick = (height - 2) / max(len(bars), 1)
    pieces = [piece for place, bar in enumerate(bars) for piece in _measure(bar, 1 + place * thick, thick, top)]
    if mark is not None and top > 0:
        at = css_percent(mark / top)
        pieces.append(element("line", class_="mark", x1=at, x2=at, y1=0, y2=height))
    return element("svg", *pieces, class_="bar", width="100%", height=height, role="img", aria_label=label)


def _piece(segment: BarSegment, start: float, width: float, whole: float) -> Markup:
    title = element("title", segment.text)
    place = {"x": css_percent(start), "width": css_percent(width)}
    rect = element("rect", title, class_=f"fill c-{segment.colour}", y=0, height=HEIGHT_PX, **place)
    if not whole or width < LABELLED:
        return rect
    text = element(
        "text", percent(segment.value / whole), class_="in", x=css_percent(start + width / 2), y=HEIGHT_PX / 2
    )
    return rect + text


def _measure(bar: BarMeasure, y: float, thick: float, top: float) -> list[Markup]:
    def at(value: float) -> str:
        return css_percent(min(value / top, 1.0) if top > 0 else 0.0)

    pieces = [element("rect", class_=f"measure {bar.kind}", x=0, y=y + 1, width=at(bar.value), height=thick - 2)]
    if bar.bounds is None:
        return pieces
    low, high = bar.bounds
    middle, reach = y + thick / 2, thick / 2 - 2
    ends = [(low, high, 0.0), (low, low, reach), (high, high, reach)]
    return pieces + [
        element("line", class_=kind, x1=at(start), x2=at(end), y1=middle - half, y2=middle + half)
        for kind in ("casing", "whisker")
        for start, end, half in ends
    ]


OTHER = "other"
_PARTS = {
    "data wait": "wait",
    "host to device": "amber",
    "forward": "sky",
    "backward": "blue",
    "optimizer": "teal",
    "collective": "purple",
    "peer": "pink",
}
_CATEGORIES = {
    "lookup": "pink",
    "scan": "purple",
    "read": "amber",
    "decode": "blue",
    "transform": "sky",
    "tokenise": "teal",
    "collate": "olive",
    "serialise": "brown",
    "getitem": "slate",
    "wait": "wait",
}


def part_colour(name: str) -> str:
    """Return the colour of a part of a step."""
    return _PARTS.get(name, OTHER)


def category_colour(name: str) -> str:
    """Return the colour of a stage by its category."""
    return _CATEGORIES.get(name, OTHER)
