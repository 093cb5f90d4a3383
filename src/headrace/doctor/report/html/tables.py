"""Rows with bars for the HTML report's tables, and legends for their colours."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import dropwhile

from markupsafe import Markup

from headrace.doctor.quantities import ABSENT, duration
from headrace.doctor.report.html.charts import BarMeasure, ChartKey, colour_of, measures, stacked
from headrace.doctor.report.remedy_text import RemedyRow, bounds
from headrace.doctor.report.view import LoaderView, ReportView, Row
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


def bound_rows(view: ReportView) -> list[Cells]:
    top = max((one.share or 0.0 for one in view.bounds), default=0.0)
    found: list[Cells] = []
    for place, one in enumerate(view.bounds):
        bars = [BarMeasure("floor" if place else "now", segment.value) for segment in one.bar]
        found.append([one.label, measures(bars, top=top, label=f"{one.label}: {one.cells[0]} a step"), *one.cells])
    return found


def remedy_rows(view: ReportView) -> tuple[list[Cells], list[ChartKey]]:
    """Return a step as it is and with each remedy, and the legend; nothing if no step is known."""
    rows, known = view.remedies, {one.label: one.share for one in view.bounds}
    now_us = known.get("baseline") or (view.steps[0].budget.mean_us if view.steps else 0.0)
    floor_us = known.get("without data work", known.get("cached batches"))
    drawn = [(f"{place}. {row.title}", row) for place, row in enumerate(rows.helps[:MOST_REMEDIES], 1)]
    if len(rows.numbers) > 1:
        title = f"{rows.together.title}: {rows.combined}"
        drawn.append((f"{title}, {rows.together.without}" if rows.together.without else title, rows.together))
    if not drawn or now_us <= 0:
        return [], []
    bars = [_remedy_bars(row) for _, row in drawn]
    baselines = [("Baseline", now_us), ("Baseline, again", known.get("again"))]
    ends = [bar.bounds[1] if bar.bounds else bar.value for of_row in bars for bar in of_row]
    top = max([*ends, *(us for _, us in baselines if us is not None)])
    found: list[Cells] = []
    for name, us in baselines:
        if us is not None:
            label = f"{name.lower()} {duration(us)} a step"
            found.append(
                [name, measures([BarMeasure("now", us)], top=top, label=label, mark=floor_us), duration(us), ""]
            )
    for (name, row), of_row in zip(drawn, bars, strict=True):
        said = "; ".join(filter(None, (f"predicted {row.predicted}" if row.predicted else "", row.proved)))
        chart = measures(of_row, top=top, label=said, mark=floor_us) if of_row else said
        found.append([name, chart, duration(row.newest[0]), row.gain])
    keys = [ChartKey("now", "baseline"), ChartKey("predicted", "predicted")]
    keys += [ChartKey("proved", "proved")] if any(row.outcome for _, row in drawn) else []
    keys += [] if floor_us is None else [ChartKey("floor", "lower bound", duration(floor_us))]
    return found, keys


def _remedy_bars(row: RemedyRow) -> list[BarMeasure]:
    """Return bars for a remedy's prediction and proof."""
    bars, predicted, outcome = [], row.prediction, row.outcome
    if predicted is not None:
        bars.append(BarMeasure("predicted", predicted.step_us, bounds(predicted.low_us, predicted.high_us)))
    if outcome is not None and outcome.step_us is not None:
        bars.append(BarMeasure("proved", outcome.step_us, bounds(outcome.low_us, outcome.high_us)))
    return bars


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
