"""Horizontal bars from zero. Their lengths are shares of the page's width, so that they fit a phone as they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from headrace.doctor.report.escaping import share
from headrace.doctor.report.html.svg import element, percent

HEIGHT_PX = 20
LABELLED = 0.13
"""Share of the width from which on a segment's own share is written into it."""


@dataclass(frozen=True)
class Segment:
    """A piece of a stacked bar; `text` is shown where a pointer rests on it."""

    colour: str
    value: float
    text: str


@dataclass(frozen=True)
class Measure:
    """One bar of a figure with an interval: `kind` is `now`, `predicted`, `proved` or `floor`."""

    kind: str
    value: float
    bounds: tuple[float, float] | None = None


def stacked(segments: Sequence[Segment], *, top: float, label: str, labelled: bool = True) -> Markup:
    """Pieces end to end, the whole width being `top`."""
    pieces, start = [], 0.0
    for segment in segments:
        width = segment.value / top if top > 0 else 0.0
        if width <= 0:
            continue
        pieces.append(_piece(segment, start, width, top if labelled else 0.0))
        start += width
    return element("svg", *pieces, class_="bar", width="100%", height=HEIGHT_PX, role="img", aria_label=label)


def measures(bars: Sequence[Measure], *, top: float, label: str, mark: float | None = None) -> Markup:
    """Bars under each other, each with its interval; `mark` is a line across, such as a floor."""
    height = HEIGHT_PX if len(bars) == 1 else 13 * len(bars) + 2
    thick = (height - 2) / max(len(bars), 1)
    pieces = [piece for place, bar in enumerate(bars) for piece in _measure(bar, 1 + place * thick, thick, top)]
    if mark is not None and top > 0:
        at = percent(mark / top)
        pieces.append(element("line", class_="mark", x1=at, x2=at, y1=0, y2=height))
    return element("svg", *pieces, class_="bar", width="100%", height=height, role="img", aria_label=label)


def _piece(segment: Segment, start: float, width: float, whole: float) -> Markup:
    title = element("title", segment.text)
    place = {"x": percent(start), "width": percent(width)}
    rect = element("rect", title, class_=f"fill c-{segment.colour}", y=0, height=HEIGHT_PX, **place)
    if not whole or width < LABELLED:
        return rect
    text = element("text", share(segment.value / whole), class_="in", x=percent(start + width / 2), y=HEIGHT_PX / 2)
    return rect + text


def _measure(bar: Measure, y: float, thick: float, top: float) -> list[Markup]:
    def at(value: float) -> str:
        return percent(min(value / top, 1.0) if top > 0 else 0.0)

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
