"""How batches are made: what each worker spends on one, by stage, and what each stage costs a sample."""

from __future__ import annotations

from collections import Counter

from headrace.doctor.measure.batches import batch_stages
from headrace.doctor.measure.diagnosis import Making, StagePart
from headrace.doctor.measure.steps import Training
from headrace.doctor.report.escaping import counted, duration, number, share
from headrace.doctor.report.html.bars import Segment, stacked
from headrace.doctor.report.html.blocks import Block, Cell, Key, Section, Table
from headrace.doctor.report.html.colours import of_category
from headrace.doctor.report.html.report import Report
from headrace.doctor.session.model import Maker

MOST_LOADERS, MOST_WORKERS, MOST_STAGES = 4, 32, 24
HOW_WORKERS = (
    "Each bar is the mean batch of one worker, by what it was spent on; all bars are from zero to the slowest worker. "
    "A worker whose bar is longer than the others' is slower: it has harder samples, or shares a core."
)
HOW_STAGES = (
    "A stage is charged with what the stages inside it do not take, so the shares sum to the whole. CPU is how much of "
    "its time a stage computes; the rest it waits for a disk, a network, a lock or a core."
)


def workers(report: Report) -> Section | None:
    budget = report.budget
    makings = [making for making in report.diagnosis.makings if budget is not None and making.trainer == budget.pid]
    if not makings:
        return None
    blocks: list[Block] = []
    by_worker = _by_worker(report)
    if by_worker is not None:
        blocks.append(by_worker)
    blocks += [_stages(making, several=len(makings) > 1) for making in makings[:MOST_LOADERS] if making.stages]
    return Section("workers", f"How batches are made{report.whose}", blocks, lead=_lead(makings[0]))


def _lead(making: Making) -> str:
    who = counted(making.workers, "worker") if making.workers else "The training thread makes its batches itself"
    busy = f", busy {share(making.busy)} of the time" if making.workers else ""
    again = ", new workers for each" if making.respawned else ""
    start = f"{duration(making.start_up_us)} to start, {duration(making.first_batch_us)} to the first batch"
    passes = counted(making.passes, "pass")
    cost = f"{duration(making.batch_us)} a batch, {number(making.cores)} cores used"
    return f"{who}{busy}; {cost}. {start}; {passes}{again}."


def _by_worker(report: Report) -> Table | None:
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
    return Table(
        "By worker",
        ["", "", "a batch", "batches"],
        rows,
        HOW_WORKERS,
        figures=frozenset({2, 3}),
        charts=frozenset({1}),
        keys=[Key(of_category(name), name) for name in order],
        left_out=f"and {counted(left, 'worker')} more" if left > 0 else "",
    )


def _mean_batch(maker: Maker, training: Training) -> tuple[int, dict[str, float]]:
    """How many batches it made in the measured steps, and what one took by category, sending included."""
    start, end = training.steps[0].start, training.steps[-1].end
    rows = [row for row, fetched in enumerate(maker.batches.fetched) if start <= fetched <= end]
    walls: Counter[str] = Counter()
    for row in rows:
        for stage, (_, wall, _) in batch_stages(maker, row).items():
            walls[stage.partition(":")[0]] += int(wall)
    return len(rows), {name: wall / len(rows) for name, wall in walls.items()}


def _worker_row(maker: Maker, count: int, stages: dict[str, float], order: list[str], top: float) -> list[Cell]:
    name = "training thread" if maker.worker is None else f"worker {maker.worker}"
    whole = sum(stages.values())
    pieces = [
        Segment(of_category(one), stages[one], f"{one}: {duration(stages[one])}, {share(stages[one] / whole)}")
        for one in order
        if one in stages and whole > 0
    ]
    label = f"{name}: {', '.join(piece.text for piece in pieces)}"
    return [name, stacked(pieces, top=top, label=label, labelled=False), duration(whole), str(count)]


def _stages(making: Making, *, several: bool) -> Table:
    top = max(stage.share for stage in making.stages)
    left = len(making.stages) - MOST_STAGES
    return Table(
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
    bar = stacked([Segment(of_category(stage.category), stage.share, label)], top=top, label=label, labelled=False)
    calls = number(stage.calls) if stage.calls > 0 else ""
    return [name, bar, share(stage.share), duration(stage.wall_us), share(cpu), calls]
