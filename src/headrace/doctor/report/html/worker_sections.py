"""Sections on workers: what batches cost by stage, slow samples, and ranks."""

from __future__ import annotations

from collections import Counter

from headrace.doctor.measure.batches import batch_stages
from headrace.doctor.measure.diagnosis import LoaderProduction, RankView, StagePart
from headrace.doctor.measure.ranks import is_late
from headrace.doctor.measure.steps import MeasuredTraining
from headrace.doctor.report.escaping import counted, duration, number, share
from headrace.doctor.report.html.blocks import Block, Cell, HtmlTable, Key, ReportData, Section
from headrace.doctor.report.html.charts import BarSegment, category_colour, stacked
from headrace.doctor.report.terminal import SLOW
from headrace.doctor.session.model import BatchProducer

# -- from doctor/report/html/sections/workers.py: How batches are made: what each worker spends on one, by stage, and
# what each stage costs a sample.


MOST_LOADERS, MOST_WORKERS, MOST_STAGES = 4, 32, 24
HOW_WORKERS = (
    "Each bar is the mean batch of one worker, by what it was spent on; all bars are from zero to the slowest worker. "
    "A worker whose bar is longer than the others' is slower: it has harder samples, or shares a core."
)
HOW_STAGES = (
    "A stage is charged with what the stages inside it do not take, so the shares sum to the whole. CPU is how much of "
    "its time a stage computes; the rest it waits for a disk, a network, a lock or a core."
)


def workers(report: ReportData) -> Section | None:
    budget = report.budget
    makings = [making for making in report.diagnosis.makings if budget is not None and making.trainer == budget.pid]
    if not makings:
        return None
    blocks: list[Block] = []
    by_worker = _by_worker(report)
    if by_worker is not None:
        blocks.append(by_worker)
    blocks += [_stages(making, several=len(makings) > 1) for making in makings[:MOST_LOADERS] if making.stages]
    return Section("workers", f"How batches are made{report.whose}", blocks, lead=_workers_lead(makings[0]))


def _workers_lead(making: LoaderProduction) -> str:
    who = counted(making.workers, "worker") if making.workers else "The training thread makes its batches itself"
    busy = f", busy {share(making.busy)} of the time" if making.workers else ""
    again = ", new workers for each" if making.respawned else ""
    start = f"{duration(making.start_up_us)} to start, {duration(making.first_batch_us)} to the first batch"
    passes = counted(making.passes, "pass")
    cost = f"{duration(making.batch_us)} a batch, {number(making.cores)} cores used"
    return f"{who}{busy}; {cost}. {start}; {passes}{again}."


def _by_worker(report: ReportData) -> HtmlTable | None:
    training = report.training
    if training is None:
        return None
    makers = report.makers_of(training.trainer.pid, training.trainer.host)
    means = [(maker, *_mean_batch(maker, training)) for maker in makers]
    seen = [(maker, count, stages) for maker, count, stages in means if count]
    if not seen:
        return None
    top = max(sum(stages.values()) for _, _, stages in seen)
    heaviest = sum((Counter(stages) for _, _, stages in seen), Counter[str]())
    order = [name for name, _ in heaviest.most_common()]
    rows = [_worker_row(maker, count, stages, order, top) for maker, count, stages in seen[:MOST_WORKERS]]
    left = len(seen) - MOST_WORKERS
    return HtmlTable(
        "By worker",
        ["", "", "a batch", "batches"],
        rows,
        HOW_WORKERS,
        figures=frozenset({2, 3}),
        charts=frozenset({1}),
        keys=[Key(category_colour(name), name) for name in order],
        left_out=f"and {counted(left, 'worker')} more" if left > 0 else "",
    )


def _mean_batch(maker: BatchProducer, training: MeasuredTraining) -> tuple[int, dict[str, float]]:
    """How many batches it made in the measured steps, and what one took by category, sending included."""
    start, end = training.steps[0].start, training.steps[-1].end
    rows = [row for row, fetched in enumerate(maker.batches.fetched) if start <= fetched <= end]
    walls: Counter[str] = Counter()
    for row in rows:
        for stage, (_, wall, _) in batch_stages(maker, row).items():
            walls[stage.partition(":")[0]] += int(wall)
    return len(rows), {name: wall / len(rows) for name, wall in walls.items()}


def _worker_row(maker: BatchProducer, count: int, stages: dict[str, float], order: list[str], top: float) -> list[Cell]:
    name = "training thread" if maker.worker is None else f"worker {maker.worker}"
    whole = sum(stages.values())
    pieces = [
        BarSegment(category_colour(one), stages[one], f"{one}: {duration(stages[one])}, {share(stages[one] / whole)}")
        for one in order
        if one in stages and whole > 0
    ]
    label = f"{name}: {', '.join(piece.text for piece in pieces)}"
    return [name, stacked(pieces, top=top, label=label, labelled=False), duration(whole), str(count)]


def _stages(making: LoaderProduction, *, several: bool) -> HtmlTable:
    top = max(stage.share for stage in making.stages)
    left = len(making.stages) - MOST_STAGES
    return HtmlTable(
        f"By stage, loader {making.loader}" if several else "By stage",
        ["", "", "share", "a sample", "CPU", "calls a batch"],
        [_stage_row(stage, top) for stage in making.stages[:MOST_STAGES]],
        HOW_STAGES,
        figures=frozenset({2, 3, 4, 5}),
        charts=frozenset({1}),
        left_out=f"and {counted(left, 'stage')} more" if left > 0 else "",
    )


