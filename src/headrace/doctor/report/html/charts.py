"""SVG bars and their colours."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True)
class ChartKey:
    """Legend entry: a colour class, its meaning and its figure."""

    colour: str
    name: str
    figure: str = ""


def stacked(segments: Sequence[Segment], *, top: float, label: str, colour: str = "", labelled: bool = False) -> Markup:
    """Draw segments end to end, in `colour` or in the colours of their names. `top` is the value of the full width."""
    macro: Callable[..., Markup] = vars(environment().get_template("charts.html").module)["stacked"]
    return macro(segments, top, label, colour, labelled)


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
