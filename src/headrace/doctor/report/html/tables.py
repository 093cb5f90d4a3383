"""Rows of the HTML report's tables that hold charts, and the legends that explain their colours."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import dropwhile

from markupsafe import Markup

from headrace.doctor.measure import MeasuredTraining, StepBudget, TimePart, batch_stages
from headrace.doctor.quantities import ABSENT, duration, percent
from headrace.doctor.report.html.charts import (
    BarMeasure,
    BarSegment,
    Key,
    category_colour,
    measures,
    part_colour,
    stacked,
)
from headrace.doctor.report.html.report_data import ReportData
from headrace.doctor.report.remedy_text import RemedyRow, bounds, remedy_rows, times
from headrace.doctor.session.model import BatchProducer, Machine

Row = list[str | Markup]


@dataclass(frozen=True)
class ChartTable:
    """Rows with charts in them, and the legend of these."""

    rows: list[Row]
    keys: list[Key]


MOST_DIFF_LINES = 120
MOST_REMEDIES = 24
"""Remedies that are shown."""
LOADER_FACTS = (
    "num_workers",
    "batch_size",
    "prefetch_factor",
    "persistent_workers",
    "pin_memory",
    "in_order",
    "start_method",
    "length",
    "dataset",
)
RANK_KEYS = (
    Key("wait", "waits for data"),
    Key("pink", "waits for a peer"),
    Key("purple", "collectives themselves"),
    Key("other", "the rest of the step"),
)
_DIFF = {"+": "more", "-": "less", "@": "place"}


def step_keys(budget: StepBudget) -> list[Key]:
    """Return the figures behind the bars: what a part takes, its share, and its share as the GPU sees it."""
    gpu = {part.name: f" · GPU {percent(part.share)}" for part in budget.device or []}
    names = {part.name: f"{duration(part.us)} · {percent(part.share)}" for part in budget.parts if part.us > 0}
    names |= {name: ABSENT for name in gpu if name not in names}
    return [Key(part_colour(name), name, figure + gpu.get(name, "")) for name, figure in names.items()]


def parts_bar(parts: list[TimePart], whole_us: float) -> Markup:
    """Draw the parts of a step."""
    said = ", ".join(f"{part.name} {duration(part.us)} ({percent(part.share)})" for part in parts if part.us > 0)
    segments = [
        BarSegment(part_colour(part.name), part.us, f"{part.name}: {duration(part.us)}, {percent(part.share)}")
        for part in parts
    ]
    return stacked(segments, top=whole_us, label=said)


def one_bar(colour: str, value: float, top: float, label: str) -> Markup:
    """Draw a bar of one piece; `label` is what it says in words."""
    return stacked([BarSegment(colour, value, label)], top=top, label=label, labelled=False)


def shortened(place: str) -> str:
    """Keep the file and its folder of a path: `…/data/dataset.py:41:__getitem__`."""
    path, _, rest = place.rpartition("/")
    folder = path.rpartition("/")
    return f"…/{folder[2]}/{rest}" if folder[0] else place


def worker_table(report: ReportData) -> ChartTable:
    """Return the workers of the trainer by their number; no rows where none made a batch in the measured steps."""
    training = report.training
    if training is None:
        return ChartTable([], [])
    makers = report.makers_of(training.trainer.pid, training.trainer.host)
    seen = [(maker, count, stages) for maker in makers for count, stages in [_mean_batch(maker, training)] if count]
    top = max((sum(stages.values()) for _, _, stages in seen), default=0.0)
    heaviest = sum((Counter(stages) for _, _, stages in seen), Counter[str]())
    order = [name for name, _ in heaviest.most_common()]
    rows = [_worker_row(maker, count, stages, order, top) for maker, count, stages in seen]
    return ChartTable(rows, [Key(category_colour(name), name) for name in order])


def _mean_batch(maker: BatchProducer, training: MeasuredTraining) -> tuple[int, dict[str, float]]:
    """Return how many batches it made in the measured steps, and what one took by category, sending included."""
    start, end = training.steps[0].start, training.steps[-1].end
    rows = [row for row, fetched in enumerate(maker.batches.fetched) if start <= fetched <= end]
    walls: Counter[str] = Counter()
    for row in rows:
        for stage, (_, wall, _) in batch_stages(maker, row).items():
            walls[stage.partition(":")[0]] += int(wall)
    return len(rows), {name: wall / len(rows) for name, wall in walls.items()}


def _worker_row(maker: BatchProducer, count: int, stages: dict[str, float], order: list[str], top: float) -> Row:
    name = "training thread" if maker.worker is None else f"worker {maker.worker}"
    whole = sum(stages.values())
    pieces = [
        BarSegment(category_colour(one), stages[one], f"{one}: {duration(stages[one])}, {percent(stages[one] / whole)}")
        for one in order
        if one in stages and whole > 0
    ]
    label = f"{name}: {', '.join(piece.text for piece in pieces)}"
    return [name, stacked(pieces, top=top, label=label, labelled=False), duration(whole), str(count)]


def remedy_table(report: ReportData) -> ChartTable:
    """Return no rows where no remedy helps, or where the baseline is not known."""
    prescription, budget = report.prescription, report.budget
    assert prescription is not None
    rows, floors, again_us = remedy_rows(prescription), prescription.floors, prescription.again_us
    now_us = floors.observed_us if floors is not None else budget.mean_us if budget is not None else 0.0
    if not rows.helps or now_us <= 0:
        return ChartTable([], [])
    floor_us = None if floors is None else floors.replay_us
    drawn = [replace(row, title=f"{place}. {row.title}") for place, row in enumerate(rows.helps[:MOST_REMEDIES], 1)]
    if len(rows.helps) > 1:
        numbers = [str(number) for number in rows.numbers if number <= MOST_REMEDIES]
        title = f"{rows.together.title}: {', '.join(numbers)}" if numbers else rows.together.title
        drawn.append(replace(rows.together, title=", ".join(filter(None, (title, rows.together.without)))))
    bars = [_bars(row) for row in drawn]
    reaches = [bar.value if bar.bounds is None else bar.bounds[1] for of_row in bars for bar in of_row]
    top = max([now_us, again_us or 0.0, *reaches])
    runs = [("Baseline", now_us), *([] if again_us is None else [("Baseline, again", again_us)])]
    shown: list[Row] = []
    for title, us in runs:
        label = f"{title[:1].lower()}{title[1:]} {duration(us)} a step"
        chart = measures([BarMeasure("now", us)], top=top, label=label, mark=floor_us)
        shown.append([title, chart, duration(us), ""])
    shown += [_remedy_row(row, own, top=top, floor_us=floor_us) for row, own in zip(drawn, bars, strict=True)]
    keys = [Key("now", "baseline"), Key("predicted", "predicted")]
    if any(row.outcome is not None for row in drawn):
        keys.append(Key("proved", "proved"))
    if floor_us is not None:
        keys.append(Key("floor", "lower bound", duration(floor_us)))
    return ChartTable(shown, keys)


def gain(row: RemedyRow) -> str:
    """Return how many times as fast a step is with it, in words."""
    speedup = row.newest[1]
    return "not recommended" if row.is_refused else "" if speedup is None else times(speedup)


def diff_lines(diff: str) -> Iterator[tuple[str, str]]:
    """Yield lines with their kind (`more`, `less`, `same` or `place`), without the files' names, which stand above."""
    lines = list(dropwhile(lambda line: line.startswith(("--- ", "+++ ")), diff.splitlines()))
    for line in lines[:MOST_DIFF_LINES]:
        yield _DIFF.get(line[:1], "same"), line.expandtabs()
    if len(lines) > MOST_DIFF_LINES:
        yield "place", f"… and {len(lines) - MOST_DIFF_LINES} lines more"


