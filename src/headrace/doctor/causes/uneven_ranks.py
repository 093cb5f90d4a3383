"""Uneven ranks and devices: a late rank, different batch shapes per rank, and one process for several devices."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

import numpy as np

from headrace.doctor.causes.case import LEAST_STEPS, WORTH, WORTH_SAYING, Case, goes_with
from headrace.doctor.causes.cause import APART, Cause, Proposal, RemedyKind, Run, of_steps
from headrace.doctor.causes.remedy import FEW_LINES
from headrace.doctor.causes.stages import named
from headrace.doctor.measure import FORWARD, Finding, RanksTogether, TrainerView, batch_rows, is_late, tensors_of
from headrace.doctor.quantities import counted, duration, number, percent, times
from headrace.doctor.session.model import Session
from headrace.doctor.simulate import Factor, Prediction

SHOWN = 4
"""Maximum number of ranks with their shapes shown."""
UNEVEN = 1.05
"""Reporting threshold: ratio of the largest part of a batch to the mean part."""
MOSTLY = 0.5
"""Share of diverging steps from which ranks count as training separately."""
MOST_STEPS = 400
"""Maximum number of steps for it, spread over the run, since each is compared with each."""
SHAPES, RANKS_APART, LATE_RANK, DEVICE_PARTS = "shapes-differ", "ranks-apart", "late-rank", "device-parts"


def rank_findings(run: Run) -> Iterator[Finding]:
    """Yield ranks that train separately, late ranks, and different shapes."""
    ranks, by_rank = run.ranks, run.by_rank
    if ranks is None:
        return
    apart = sum(map(ranks.is_apart, ranks.steps)) / len(ranks.steps)
    if apart >= MOSTLY:
        yield Finding(
            RANKS_APART,
            0.0,  # no cost in time
            f"Ranks share no gradients in {percent(apart)} of the steps: each trains a model of its own.",
            "a rank ends its step before another has its gradients",
            "Wrap the model in DistributedDataParallel wherever there is more than one rank, also on the CPU.",
        )
    for rank in by_rank:
        if not is_late(rank, len(by_rank)):
            continue
        others = [other for other in by_rank if other.rank != rank.rank]
        why = "not because of data: its own work between batches takes longer"
        if rank.cause is not None:
            why = f"{named(rank.cause)} makes it late"
        waits = [other.peer_wait_us for other in others if other.peer_wait_us is not None]
        waiting = f", which wait up to {duration(max(waits))} of each step for a peer" if waits else ""
        yield Finding(
            LATE_RANK,
            rank.late * rank.lateness_us / rank.step_us,
            f"Rank {rank.rank} is the last in {percent(rank.late)} of the steps, {duration(rank.lateness_us)} after "
            f"the others{waiting}; {why}.",
            f"it waits {duration(rank.data_wait_us)} of each step for data, the others "
            f"{duration(fmean(other.data_wait_us for other in others))}",
            "Look at what differs for this rank: its shard, its disk, its cores, what else runs alongside it.",
        )
    yield from _shapes(ranks)


def _shapes(ranks: RanksTogether) -> Iterator[Finding]:
    """Find unequal shapes, which make ranks wait for the rank with the most work."""
    differing = {
        number: shapes
        for number, steps in ranks.steps.items()
        if len(set(shapes := [_shape(view, step.gets) for view, step in zip(ranks.views, steps, strict=True)])) > 1
    }
    if len(differing) < WORTH * len(ranks.steps):
        return
    number, shapes = next(iter(differing.items()))
    waited = max(_waited_us(ranks, differing) - _waited_us(ranks, ranks.steps.keys() - differing.keys()), 0.0)
    step_us = fmean(step.duration for steps in ranks.steps.values() for step in steps)
    waiting = f"; in these a rank waits {duration(waited)} on average for the one that computes longest"
    waiting = waiting if waited / step_us >= WORTH_SAYING else ""
    share = len(differing) / len(ranks.steps)
    elements = [[_elements(shape) for shape in shapes] for shapes in differing.values()]
    largest, mean = sum(map(max, elements)), sum(map(fmean, elements))
    uneven = f", the largest being {times(largest / mean)} the mean" if mean else ""
    shown = [f"rank {view.trainer.rank} {shape}" for view, shape in zip(ranks.views, shapes, strict=True)]
    some = f"{', '.join(shown[:SHOWN])}{', …' if len(shown) > SHOWN else ''}"
    yield Finding(
        SHAPES,
        share * waited / step_us,
        f"Shapes of batches differ across ranks in {percent(share)} of the steps{uneven}{waiting}.",
        f"step {number}: {some}",
        "Draw sizes by step from a seed that all ranks share: all ranks then have the same.",
    )


def _shape(view: TrainerView, gets: Sequence[int]) -> str:
    numbers = [view.trainer.gets.shape[row] for row in gets]
    return " + ".join("?" if number is None else view.trainer.shapes[number] for number in numbers)


def _elements(shape: str) -> int:
    return sum(math.prod(sizes) for _, sizes in tensors_of(shape))


def _waited_us(ranks: RanksTogether, numbers: Collection[int]) -> float:
    """Return a rank's mean wait in these steps for the rank that computes longest; 0 without steps.

    A rank computes until its gradients are done or, if that time is unknown, until it arrives where the ranks meet. All
    ranks start together, at the end of the previous step. Waits for data do not count.
    """
    for moments in (ranks.stamped, ranks.arrivals):
        waits = []
        for step_number in numbers:
            reached = moments(step_number)
            if reached is not None:
                computing = [
                    moment - sum(view.trainer.gets.duration[row] for row in step.gets)
                    for moment, view, step in zip(reached, ranks.views, ranks.steps[step_number], strict=True)
                ]
                waits.append(max(computing) - fmean(computing))
        if waits:
            return fmean(waits)
    return 0.0


@dataclass(frozen=True)
class DeviceParts:
    """Parts of a batch for several devices, measured by the number of tensor elements."""

    count: int
    batches: int
    uneven: float
    """Ratio of the largest parts of all batches to their mean parts."""
    share: float
    example: tuple[int, ...]
    """Elements per part of the most uneven batch."""
    left: Factor
    """Shares of a step's own time that equal parts would leave."""
    own_us: float
    """Mean time of a step without its wait for data."""

    @property
    def lost_us(self) -> float:
        return (1 - self.left.usual) * self.own_us

    @property
    def text(self) -> str:
        return (
            f"Batches are lists of {self.count} parts, which differ in size in {percent(self.share)} of the batches: "
            f"the largest is {times(self.uneven)} the mean, which costs {duration(self.lost_us)} of each step."
        )


