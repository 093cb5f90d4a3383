"""Bars and figures of the HTML report's tables, and legends for their colours."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import dropwhile
from typing import NamedTuple

from markupsafe import Markup

from headrace.doctor.measure import StepBudget, TimePart, batch_stages
from headrace.doctor.quantities import ABSENT, duration, percent
from headrace.doctor.report.html.charts import (
    BarMeasure,
    BarSegment,
    ChartKey,
    part_colour,
    stacked,
)
from headrace.doctor.report.html.report_data import ReportData
from headrace.doctor.report.remedy_text import RemedyRow, bounds
from headrace.doctor.session.model import Machine

MOST_DIFF_LINES = 120
MOST_REMEDIES = 24
"""Maximum number of remedies shown."""
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
    ChartKey("wait", "waits for data"),
    ChartKey("pink", "waits for a peer"),
    ChartKey("purple", "collectives themselves"),
    ChartKey("other", "the rest of the step"),
)
_DIFF = {"+": "more", "-": "less", "@": "place"}


def step_keys(budget: StepBudget) -> list[ChartKey]:
    """Return the figures of each part: its time, its share, and its share on the GPU."""
    gpu = {part.name: f" · GPU {percent(part.share)}" for part in budget.device or []}
    names = {part.name: f"{duration(part.us)} · {percent(part.share)}" for part in budget.parts if part.us > 0}
    names |= {name: ABSENT for name in gpu if name not in names}
    return [ChartKey(part_colour(name), name, figure + gpu.get(name, "")) for name, figure in names.items()]


def parts_bar(parts: list[TimePart], whole_us: float) -> Markup:
    said = ", ".join(f"{part.name} {duration(part.us)} ({percent(part.share)})" for part in parts if part.us > 0)
    segments = [
        BarSegment(part_colour(part.name), part.us, f"{part.name}: {duration(part.us)}, {percent(part.share)}")
        for part in parts
    ]
    return stacked(segments, top=whole_us, label=said)


def one_bar(colour: str, value: float, top: float, label: str) -> Markup:
    """Draw a bar with a single segment; `label` is its text equivalent."""
    return stacked([BarSegment(colour, value, label)], top=top, label=label, labelled=False)


def shortened(place: str) -> str:
    """Shorten a path to the file and its folder: `…/data/dataset.py:41:__getitem__`."""
    path, _, rest = place.rpartition("/")
    folder = path.rpartition("/")
    return f"…/{folder[2]}/{rest}" if folder[0] else place


class MeanBatch(NamedTuple):
    """Mean batch of one worker in the measured steps."""

    worker: str
    batches: int
    stages: dict[str, float]
    """Microseconds by category, including sending."""

    @property
    def whole_us(self) -> float:
        return sum(self.stages.values())


def mean_batches(report: ReportData) -> list[MeanBatch]:
    """Return the mean batch of each worker that made a batch in the measured steps, by worker number."""
    training = report.training
    if training is None:
        return []
    start, end, trainer = training.steps[0].start, training.steps[-1].end, training.trainer
    own = [one for one in report.session.makers if (one.trainer, one.host) == (trainer.pid, trainer.host)]
    found = []
    for maker in sorted(own, key=lambda maker: (maker.worker or 0, maker.started or 0)):
        rows = [row for row, fetched in enumerate(maker.batches.fetched) if start <= fetched <= end]
        walls: Counter[str] = Counter()
        for row in rows:
            for stage, (_, wall, _) in batch_stages(maker, row).items():
                walls[stage.partition(":")[0]] += int(wall)
        name = "training thread" if maker.worker is None else f"worker {maker.worker}"
        if rows:
            found.append(MeanBatch(name, len(rows), {stage: wall / len(rows) for stage, wall in walls.items()}))
    return found


def heaviest_stages(batches: Sequence[MeanBatch]) -> list[str]:
    """Return the categories of all workers' stages, heaviest first."""
    whole = sum((Counter(one.stages) for one in batches), Counter[str]())
    return [name for name, _ in whole.most_common()]


def remedy_bars(row: RemedyRow) -> list[BarMeasure]:
    """Return bars for a remedy's prediction and proof."""
    bars, predicted, outcome = [], row.prediction, row.outcome
    if predicted is not None:
        bars.append(BarMeasure("predicted", predicted.step_us, bounds(predicted.low_us, predicted.high_us)))
    if outcome is not None and outcome.step_us is not None:
        bars.append(BarMeasure("proved", outcome.step_us, bounds(outcome.low_us, outcome.high_us)))
    return bars


def diff_lines(diff: str) -> Iterator[tuple[str, str]]:
    """Yield lines with their kind (`more`, `less`, `same` or `place`), without file names, which appear above."""
    lines = list(dropwhile(lambda line: line.startswith(("--- ", "+++ ")), diff.splitlines()))
    for line in lines[:MOST_DIFF_LINES]:
        yield _DIFF.get(line[:1], "same"), line.expandtabs()
    if len(lines) > MOST_DIFF_LINES:
        yield "place", f"… and {len(lines) - MOST_DIFF_LINES} lines more"


def software(report: ReportData, machine: Machine) -> str:
    """Return the versions of the first training process on the machine."""
    session, host = report.session, machine.host
    trainers = {trainer.pid for trainer in session.trainers if trainer.host == host}
    process = next((one for one in session.processes if one.pid in trainers and one.host == host), None)
    if process is None:
        return ""
    own, torch = (found if isinstance(found := process.facts.get(name), dict) else {} for name in ("process", "torch"))
    told = {"Python": own.get("python"), "torch": torch.get("version"), "CUDA": torch.get("cuda")}
    return ", ".join(f"{name} {version}" for name, version in told.items() if version)
