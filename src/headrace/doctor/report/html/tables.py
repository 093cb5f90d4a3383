"""Rows of the HTML report's tables, with the bars in them and the legends that explain their colours."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import dropwhile, islice
from typing import Any

from markupsafe import Markup

from headrace.doctor.causes import hanging
from headrace.doctor.measure import (
    LoaderProduction,
    MeasuredTraining,
    RankView,
    StagePart,
    StepBudget,
    TimePart,
    batch_stages,
    is_late,
)
from headrace.doctor.quantities import ABSENT, counted, duration, number, percent
from headrace.doctor.report.html.charts import (
    BarMeasure,
    BarSegment,
    category_colour,
    measures,
    part_colour,
    stacked,
)
from headrace.doctor.report.html.report_data import ReportData
from headrace.doctor.report.remedy_text import RemedyRow, RemedyRows, bound_rows, bounds, remedy_rows, times
from headrace.doctor.report.run_text import computing_share, name_text, note_texts, stage_text, start_up_text
from headrace.doctor.report.terminal import SLOW
from headrace.doctor.session.model import BatchProducer, LoaderFacts, Machine, Session


@dataclass(frozen=True)
class Key:
    """An entry of a legend: a colour's class, what it stands for, and its figure."""

    colour: str
    name: str
    figure: str = ""


Row = list[str | Markup]
MOST_DIFF_LINES = 120
MOST_STACKS = 60
MOST_REMEDIES = 24
"""Remedies that are shown."""
LEAST_LINE_SHARE = 0.005
"""Share of batch production below which a line of code is left out."""
LOADER_FACTS = (
    "num_workers",
    "batch_size",
    "prefetch_factor",
    "persistent_workers",
    "pin_memory",
    "in_order",
    "start_method",
    "length",
)
RANK_KEYS = (
    Key("wait", "waits for data"),
    Key("pink", "waits for a peer"),
    Key("purple", "collectives themselves"),
    Key("other", "the rest of the step"),
)
_DIFF = {"+": "more", "-": "less", "@": "place"}


def left_out(many: Sequence[Any], most: int, one: str) -> str:
    """Return how many rows are not shown, in words; empty where all are."""
    return f"and {counted(len(many) - most, one)} more" if len(many) > most else ""


# Steps


def step_rows(budget: StepBudget) -> list[Row]:
    """Return an average step, as the training thread and as the GPU see it."""
    rows: list[Row] = [["training thread", _parts_bar(budget.parts, budget.mean_us), duration(budget.mean_us)]]
    if budget.device:
        whole = sum(part.us for part in budget.device)
        rows.append(["GPU", _parts_bar(budget.device, whole), duration(whole)])
    return rows


def step_keys(budget: StepBudget) -> list[Key]:
    """Return the figures behind the bars: what a part takes, its share, and its share as the GPU sees it."""
    gpu = {part.name: f" · GPU {percent(part.share)}" for part in budget.device or []}
    names = {part.name: f"{duration(part.us)} · {percent(part.share)}" for part in budget.parts if part.us > 0}
    names |= {name: ABSENT for name in gpu if name not in names}
    return [Key(part_colour(name), name, figure + gpu.get(name, "")) for name, figure in names.items()]


def bound_table(report: ReportData, means: dict[str, str]) -> list[Row]:
    """Return the lower bounds of a step under their names, each with what it `means`."""
    assert report.prescription is not None
    assert report.prescription.floors is not None
    rows = list(bound_rows(report.prescription.floors))
    top = max(us for _, us in rows if us is not None)
    kinds = ["now", *["floor"] * (len(rows) - 1)]
    return [
        [
            name,
            measures([] if us is None else [BarMeasure(kind, us)], top=top, label=f"{name}: {duration(us)} a step"),
            duration(us),
            means[name],
        ]
        for kind, (name, us) in zip(kinds, rows, strict=True)
    ]


def wait_rows(parts: list[TimePart], means: dict[str, str] | None = None) -> list[Row]:
    """Return parts of the wait for data, heaviest first, each with what it means where that is given."""
    heaviest = sorted((part for part in parts if part.us > 0), key=lambda part: -part.us)
    return [_wait_row(part, heaviest[0].us, means) for part in heaviest]


def _wait_row(part: TimePart, top: float, means: dict[str, str] | None) -> Row:
    colour = "wait" if means is not None else category_colour(part.name.partition(":")[0])
    label = f"{name_text(part.name)}: {duration(part.us)} a step, {percent(part.share)} of the wait"
    row: Row = [name_text(part.name), _one_bar(colour, part.us, top, label), duration(part.us), percent(part.share)]
    return row if means is None else [*row, means.get(part.name, "")]


def _parts_bar(parts: list[TimePart], whole_us: float) -> Markup:
    said = ", ".join(f"{part.name} {duration(part.us)} ({percent(part.share)})" for part in parts if part.us > 0)
    segments = [
        BarSegment(part_colour(part.name), part.us, f"{part.name}: {duration(part.us)}, {percent(part.share)}")
        for part in parts
    ]
    return stacked(segments, top=whole_us, label=said)


