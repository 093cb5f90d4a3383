"""Tensors that a worker hands over late, because its Python is at the next batch.

A batch brings its tensors as names of shared memory: the reader asks the worker's resource sharer for each, a thread of
the worker that needs the GIL for every message. While the worker computes in Python, each of them takes a switch
interval (5 ms) or more, so that unpickling waits for what the worker does meanwhile.
"""

from __future__ import annotations

from bisect import bisect_left
from statistics import median, quantiles

from headrace.doctor.analyse.join import Made
from headrace.doctor.session.model import Gets

USUAL = 10
"""Of 100 batches, so many are handed over in less than what is called the usual time."""
LEAST_BATCHES = 8
"""Fewer say nothing of what is usual."""


def waited_us(gets: Gets, row: int) -> int | None:
    """How long unpickling a batch waited; None where it was not measured."""
    if row >= len(gets.unpickle_cpu):
        return None
    unpickle, cpu = gets.unpickle[row], gets.unpickle_cpu[row]
    return None if unpickle is None or cpu is None else max(unpickle - cpu, 0)


def usual_us(gets: Gets) -> float | None:
    """What handing over takes of itself, a round trip for each tensor; None where too few batches tell. Of a round trip
    the reader computes more than half: where it always waits longer than that, it always waits for the worker."""
    rows = [row for row in range(len(gets.start)) if waited_us(gets, row) is not None]
    if len(rows) < LEAST_BATCHES:
        return None
    waits = [waited_us(gets, row) or 0 for row in rows]
    return min(quantiles(waits, n=100)[USUAL - 1], median(gets.unpickle_cpu[row] or 0 for row in rows))


def late(gets: Gets, row: int, made: Made, usual: float) -> tuple[int, Made] | None:
    """By how much a batch was handed over later than usual, and the batch that its worker made meanwhile; None where it
    was in time, or the worker made none."""
    waited, arrived, unpickle = waited_us(gets, row), gets.arrived[row], gets.unpickle[row]
    if waited is None or arrived is None or unpickle is None or waited <= usual:
        return None
    batches = made.maker.batches
    meanwhile = bisect_left(batches.fetched, arrived - unpickle)
    if meanwhile >= len(batches.start):
        return None
    overlap = min(arrived, batches.fetched[meanwhile]) - max(arrived - unpickle, batches.start[meanwhile])
    held = min(round(waited - usual), overlap)
    return (held, Made(made.maker, meanwhile)) if held > 0 else None
