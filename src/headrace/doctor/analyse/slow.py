"""The slowest samples, and the lines of the user's code that time was seen in."""

from __future__ import annotations

import re
from collections.abc import Sequence
from statistics import median

from headrace.doctor.analyse.join import Made
from headrace.doctor.measure.diagnosis import LinePart, SlowSampleFinding
from headrace.doctor.session.model import Maker, SlowSample

PLACE = re.compile(r"\('sample', (\d+)\)")
"""How the evidence writes the place in its batch of a sample that has no key."""
MOST = 10
"""Slow samples and lines that are worth showing."""


def slow_samples(makers: Sequence[Maker], made: Sequence[Made], batch_size: int | None) -> list[SlowSampleFinding]:
    """Of all makers, slowest first. The median sample's time is that of a batch's mean sample, since samples are not
    recorded one by one."""
    typical = median_sample_us(made, batch_size)
    if typical is None:
        return []
    slowest: dict[str, tuple[SlowSample, Maker]] = {}
    for maker in makers:
        for sample in maker.slow:
            which = _which(sample, maker)
            if which not in slowest or slowest[which][0].wall < sample.wall:
                slowest[which] = (sample, maker)
    worst = sorted(slowest.values(), key=lambda pair: -pair[0].wall)[:MOST]
    return [
        SlowSampleFinding(_key(sample), sample.wall, sample.wall / typical, _heaviest(sample, maker))
        for sample, maker in worst
    ]


def _which(sample: SlowSample, maker: Maker) -> str:
    """One text a sample: its key, wherever and however often it was read. A place in a batch is one in that batch."""
    return f"{maker.host} {maker.pid} {sample.epoch} {_key(sample)}" if PLACE.fullmatch(sample.key) else sample.key


def _key(sample: SlowSample) -> str:
    place = PLACE.fullmatch(sample.key)
    return sample.key if place is None else f"{place[1]} of batch {sample.index}"


def median_sample_us(made: Sequence[Made], batch_size: int | None) -> float | None:
    times = [
        (batches.fetched[row] - batches.start[row]) / (batches.samples[row] or batch_size or 1)
        for batches, row in ((maker.batches, row) for maker, row in made)
    ]
    typical = median(times) if times else 0
    return typical if typical > 0 else None


def line_parts(makers: Sequence[Maker]) -> list[LinePart]:
    """Lines by their share of the time that the makers were busy, heaviest first. Both are of the whole run."""
    seen: dict[str, int] = {}
    for maker in makers:
        for line in maker.lines:
            seen[line.place] = seen.get(line.place, 0) + line.us
    whole = max(sum(seen.values()), sum(busy_us(maker) for maker in makers))
    heaviest = sorted(seen.items(), key=lambda item: -item[1])[:MOST]
    return [LinePart(place, us / whole) for place, us in heaviest if us > 0]


def busy_us(maker: Maker) -> int:
    """Time that its recorded batches took to make."""
    return sum(maker.batches.fetched) - sum(maker.batches.start)


def _heaviest(sample: SlowSample, maker: Maker) -> str:
    number = max(sample.stages, key=lambda stage: stage[1], default=None)
    return "other:rest" if number is None else maker.stages[number[0]]
