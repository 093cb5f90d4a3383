"""Rows with bars for the HTML report's tables, and legends for their colours."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import dropwhile

from markupsafe import Markup

from headrace.doctor.quantities import ABSENT
from headrace.doctor.report.html.charts import ChartKey, colour_of, stacked
from headrace.doctor.report.view import LoaderView, Row
from headrace.doctor.session.trainers import LOADER_FACTS, LoaderFacts

Cells = list[str | Markup]

MOST_DIFF_LINES = 120
MOST_REMEDIES = 24
"""Maximum number of remedies shown."""
RANK_KEYS = (
    ChartKey("wait", "waits for data"),
    ChartKey("pink", "waits for a peer"),
    ChartKey("purple", "collectives themselves"),
    ChartKey("other", "the rest of the step"),
)
_DIFF = {"+": "more", "-": "less", "@": "place"}


def rows(shown: Sequence[Row], *, colour: str = "", labelled: bool = False) -> list[Cells]:
    """Return rows with a bar after the label, all on one scale, in `colour` or in the segments' colours."""
    top, found = max((sum(one.value for one in row.bar) for row in shown), default=0.0), []
    for row in shown:
        said = [one.text for one in row.bar if one.text] or row.cells[:1]
        label = f"{row.label}: {', '.join(said)}"
        bar = stacked(row.bar, top=top, label=label, colour=colour, labelled=labelled)
        found.append([row.label, bar, *row.cells])
    return found


def keys(parts: Sequence[Row]) -> list[ChartKey]:
    """Return a legend with the figures of each part."""
    return [ChartKey(colour_of(one.label), one.label, " · ".join(filter(None, one.cells))) for one in parts]


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
