"""Data stalls: causes of each `next()`'s wait, followed along the path of its batch.

A batch has its tensors as names of shared memory. The reader requests each from the worker's resource sharer, a thread
that needs the GIL for every message. While the worker computes in Python, each request takes a switch interval (5 ms)
or more, so unpickling waits for whatever the worker does meanwhile.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median, quantiles

from headrace.doctor.measure.batches import REST, Finder, Join, MadeBatch, batch_stages
from headrace.doctor.measure.diagnosis import WaitSplit
from headrace.doctor.measure.steps import (
    MeasuredTraining,
    is_here,
    pass_blocks,
    pass_of,
    queue_of,
    threads_of,
    time_parts,
)
from headrace.doctor.session.trainers import LoaderFacts, ReceivedBatches, Trainer, TrainerPass

USUAL = 10
"""Percentile of the transfer times that counts as usual."""
LEAST_BATCHES = 8
"""Minimum number of batches to determine the usual time."""
START_UP, SHUT_DOWN, NOT_READY = "start-up", "shut-down", "not ready"
HELD_UP, PICKLE = "ready but out of order", "pickle"
UNPICKLE, PIN, MADE_HERE, SAMPLER, UNKNOWN = "unpickle and copy", "pin", "made here", "sampler", "unknown"
WAIT_ORDER = (START_UP, SHUT_DOWN, NOT_READY, HELD_UP, PICKLE, UNPICKLE, PIN, MADE_HERE, SAMPLER, UNKNOWN)
MAKING = (NOT_READY, HELD_UP, MADE_HERE)
"""Waits explained by the production of the batch."""
Cut = tuple[str, int | None]
"""A part of a wait and its end time; None if not measured."""


def waited_us(gets: ReceivedBatches, row: int) -> int | None:
    """Return how long unpickling a batch waited; None if not measured."""
    if row >= len(gets.unpickle_cpu):
        return None
    unpickle, cpu = gets.unpickle[row], gets.unpickle_cpu[row]
    return None if unpickle is None or cpu is None else max(unpickle - cpu, 0)


def usual_us(gets: ReceivedBatches) -> float | None:
    """Return the usual wait in a transfer, one round trip per tensor; None if there are too few batches.

    The reader computes for more than half of a round trip. A reader that always waits longer than that always waits for
    the worker.
    """
    rows = [row for row in range(len(gets.start)) if waited_us(gets, row) is not None]
    if len(rows) < LEAST_BATCHES:
        return None
    waits = [waited_us(gets, row) or 0 for row in rows]
    return min(quantiles(waits, n=100)[USUAL - 1], median(gets.unpickle_cpu[row] or 0 for row in rows))


def late(gets: ReceivedBatches, row: int, made: MadeBatch, usual: float) -> tuple[int, MadeBatch] | None:
    """Return the delay of a batch's transfer, and the batch that its worker made meanwhile; None without any."""
    waited, arrived, unpickle = waited_us(gets, row), gets.arrived[row], gets.unpickle[row]
    if waited is None or arrived is None or unpickle is None or waited <= usual:
        return None
    batches = made.maker.batches
    meanwhile = bisect_left(batches.fetched, arrived - unpickle)
    if meanwhile >= len(batches.start):
        return None
    overlap = min(arrived, batches.fetched[meanwhile]) - max(arrived - unpickle, batches.start[meanwhile])
    held = min(round(waited - usual), overlap)
    return (held, MadeBatch(made.maker, meanwhile)) if held > 0 else None


@dataclass(frozen=True)
class Wait:
    """One `next()`, or one `iter()` (`made` None, all start-up), in microseconds by cause.

    `held` microseconds of the unpickling are due to the batch `holder` that the worker produced meanwhile.
    """

    loader: int
    parts: dict[str, int]
    made: MadeBatch | None
    held: int = 0
    holder: MadeBatch | None = None


def waits(training: MeasuredTraining, join: Join) -> list[Wait]:
    """Return the waits of the measured steps, gets first, split into parts. Gets of unrecorded batches are left out."""
    trainer = training.trainer
    usual = usual_us(trainer.gets)
    passes = pass_of(trainer)
    finders = {number: join.finder(trainer, one) for number, one in passes.items()}
    found = []
    for row in training.gets:
        one = passes.get(trainer.gets.pass_[row])
        if one is not None:
            finder = finders[one.number]
            wait = _get(trainer, row, one, finder, usual)
            if wait.made is not None or not finder.is_cut:
                found.append(wait)
    for one in trainer.passes:
        for name, (start, us) in zip((START_UP, SHUT_DOWN), pass_blocks(one), strict=False):
            if training.is_measured(start):
                found.append(Wait(one.loader, {name: us}, None))
    return found


def wait_split(training: MeasuredTraining, found: list[Wait]) -> WaitSplit | None:
    """Return mean microseconds per step by cause; None without waits."""
    totals = {name: sum(wait.parts.get(name, 0) for wait in found) for name in WAIT_ORDER}
    totals = {name: us for name, us in totals.items() if us > 0}
    return WaitSplit(training.trainer.pid, time_parts(totals, len(training.steps))) if totals else None