def device_parts(view: TrainerView) -> DeviceParts | None:
    """Return the parts of received batches that are lists with one dict per device, not with one per sample."""
    rows = {row: sizes for row in view.training.gets if (sizes := _part_elements(view, row)) is not None}
    count = max(map(len, rows.values()), default=0)
    rows = {row: sizes for row, sizes in rows.items() if len(sizes) == count}
    if count < 2:
        return None
    largest, mean = sum(map(max, rows.values())), sum(map(fmean, rows.values()))
    left, own_us = _left(view, rows)
    return DeviceParts(
        count=count,
        batches=len(rows),
        uneven=largest / mean,
        share=sum(len(set(sizes)) > 1 for sizes in rows.values()) / len(rows),
        example=max(rows.values(), key=lambda sizes: max(sizes) / fmean(sizes)),
        left=left,
        own_us=own_us,
    )


def _part_elements(view: TrainerView, row: int) -> tuple[int, ...] | None:
    """Return the elements of each part of a received batch; None for a batch without parts."""
    number = view.trainer.gets.shape[row]
    parts = [] if number is None else view.trainer.shapes[number].split("|")
    size = _batch_size(view)
    if size is not None and len(parts) >= size and None in map(batch_rows, parts):  # each part is one sample
        return None
    sizes = tuple(map(_elements, parts))
    return sizes if len(sizes) > 1 and any(sizes) else None


def _batch_size(view: TrainerView) -> int | None:
    loader = next((view.loader(loader) for loader, _ in view.training.fed.most_common(1)), None)
    size = None if loader is None else loader.facts.get("batch_size")
    return size if isinstance(size, int) else None


def _left(view: TrainerView, rows: Mapping[int, tuple[int, ...]]) -> tuple[Factor, float]:
    """Return the shares of a step's own time that equal parts would leave, and that time.

    Steps with other sizes give the time for each element of the largest part. If the parts explain no time, a share of
    the step is assumed to go with them.
    """
    steps = [step for step in view.training.steps if step.gets and all(row in rows for row in step.gets)]
    own = [step.duration - sum(span.end - span.start for span in view.training.waits_in(step)) for step in steps]
    largest = [sum(max(rows[row]) for row in step.gets) for step in steps]
    means = [sum(fmean(rows[row]) for row in step.gets) for step in steps]
    own_us = fmean(own) if own else 0.0
    spare = 1 - sum(means) / sum(largest) if any(largest) else 0.0
    if own_us > 0 and len(set(largest)) > 1 and len(steps) >= LEAST_STEPS:
        low, slope, high = _slope(largest, own)
        if low > 0:
            shares = (min(one * fmean(largest) / own_us, 1.0) for one in (high, slope, low))
            least, usual, most = (1 - share * spare for share in shares)
            rate = f"{duration(slope * 1e6)} for each million elements of its largest part"
            return Factor(least, usual, most, True, f"In this run, a step takes {rate}."), own_us
    return goes_with(spare, "a step goes with its largest part"), own_us


