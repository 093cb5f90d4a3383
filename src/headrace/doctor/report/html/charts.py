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
from headrace.doctor.report.view import Segment

FOLDER = Path(__file__).parent / "templates"
MOST_TEXT = 300
"""Maximum characters of a chart's text."""


def figure(value: float) -> str:
    """Return a coordinate with at most two decimals, which is all that a screen can show."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


def seen(text: str, *, most: int = MOST_TEXT) -> str:
    """Return escaped `text` in at most `most` characters, with an ellipsis if truncated."""
    shown = safe(text[: most + 1])
    return shown if len(shown) <= most else shown[: most - 1] + "…"


ROUND = (1.0, 2.0, 2.5, 5.0, 10.0)
UNITS = (("s", 1e6), ("ms", 1e3), ("µs", 1.0))


@dataclass(frozen=True)
class Axis:
    """Axis from 0 to `top`, with `ticks` as values and their texts."""

    top: float
    ticks: list[tuple[float, str]]
    unit: str = ""

    def y(self, value: float) -> float:
        """Return a value's position in pixels from the plot's top, clipped to the axis."""
        return PLOT_PX * (1 - min(value / self.top, 1.0))


def time_axis(most_us: float, *, lines: int = 5) -> Axis:
    """Return an axis from zero in the largest unit in which the longest time is at least 1."""
    unit, us = next(((unit, us) for unit, us in UNITS if most_us >= us), UNITS[-1])
    step = _step(most_us / us, lines)
    count = max(math.ceil(most_us / us / step - 1e-9), 1)
    return Axis(count * step * us, [(place * step * us, f"{place * step:.6g}") for place in range(count + 1)], unit)


def round_step(count: int, *, most: int) -> int:
    """Return a round number that divides `count` into about `most` steps."""
    return math.ceil(_step(count, most))


def _step(most: float, lines: int) -> float:
    least = max(most, 1e-9) / lines
    power = 10.0 ** math.floor(math.log10(least))
    return next(power * digit for digit in ROUND if power * digit >= least * (1 - 1e-9))


MOST_COLUMNS = 240
"""Maximum columns of a chart. More are hard to distinguish and increase the file size."""
APART = 80
"""Maximum columns with gaps in between."""
GAP = 0.14
PLOT_PX = 168


@dataclass(frozen=True)
class ChartKey:
    """Legend entry: a colour class, its meaning and its figure."""

    colour: str
    name: str
    figure: str = ""


@dataclass(frozen=True)
class Layer:
    """Part of every column, stacked upward from the zero line. None marks values that were not measured."""

    colour: str
    values: Sequence[float | None]
    name: str = ""


@dataclass(frozen=True)
class ColumnChart:
    """Stacked columns side by side over time."""

    layers: Sequence[Layer]
    titles: Sequence[str]
    """Tooltips of the columns."""
    axis: Axis
    places: Sequence[tuple[float, str]]
    """Texts below the zero line, each at a share of the width."""
    label: str
    """Text equivalent of the whole chart."""
    cut: Sequence[int] = field(default_factory=list)
    """Columns that exceed the axis, marked with a sign."""
    unit: str = ""
    """Description of the axes."""
    lead: str = ""
    """Summary sentence."""
    about: tuple[str, str] = ("", "")
    """Texts on the meaning of a column, and on truncated columns."""

    @property
    def keys(self) -> list[ChartKey]:
        return [ChartKey(layer.colour, layer.name) for layer in self.layers]

    def paths(self) -> list[tuple[str, Markup]]:
        """Return each layer's colour and outline down to the zero line, highest layer first to hide seams."""
        reached, found = [0.0] * len(self.titles), []
        for layer in self.layers:
            reached = [below + (value or 0.0) for below, value in zip(reached, layer.values, strict=True)]
            found.append((layer.colour, Markup(_outline([self.axis.y(value) for value in reached]))))
        return found[::-1]


def _outline(tops: Sequence[float]) -> str:
    """Return one outline per column if there are gaps, otherwise a single outline."""
    if len(tops) > APART:
        return f"M0 {PLOT_PX}" + "".join(f"V{figure(top)}h1" for top in tops) + f"V{PLOT_PX}z"
    return "".join(
        f"M{figure(place + GAP / 2)} {PLOT_PX}V{figure(top)}h{figure(1 - GAP)}V{PLOT_PX}z"
        for place, top in enumerate(tops)
        if top < PLOT_PX
    )


def buckets(count: int, most: int = MOST_COLUMNS) -> list[range]:
    """Group neighbouring items into at most `most` columns."""
    each = max(-(-count // most), 1)
    return [range(start, min(start + each, count)) for start in range(0, count, each)]


@dataclass(frozen=True)
class BarMeasure:
    """Bar of a figure with an interval: `kind` is `now`, `predicted`, `proved` or `floor`."""

    kind: str
    value: float
    bounds: tuple[float, float] | None = None


def columns(chart: ColumnChart) -> Markup:
    """Draw a chart. The scale has a fixed width, and the plot takes the rest."""
    return _macro("columns")(chart)


def stacked(segments: Sequence[Segment], *, top: float, label: str, colour: str = "", labelled: bool = False) -> Markup:
    """Draw segments end to end, in `colour` or in the colours of their names. `top` is the value of the full width."""
    return _macro("stacked")(segments, top, label, colour, labelled)


def measures(bars: Sequence[BarMeasure], *, top: float, label: str, mark: float | None = None) -> Markup:
    """Draw bars below each other with their intervals; `mark` is a line across, such as a lower bound."""
    return _macro("measures")(bars, top, label, mark)


def _macro(name: str) -> Callable[..., Markup]:
    """Return a macro of `charts.html`."""
    macro: Callable[..., Markup] = getattr(environment().get_template("charts.html").module, name)
    return macro


@cache
def environment(most: int = MOST_TEXT) -> Environment:
    """Return the environment of the templates. Numbers are coordinates, and texts have at most `most` characters.

    Every text is escaped twice: `seen` first escapes characters that are not plainly visible, then Jinja escapes the
    text for HTML.
    """

    def shown(value: object) -> object:
        if isinstance(value, Markup) or not isinstance(value, str | int | float):
            return value
        return seen(value, most=most) if isinstance(value, str) else figure(value)

    made = Environment(
        loader=FileSystemLoader(FOLDER),
        autoescape=True,
        finalize=shown,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(
        of_width=lambda share: f"{figure(min(share, 1.0) * 100)}%", percent=percent, colour_of=colour_of
    )
    made.globals.update(plot_px=PLOT_PX)
    return made


OTHER = "other"
_COLOURS = {
    "data wait": "wait",
    "data work": "brown",
    "host to device": "amber",
    "forward": "sky",
    "backward": "blue",
    "optimizer": "teal",
    "collective": "purple",
    "peer": "pink",
    "lookup": "pink",
    "scan": "purple",
    "read": "amber",
    "remote": "brown",
    "decode": "blue",
    "transform": "sky",
    "parse": "olive",
    "tokenise": "teal",
    "collate": "olive",
    "serialise": "brown",
    "getitem": "slate",
    "wait": "wait",
}


def colour_of(name: str) -> str:
    """Return the colour class of a part of a step or of a stage's category."""
    return _COLOURS.get(name, OTHER)