def _stage_row(stage: StagePart, top: float) -> list[Cell]:
    name = f"{stage.category} {stage.label}" if stage.label else stage.category
    label = f"{name}: {share(stage.share)} of making a batch"
    cpu = None if stage.cpu_us is None or stage.wall_us <= 0 else min(stage.cpu_us / stage.wall_us, 1.0)
    bar = stacked(
        [BarSegment(category_colour(stage.category), stage.share, label)], top=top, label=label, labelled=False
    )
    calls = number(stage.calls) if stage.calls > 0 else ""
    return [name, bar, share(stage.share), duration(stage.wall_us), share(cpu), calls]


# -- from doctor/report/html/sections/samples.py: The slowest samples, and the lines of the user's own code that time
# was seen in.


MOST_SAMPLES = 16
LEAST_LINE_SHARE = 0.005
"""Of the making of batches, below which a line is not worth one."""
HOW_SLOW = (
    "Times is against the median sample; those below twice of it are not shown. A batch is as late as its slowest "
    "sample, and, in order, holds up those behind it."
)
HOW_LINES = (
    "Every few milliseconds it was looked at where the making of a batch stood; the share is that of the innermost "
    "line of your own code, calls into libraries included."
)


def samples(report: ReportData) -> Section | None:
    budget = report.budget
    makings = [making for making in report.diagnosis.makings if budget is None or making.trainer == budget.pid]
    slow: list[list[Cell]] = [
        [one.key, duration(one.wall_us), f"{number(one.times)} ×", one.stage.replace(":", " ", 1)]
        for making in makings
        for one in making.slow
        if one.times >= SLOW
    ]
    lines = [(line.place, line.share) for making in makings for line in making.lines]
    blocks: list[Block] = []
    if slow:
        head = ["sample", "took", "times", "most in"]
        blocks.append(HtmlTable("Slow samples", head, slow[:MOST_SAMPLES], HOW_SLOW, figures=frozenset({1, 2})))
    if lines:
        blocks.append(_lines(lines))
    return Section("samples", "Slow samples and lines", blocks) if blocks else None


def _lines(lines: list[tuple[str, float]]) -> HtmlTable:
    top = max(of_making for _, of_making in lines)
    rows: list[list[Cell]] = [
        [_shortened(place), _line_bar(place, of_making, top), share(of_making)]
        for place, of_making in sorted(lines, key=lambda line: -line[1])[:MOST_SAMPLES]
        if of_making >= LEAST_LINE_SHARE
    ]
    head = ["line of your code", "", "of making"]
    return HtmlTable("Lines", head, rows, HOW_LINES, figures=frozenset({2}), charts=frozenset({1}), long_names=True)


def _shortened(place: str) -> str:
    """Of the path, the folder and the file: `…/data/dataset.py:41:__getitem__`."""
    path, _, rest = place.rpartition("/")
    folder = path.rpartition("/")
    return f"…/{folder[2]}/{rest}" if folder[0] else place


def _line_bar(place: str, of_making: float, top: float) -> Cell:
    label = f"{place}: {share(of_making)} of making batches"
    return stacked([BarSegment("slate", of_making, label)], top=top, label=label, labelled=False)


# -- from doctor/report/html/sections/ranks.py: The ranks beside each other.


MOST_RANKS = 64
HOW_RANKS = (
    "Each bar is a step of one rank, from zero to the longest: what it waits for data, and then for its peers. The "
    "ranks wait for one another in every step, so the one that is last makes all of them slow: it waits for nobody. "
    "Last in is the share of the steps in which it was; late by, how long the others waited for it then."
)


def ranks(report: ReportData) -> Section | None:
    views = sorted(report.diagnosis.ranks, key=lambda rank: (-rank.late, rank.rank))
    if len(views) < 2:
        return None
    top = max(rank.step_us for rank in views)
    table = HtmlTable(
        "",
        ["", "", "a step", "last in", "late by", "waits for data", "for a peer", "late because of"],
        [_rank_row(rank, top) for rank in views[:MOST_RANKS]],
        HOW_RANKS,
        figures=frozenset({2, 3, 4, 5, 6}),
        charts=frozenset({1}),
        keys=[
            Key("wait", "waits for data"),
            Key("pink", "waits for a peer"),
            Key("purple", "collectives themselves"),
            Key("other", "the rest of the step"),
        ],
        left_out=f"and {counted(len(views) - MOST_RANKS, 'rank')} more" if len(views) > MOST_RANKS else "",
    )
    first = views[0]
    late = f"Rank {first.rank} is the last in {share(first.late)} of the steps." if is_late(first, len(views)) else ""
    return Section(
        "ranks", f"{len(views)} ranks beside each other", [table], lead=late or "No rank is late often and by much."
    )


def _rank_row(rank: RankView, top: float) -> list[Cell]:
    peer, own = rank.peer_wait_us or 0.0, rank.collective_us or 0.0
    rest = max(rank.step_us - rank.data_wait_us - peer - own, 0.0)
    pieces = [
        BarSegment("wait", rank.data_wait_us, f"waits for data: {duration(rank.data_wait_us)}"),
        BarSegment("pink", peer, f"waits for a peer: {duration(rank.peer_wait_us)}"),
        BarSegment("purple", own, f"collectives: {duration(rank.collective_us)}"),
        BarSegment("other", rest, f"rest: {duration(rest)}"),
    ]
    label = f"rank {rank.rank}, a step of {duration(rank.step_us)}: {', '.join(piece.text for piece in pieces)}"
    cause = rank.cause.replace(":", " ", 1) if rank.cause is not None else ""
    bar = stacked(pieces, top=top, label=label, labelled=False)
    waits = [duration(rank.lateness_us), duration(rank.data_wait_us), duration(rank.peer_wait_us)]
    return [f"rank {rank.rank}", bar, duration(rank.step_us), share(rank.late), *waits, cause]
