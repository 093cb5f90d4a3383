"""SVG charts: columns over time, stacked bars, axes and colours."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from headrace.doctor.quantities import percent
from headrace.doctor.report.escaping import safe

FOLDER = Path(__file__).parent / "templates"
MOST_TEXT = 300
"""Characters of what a chart says in words."""


def figure(value: float) -> str:
    """Return a coordinate in as few characters as a screen can show of it."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


def seen(text: str, *, most: int = MOST_TEXT) -> str:
    """Return `text`, safe to show, in at most so many characters, with a sign where something is missing."""
    shown = safe(text[: most + 1])
    return shown if len(shown) <= most else shown[: most - 1] + "…"


ROUND = (1.0, 2.0, 2.5, 5.0, 10.0)
UNITS = (("s", 1e6), ("ms", 1e3), ("µs", 1.0))


@dataclass(frozen=True)
class Axis:
    """Axis from 0 to `top`. `ticks` are values and their texts."""

    top: float
    ticks: list[tuple[float, str]]
    unit: str = ""

    def y(self, value: float) -> float:
        """Return where a value lies, in pixels from the plot's top; what is beyond the axis lies at its end."""
        return PLOT_PX * (1 - min(value / self.top, 1.0))


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
PLOT_PX = 168


@dataclass(frozen=True)
class ChartKey:
    """An entry of a legend: a colour's class, what it stands for, and its figure."""

    colour: str
    name: str
    figure: str = ""


@dataclass(frozen=True)
class Layer:
    """One part of every column, in order from the zero line up; None where it was not measured."""

    colour: str
    values: Sequence[float | None]
    name: str = ""


@dataclass(frozen=True)
class ColumnChart:
    """Columns side by side over time, stacked from zero."""

    layers: Sequence[Layer]
    titles: Sequence[str]
    """Texts that show where a pointer rests on a column."""
    axis: Axis
    places: Sequence[tuple[float, str]]
    """Texts below the zero line, each at a share of the width."""
    label: str
    """All of it in words."""
    mark: float | None = None
    """Value with a line across."""
    mark_name: str = ""
    cut: Sequence[int] = field(default_factory=list)
    """Columns that reach beyond the axis, which a sign says."""
    unit: str = ""
    """Text on what the axes are."""
    lead: str = ""
    """Sentence that sums it up."""
    about: tuple[str, str] = ("", "")
    """Texts on what one column is, and on those that are cut."""

    @property
    def keys(self) -> list[ChartKey]:
        """The legend."""
        marks = [] if self.mark is None else [ChartKey("floor", self.mark_name)]
        return [*(ChartKey(layer.colour, layer.name) for layer in self.layers), *marks]

    def paths(self) -> list[tuple[str, Markup]]:
        """Return each layer's colour and outline down to the zero line, the highest first, so that no seam shows."""
        reached, found = [0.0] * len(self.titles), []
        for layer in self.layers:
            reached = [below + (value or 0.0) for below, value in zip(reached, layer.values, strict=True)]
            found.append((layer.colour, Markup(_outline([self.axis.y(value) for value in reached]))))
        return found[::-1]


def _outline(tops: Sequence[float]) -> str:
    """Return a column each where there are gaps between them, else one outline."""
    if len(tops) > APART:
        return f"M0 {PLOT_PX}" + "".join(f"V{figure(top)}h1" for top in tops) + f"V{PLOT_PX}z"
    return "".join(
        f"M{figure(place + GAP / 2)} {PLOT_PX}V{figure(top)}h{figure(1 - GAP)}V{PLOT_PX}z"
        for place, top in enumerate(tops)
        if top < PLOT_PX
    )


def buckets(count: int, most: int = MOST_COLUMNS) -> list[range]:
    """Join neighbours, so that there are at most `most` columns."""
    each = max(-(-count // most), 1)
    return [range(start, min(start + each, count)) for start in range(0, count, each)]


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


def columns(chart: ColumnChart) -> Markup:
    """Draw a chart. The scale keeps its width; the plot takes what there is."""
    return _macro("columns")(chart)


def stacked(segments: Sequence[BarSegment], *, top: float, label: str, labelled: bool = True) -> Markup:
    """Draw pieces end to end; the whole width is `top`."""
    return _macro("stacked")(segments, top, label, labelled)


def measures(bars: Sequence[BarMeasure], *, top: float, label: str, mark: float | None = None) -> Markup:
    """Draw bars under each other, each with its interval; `mark` is a line across, such as a lower bound."""
    return _macro("measures")(bars, top, label, mark)


@cache
def _macro(name: str) -> Callable[..., Markup]:
    """Return a macro of `charts.html`, whose numbers are coordinates and whose texts are escaped."""

    def shown(value: object) -> object:
        if isinstance(value, Markup) or not isinstance(value, str | int | float):
            return value
        return seen(value) if isinstance(value, str) else figure(value)

    environment = Environment(
        loader=FileSystemLoader(FOLDER), autoescape=True, finalize=shown, undefined=StrictUndefined, trim_blocks=True
    )
    environment.filters.update(of_width=lambda share: f"{figure(min(share, 1.0) * 100)}%", percent=percent)
    environment.globals.update(plot_px=PLOT_PX)
    macro: Callable[..., Markup] = getattr(environment.get_template("charts.html").module, name)
    return macro


OTHER = "other"
_PARTS = {
    "data wait": "wait",
    "data work": "brown",
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
    "remote": "brown",
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