def _one_bar(colour: str, value: float, top: float, label: str) -> Markup:
    return stacked([BarSegment(colour, value, label)], top=top, label=label, labelled=False)


# Workers, samples and ranks


@dataclass(frozen=True)
class WorkerTable:
    """Mean batch of each worker, split by stage."""

    rows: list[Row]
    keys: list[Key]


def loader_lead(loader: LoaderProduction) -> str:
    """Return who makes the batches, how busily, and what starting costs."""
    who = counted(loader.workers, "worker") if loader.workers else "The training thread makes its batches itself"
    busy = f", busy {percent(loader.busy)} of the time" if loader.workers else ""
    cost = f"{duration(loader.batch_us)} a batch, {number(loader.cores)} cores used"
    return f"{who}{busy}; {cost}. Start-up: {start_up_text(loader)}."


def worker_table(report: ReportData) -> WorkerTable:
    """Return the workers of the trainer by their number; no rows where none made a batch in the measured steps."""
    training = report.training
    if training is None:
        return WorkerTable([], [])
    makers = report.makers_of(training.trainer.pid, training.trainer.host)
    seen = [(maker, count, stages) for maker in makers for count, stages in [_mean_batch(maker, training)] if count]
    top = max((sum(stages.values()) for _, _, stages in seen), default=0.0)
    heaviest = sum((Counter(stages) for _, _, stages in seen), Counter[str]())
    order = [name for name, _ in heaviest.most_common()]
    rows = [_worker_row(maker, count, stages, order, top) for maker, count, stages in seen]
    return WorkerTable(rows, [Key(category_colour(name), name) for name in order])


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


def stage_rows(loader: LoaderProduction) -> list[Row]:
    """Return what each stage of making a batch costs."""
    top = max((stage.share for stage in loader.stages), default=0.0)
    return [_stage_row(stage, top) for stage in loader.stages]


def _stage_row(stage: StagePart, top: float) -> Row:
    name = stage_text(stage)
    bar = _one_bar(category_colour(stage.category), stage.share, top, f"{name}: {percent(stage.share)} of a batch")
    calls = number(stage.calls) if stage.calls > 0 else ""
    return [name, bar, percent(stage.share), duration(stage.wall_us), percent(computing_share(stage)), calls]


def slow_rows(loaders: list[LoaderProduction]) -> list[Row]:
    """Return the slowest samples."""
    return [
        [one.key, duration(one.wall_us), f"{number(one.times)} ×", name_text(one.stage)]
        for loader in loaders
        for one in loader.slow
        if one.times >= SLOW
    ]


def line_rows(loaders: list[LoaderProduction]) -> list[Row]:
    """Return the lines of the user's own code that time was seen in."""
    lines = sorted((line for loader in loaders for line in loader.lines), key=lambda line: -line.share)
    return [
        [
            _shortened(line.place),
            _one_bar("slate", line.share, lines[0].share, f"{line.place}: {percent(line.share)} of batch production"),
            percent(line.share),
        ]
        for line in lines
        if line.share >= LEAST_LINE_SHARE
    ]


def _shortened(place: str) -> str:
    """Keep the file and its folder of a path: `…/data/dataset.py:41:__getitem__`."""
    path, _, rest = place.rpartition("/")
    folder = path.rpartition("/")
    return f"…/{folder[2]}/{rest}" if folder[0] else place


def rank_lead(ranks: list[RankView]) -> str:
    """Return which rank is late, if one is."""
    first = ranks[0]
    if is_late(first, len(ranks)):
        return f"Rank {first.rank} is the last in {percent(first.late)} of the steps."
    return "No rank is late often and by much."


def rank_rows(ranks: list[RankView]) -> list[Row]:
    """Return a step of each rank: what it waits for data, and then for its peers."""
    top = max((rank.step_us for rank in ranks), default=0.0)
    return [_rank_row(rank, top) for rank in ranks]


def _rank_row(rank: RankView, top: float) -> Row:
    peer, own = rank.peer_wait_us or 0.0, rank.collective_us or 0.0
    rest = max(rank.step_us - rank.data_wait_us - peer - own, 0.0)
    pieces = [
        BarSegment("wait", rank.data_wait_us, f"waits for data: {duration(rank.data_wait_us)}"),
        BarSegment("pink", peer, f"waits for a peer: {duration(rank.peer_wait_us)}"),
        BarSegment("purple", own, f"collectives: {duration(rank.collective_us)}"),
        BarSegment("other", rest, f"rest: {duration(rest)}"),
    ]
    label = f"rank {rank.rank}, a step of {duration(rank.step_us)}: {', '.join(piece.text for piece in pieces)}"
    bar = stacked(pieces, top=top, label=label, labelled=False)
    waits = [duration(rank.lateness_us), duration(rank.data_wait_us), duration(rank.peer_wait_us)]
    cause = "" if rank.cause is None else name_text(rank.cause)
    return [f"rank {rank.rank}", bar, duration(rank.step_us), percent(rank.late), *waits, cause]