def _slope(sizes: Sequence[int], times: Sequence[float]) -> tuple[float, float, float]:
    """Return the median slope between steps and its 95 % interval, which outliers hardly move (Theil-Sen)."""
    rows = np.linspace(0, len(sizes) - 1, min(len(sizes), MOST_STEPS)).astype(int)
    x, y = np.array(sizes, dtype=np.float64)[rows], np.array(times, dtype=np.float64)[rows]
    one, other = np.triu_indices(len(rows), 1)
    run, rise = x[one] - x[other], y[one] - y[other]
    slopes = np.sort(rise[run != 0] / run[run != 0])
    steps, middle = len(rows), len(slopes) / 2
    reach = math.sqrt(steps * (steps - 1) * (2 * steps + 5) / 18)  # two standard errors of Kendall's statistic, halved
    low, high = slopes[max(int(middle - reach), 0)], slopes[min(int(middle + reach), len(slopes) - 1)]
    return float(low), float(np.median(slopes)), float(high)


def device_findings(session: Session, view: TrainerView) -> Iterator[Finding]:
    """Find unequal parts of a batch: all devices wait for the device with the largest part."""
    parts = device_parts(view)
    if parts is None or parts.uneven < UNEVEN or view.budget is None:
        return
    shown = " and ".join(number(size) for size in parts.example[:SHOWN]) + (", …" if parts.count > SHOWN else "")
    yield Finding(
        DEVICE_PARTS,
        parts.lost_us / view.budget.mean_us,
        parts.text,
        f"seen in {counted(parts.batches, 'batch')}, by the elements of their tensors; the most uneven has {shown}. "
        f"{parts.left.basis}",
        "Put samples of about one size into one step, and cut its parts from one bucket of sizes: "
        "headrace.BucketBatchSampler, or hr.Buckets in a Loader.",
    )


def _same_size(case: Case, kind: RemedyKind) -> Proposal | None:
    """Propose equal parts for all devices of a process."""
    parts = device_parts(case.view)
    if parts is None or parts.uneven < UNEVEN:
        return None
    return replace(kind, title="parts of one size for every device at each step").leaving(
        case,
        parts.left,
        lambda left: lambda setup: replace(setup, step=setup.step * left),
        why=parts.text,
        least=1 + WORTH,  # a finding with its price gets its prediction, also where the step then waits for its data
        hint="headrace.BucketBatchSampler in place of the sampler, with the batches of all devices from one bucket",
    )


def same_shape(case: Case, kind: RemedyKind) -> Proposal | None:
    """Propose equal shapes on all ranks or devices. They gain at most the time that ranks wait for each other."""
    if len(case.session.trainers) < 2:
        return _same_size(case, kind)
    found = case.finding(SHAPES)
    if found is None:
        return None
    why = found.text
    waited = [one.peer_wait_us for one in case.diagnosis.ranks if one.peer_wait_us is not None]
    if not waited or not case.step_us:
        return kind.unpredicted(why)
    why = f"{why} A rank waits {duration(fmean(waited))} a step for others."
    usual = case.step_us * (1 - found.weight)
    least = max(min(case.step_us - fmean(waited), usual), 0.0)
    prediction = Prediction(usual, least, (usual + case.step_us) / 2, case.step_us / usual)
    if not case.is_faster(prediction):
        return None
    return kind.unpredicted(why, prediction=prediction)


def copied_model(session: Session, view: TrainerView) -> Iterator[Finding]:
    """Find a model that DataParallel copies to each device in every step. The weight is the part that copies it."""
    for note in [one for one in session.notes if one.code == "data-parallel"][:1]:
        share = view.share(FORWARD)
        yield Finding(
            note.code,
            share,
            f"{note.text} It copies the model to each device in every step.",
            f"copies are made within {FORWARD}, {percent(share)} of each {view.training.unit}",
            "Use DistributedDataParallel: each device then has a process and a loader of its own.",
        )


RANKS = Cause(
    findings={
        RANKS_APART: "Ranks share no gradients in most of the steps: each trains a model of its own.",
        LATE_RANK: "All other ranks wait for one.",
        SHAPES: "Batches have other shapes across ranks in 2 % of the steps or more.",
    },
    find=rank_findings,
    order=APART,
    explains=(SHAPES,),
    remedies=[
        RemedyKind(
            "same-shape",
            "one shape on every rank at each step",
            FEW_LINES,
            same_shape,
            hint="headrace.BucketBatchSampler, or one random size a step, drawn from the step's number on every rank",
            costs=("samples of a batch are drawn from one bucket of sizes",),
        )
    ],
)
DEVICES = Cause(
    findings={
        DEVICE_PARTS: "A batch is a list of a part for each device, and the largest is 1.05 times the mean or more."
    },
    find=of_steps(device_findings),
    order=APART,
    explains=(DEVICE_PARTS,),
)
COPIES = Cause(
    findings={"data-parallel": "nn.DataParallel copies the model to each device in every step."},
    find=of_steps(copied_model),
    explains=("data-parallel",),
)