def split_wait(start: int, end: int, cuts: list[Cut], last: str) -> dict[str, int]:
    """Divide [start, end] at the cuts; the rest is `last`."""
    parts: dict[str, int] = {}
    now = start
    for name, until in [*cuts, (last, end)]:
        reached = now if until is None else min(max(until, now), end)
        if reached > now:
            parts[name] = parts.get(name, 0) + reached - now
        now = reached
    return parts


def _get(trainer: Trainer, row: int, one: TrainerPass, finder: Finder, usual: float | None) -> Wait:
    gets = trainer.gets
    start, end = gets.start[row], gets.start[row] + gets.duration[row]
    made = finder.batch(gets.index[row])
    parts = split_wait(start, end, _cuts(trainer, row, one, finder, made), SAMPLER)
    found = None if made is None or usual is None else late(gets, row, made, usual)
    if found is None:
        return Wait(one.loader, parts, made)
    held, holder = found
    return Wait(one.loader, parts, made, min(held, parts.get(UNPICKLE, 0)), holder)


def _cuts(trainer: Trainer, row: int, one: TrainerPass, finder: Finder, made: MadeBatch | None) -> list[Cut]:
    """Return the cuts of a wait at the events meanwhile.

    The threads of Headrace's loaders do not report when they produce a batch. A trainer without workers draws indices,
    produces the batch, and pins it. A worker produces it and pickles it into a pipe; the trainer unpickles it, may pin
    it, and draws the next indices. For a batch that arrived before the request, only the drawing remains.
    """
    gets = trainer.gets
    end, arrived = gets.start[row] + gets.duration[row], gets.arrived[row]
    pin_start, pin = gets.pin_start[row], gets.pin[row]
    pinned = (PIN, None if pin_start is None or pin is None else pin_start + pin)
    loader = next((loader for loader in trainer.loaders if loader.number == one.loader), None)
    if threads_of(loader):
        return [(NOT_READY, end)]
    arrived = end if arrived is None else arrived
    if made is None:
        return [(MADE_HERE, pin_start or end) if is_here(trainer, one) else (UNKNOWN, arrived), pinned]
    batches = made.maker.batches
    start, fetched = batches.start[made.row], batches.fetched[made.row]
    if is_here(trainer, one):
        return [(SAMPLER, start), (MADE_HERE, fetched), pinned]
    # A worker's very first index existed before the worker, so its work up to the first batch, such as worker_init_fn,
    # belongs to its start.
    is_first = made.row == 0 and one.epoch == 0 and batches.index[0] < len(one.workers)
    return [
        (START_UP, start if is_first else made.maker.begun),
        (NOT_READY, _held_up_from(trainer, row, loader, finder, fetched)),
        (HELD_UP, fetched),
        (PICKLE, batches.sent[made.row]),
        (UNPICKLE, arrived),
        pinned,
    ]


def _held_up_from(trainer: Trainer, row: int, loader: LoaderFacts | None, finder: Finder, fetched: int) -> int:
    """Return when the first later batch was ready while the next in order was in production.

    From then on, the loop waits for the order. It is `fetched` if there is none, or if order does not matter. Older
    versions of torch have no such setting, and preserve order.
    """
    is_in_order = loader is None or loader.facts.get("in_order") is not False
    if fetched <= trainer.gets.start[row] or not is_in_order:
        return fetched
    index = trainer.gets.index[row]
    queue = 0 if loader is None else queue_of(trainer, loader.number)
    later = (finder.batch(number) for number in range(index + 1, index + queue))
    ready = (made.maker.batches.sent[made.row] for made in later if made is not None)
    return min([fetched, *(time for time in ready if time is not None)])


def causes(pid: int, found: Iterable[Wait], steps: int) -> WaitSplit:
    """Distribute the waits over their causes.

    Waits for a batch in production go to the stages of that batch, since slow batches are the ones waited for. If a
    worker transferred it late, the cause is what the worker produced meanwhile.
    """
    totals: dict[str, float] = {}
    for wait in found:
        parts = {name: float(us) for name, us in wait.parts.items() if name not in MAKING}
        if UNPICKLE in parts:
            parts[UNPICKLE] -= wait.held
        making = sum(wait.parts.get(name, 0) for name in MAKING)
        for us, made in ((making, wait.made), (wait.held, wait.holder)):
            if us > 0:
                for stage, share in _shares(made).items():
                    parts[stage] = parts.get(stage, 0.0) + us * share
        for name, part in parts.items():
            totals[name] = totals.get(name, 0) + part
    shared = time_parts({name: us for name, us in totals.items() if us > 0}, steps)
    return WaitSplit(pid, sorted(shared, key=lambda part: -part.us))


def _shares(made: MadeBatch | None) -> dict[str, float]:
    """Return the stages of a batch's production as shares, and later work. Without a record, no stage is charged."""
    if made is None:
        return {UNKNOWN: 1.0}
    stages = batch_stages(*made, serialise=False)
    whole = sum(wall for _, wall, _ in stages.values())
    return {stage: wall / whole for stage, (_, wall, _) in stages.items()} if whole > 0 else {REST: 1.0}