# Remedies


@dataclass(frozen=True)
class RemedyTable:
    """A step with each remedy, beside the step without any."""

    rows: list[Row]
    keys: list[Key]


def remedy_table(report: ReportData) -> RemedyTable:
    """Return no rows where no remedy helps, or where the baseline is not known."""
    prescription, budget = report.prescription, report.budget
    assert prescription is not None
    rows, floors, again_us = remedy_rows(prescription), prescription.floors, prescription.again_us
    now_us = floors.observed_us if floors is not None else budget.mean_us if budget is not None else 0.0
    if not rows.helps or now_us <= 0:
        return RemedyTable([], [])
    floor_us = None if floors is None else floors.replay_us
    drawn = [replace(row, title=f"{place}. {row.title}") for place, row in enumerate(rows.helps[:MOST_REMEDIES], 1)]
    if len(rows.helps) > 1:
        drawn.append(replace(rows.together, title=_together(rows)))
    top = max([now_us, again_us or 0.0, *(reach for row in drawn for reach in _reaches(row))])
    runs = [("Baseline", now_us), *([] if again_us is None else [("Baseline, again", again_us)])]
    shown = [_without(title, us, top=top, floor_us=floor_us) for title, us in runs]
    keys = [Key("now", "baseline"), Key("predicted", "predicted")]
    if any(row.outcome is not None for row in drawn):
        keys.append(Key("proved", "proved"))
    if floor_us is not None:
        keys.append(Key("floor", "lower bound", duration(floor_us)))
    return RemedyTable([*shown, *(_remedy_row(row, top=top, floor_us=floor_us) for row in drawn)], keys)


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


def _without(title: str, us: float, *, top: float, floor_us: float | None) -> Row:
    """Return the row of a run without any remedy."""
    label = f"{title[:1].lower()}{title[1:]} {duration(us)} a step"
    return [title, measures([BarMeasure("now", us)], top=top, label=label, mark=floor_us), duration(us), ""]


def _together(rows: RemedyRows) -> str:
    """Return which of them go together, by their numbers."""
    numbers = [str(number) for number in rows.numbers if number <= MOST_REMEDIES]
    title = f"{rows.together.title}: {', '.join(numbers)}" if numbers else rows.together.title
    return ", ".join(filter(None, (title, rows.together.without)))


def _reaches(row: RemedyRow) -> Iterator[float]:
    if row.prediction is not None:
        yield row.prediction.high_us
    if row.outcome is not None and row.outcome.step_us is not None:
        known = bounds(row.outcome.low_us, row.outcome.high_us)
        yield row.outcome.step_us if known is None else known[1]


def _remedy_row(row: RemedyRow, *, top: float, floor_us: float | None) -> Row:
    """Return the proof's figures, where there is one, else the prediction's."""
    bars, predicted, outcome = [], row.prediction, row.outcome
    if predicted is not None:
        bars.append(BarMeasure("predicted", predicted.step_us, bounds(predicted.low_us, predicted.high_us)))
    if outcome is not None and outcome.step_us is not None:
        bars.append(BarMeasure("proved", outcome.step_us, bounds(outcome.low_us, outcome.high_us)))
    words = "; ".join(filter(None, (row.predicted and f"predicted {row.predicted}", row.proved)))
    chart = measures(bars, top=top, label=words, mark=floor_us) if bars else words
    return [row.title, chart, duration(row.newest[0]), gain(row)]


# The machine, the DataLoaders and notes


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


def loader_head(loaders: list[LoaderFacts]) -> list[str]:
    """Return the head of `loader_rows`."""
    return ["DataLoader argument", *(f"loader {loader.number}" for loader in loaders)]


def loader_rows(loaders: list[LoaderFacts]) -> list[Row]:
    """Return the DataLoaders' arguments, a column each."""
    names = [name for name in LOADER_FACTS if any(loader.facts.get(name) is not None for loader in loaders)]
    rows: list[Row] = [[name, *(_said(loader.facts.get(name)) for loader in loaders)] for name in [*names, "dataset"]]
    return [*rows, ["iterated at", *(_place(loader.facts) for loader in loaders)]]


def note_rows(session: Session) -> list[tuple[str, str]]:
    """Return what the doctor could not see, each under a head."""
    return [(head.rstrip(": "), text.strip()) for head, text in note_texts(session)]


def hanging_processes(session: Session) -> Iterator[tuple[int, list[str]]]:
    """Yield the processes that hang, each with the lines of its stack."""
    for process, stack in islice(hanging(session), MOST_STACKS):
        yield process.pid, stack.rstrip().splitlines()


def _said(value: object) -> str:
    return ABSENT if value is None else str(value)


def _place(facts: dict[str, Any]) -> str:
    return f"{facts['file']}:{facts.get('line')}" if facts.get("file") else ABSENT