def _remedy_row(row: RemedyRow, bars: Sequence[BarMeasure], *, top: float, floor_us: float | None) -> Row:
    """Return the proof's figures, where there is one, else the prediction's."""
    words = "; ".join(filter(None, (row.predicted and f"predicted {row.predicted}", row.proved)))
    chart = measures(bars, top=top, label=words, mark=floor_us) if bars else words
    return [row.title, chart, duration(row.newest[0]), gain(row)]


def _bars(row: RemedyRow) -> list[BarMeasure]:
    bars, predicted, outcome = [], row.prediction, row.outcome
    if predicted is not None:
        bars.append(BarMeasure("predicted", predicted.step_us, bounds(predicted.low_us, predicted.high_us)))
    if outcome is not None and outcome.step_us is not None:
        bars.append(BarMeasure("proved", outcome.step_us, bounds(outcome.low_us, outcome.high_us)))
    return bars


def software(report: ReportData, machine: Machine) -> str:
    """Return the versions of the first process that trains there."""
    session, host = report.session, machine.host
    trainers = {trainer.pid for trainer in session.trainers if trainer.host == host}
    process = next((one for one in session.processes if one.pid in trainers and one.host == host), None)
    if process is None:
        return ""
    own, torch = (found if isinstance(found := process.facts.get(name), dict) else {} for name in ("process", "torch"))
    told = {"Python": own.get("python"), "torch": torch.get("version"), "CUDA": torch.get("cuda")}
    return ", ".join(f"{name} {version}" for name, version in told.items() if version)
