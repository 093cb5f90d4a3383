"""HTML report: one offline page without scripts, rendered from templates, with SVG bars."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import dropwhile
from pathlib import Path
from types import MappingProxyType

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from headrace.doctor.faults import FaultPicture
from headrace.doctor.measure import with_loaders_as_one
from headrace.doctor.quantities import ABSENT, counted, percent
from headrace.doctor.report.remedy_text import part_line
from headrace.doctor.report.terminal_layout import heat, safe
from headrace.doctor.report.view import LoaderView, ReportView, Row
from headrace.doctor.session.trainers import LOADER_FACTS, LoaderFacts

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

    made = Environment(loader=FileSystemLoader(FOLDER), autoescape=True, finalize=shown, undefined=StrictUndefined)
    made.trim_blocks = made.lstrip_blocks = True
    made.filters.update(of_width=lambda share: f"{figure(min(share, 1.0) * 100)}%")
    made.filters.update(percent=percent, colour_of=colour_of)
    return made


OTHER = "other"
_COLOURS = {
    "data wait": "wait", "data work": "brown", "host to device": "amber", "forward": "sky", "backward": "blue",
    "optimizer": "teal", "collective": "purple", "peer": "pink", "lookup": "pink", "scan": "purple", "read": "amber",
    "remote": "brown", "decode": "blue", "transform": "sky", "parse": "olive", "tokenise": "teal", "collate": "olive",
    "serialise": "brown", "getitem": "slate", "wait": "wait",
}  # fmt: skip


def colour_of(name: str) -> str:
    """Return the colour class of a part of a step or of a stage's category."""
    return _COLOURS.get(name, OTHER)


MOST_DIFF_LINES = 120
MOST_REMEDIES = 24
"""Maximum number of remedies shown."""
_DIFF = {"+": "more", "-": "less", "@": "place"}


def rank_rows(ranks: Sequence[Row]) -> list[Row]:
    """Return ranks without the time of collectives, which the bar shows: the table fits a tablet."""
    return [one._replace(cells=(*one.cells[:5], one.cells[-1])) for one in ranks]


def line_rows(loaders: Sequence[LoaderView]) -> list[Row]:
    lines = sorted((line for one in loaders for line in one.lines), key=lambda line: -(line.share or 0.0))
    return [line._replace(label=shortened(line.label)) for line in lines]


def shortened(place: str) -> str:
    """Shorten a path to the file and its folder: `…/data/dataset.py:41:__getitem__`."""
    path, _, rest = place.rpartition("/")
    folder = path.rpartition("/")
    return f"…/{folder[2]}/{rest}" if folder[0] else place


def settings_rows(loaders: Sequence[LoaderFacts]) -> list[list[str]]:
    """Return each argument with its value for every loader, and where the loader is made."""
    values = {name: [one.facts.get(name) for one in loaders] for name in LOADER_FACTS}
    rows = [
        [name, *(ABSENT if value is None else str(value) for value in of_name)]
        for name, of_name in values.items()
        if name == "dataset" or any(value is not None for value in of_name)
    ]
    return [*rows, ["made at", *(str(one.facts.get("made") or ABSENT) for one in loaders)]]


def diff_lines(diff: str) -> Iterator[tuple[str, str]]:
    """Yield lines with their kind (`more`, `less`, `same` or `place`), without file names, which appear above."""
    lines = list(dropwhile(lambda line: line.startswith(("--- ", "+++ ")), diff.splitlines()))
    for line in lines[:MOST_DIFF_LINES]:
        yield _DIFF.get(line[:1], "same"), line.expandtabs()
    if len(lines) > MOST_DIFF_LINES:
        yield "place", f"… and {len(lines) - MOST_DIFF_LINES} lines more"


_TABLES = (rank_rows, line_rows, settings_rows, diff_lines)
"""Functions that the templates call."""


MOST_BYTES = 1_000_000
"""Size limit of the file in bytes, since it is mailed and opened on phones."""
MOST_PICTURED = 500_000
"""Size limit of all pictures in the file, in bytes."""
TEXT_LIMITS = (1_200, 240, 60)
"""Maximum characters of one text. Smaller limits apply if the file would be too large."""
_BADGES = {"red": "● Input-bound", "yellow": "◐ Partly input-bound", "green": "○ Not input-bound"}
"""Text equivalents of the colours for accessibility."""


def html_page(view: ReportView, pictures: Mapping[int, FaultPicture] = MappingProxyType({})) -> str:
    """Return a document under 1 MB without scripts or external resources; the last `pictures` may not fit."""
    style = (FOLDER / "style.css").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    colour = "" if view.waits is None else heat(view.waits)
    pids = [step.budget.pid for step in view.steps[:1]]
    trainers = [with_loaders_as_one(one) for one in view.session.trainers if one.pid in pids]
    embedded = _embedded(pictures)
    images = "img-src data:; " if embedded else ""
    context = {
        "view": view,
        "heat": colour,
        "badge": _BADGES.get(colour, ""),
        "style": Markup(style),
        "policy": f"default-src 'none'; style-src 'sha256-{digest}'; {images}base-uri 'none'; form-action 'none'",
        "pictures": embedded,
        "settings": [loader for one in trainers for loader in one.loaders],
        "MOST_REMEDIES": MOST_REMEDIES,
        **{one.__name__: one for one in (counted, part_line, *_TABLES)},
    }
    for limit in TEXT_LIMITS:
        page = environment(limit).get_template("page.html").render(context, contents=[])
        if len(page.encode()) < MOST_BYTES:
            break
    return page


def _embedded(pictures: Mapping[int, FaultPicture]) -> dict[int, tuple[Markup, str]]:
    """Return the address and the text of each picture, the address with the picture itself."""
    found, left = {}, MOST_PICTURED
    for place, picture in pictures.items():
        address = f"data:image/png;base64,{base64.b64encode(picture.png).decode()}"
        left -= len(address)
        if left >= 0:
            found[place] = Markup(address), picture.text
    return found
