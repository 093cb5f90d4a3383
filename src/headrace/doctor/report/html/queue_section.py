"""How many batches lay ready and were not yet taken, at any time of the measured steps."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf

from headrace.doctor.analyse.join import Finder, Join
from headrace.doctor.measure.production import fed_loaders
from headrace.doctor.measure.steps import Training, queue_of
from headrace.doctor.measure.waits import is_here
from headrace.doctor.session.model import Pass, Trainer


@dataclass(frozen=True)
class Depth:
    """From `times[row]` to the next time (the last is the end), `counts[row]` batches lay ready."""

    times: list[float]
    counts: list[int]
    most: int
    """Batches that may be in flight at once."""

    def mean(self, start: float, end: float) -> float:
        """Over a stretch of time, weighted by it."""
        weighted = sum(inside * count for inside, count in self._stretches(start, end))
        return weighted / (end - start) if end > start else 0.0

    @property
    def empty(self) -> float:
        """Share of the time in which none was ready."""
        whole = self.times[-1] - self.times[0]
        stretches = zip(pairwise(self.times), self.counts, strict=True)
        return sum(end - start for (start, end), count in stretches if not count) / whole if whole > 0 else 0.0

    def _stretches(self, start: float, end: float) -> Iterator[tuple[float, int]]:
        row = max(bisect_right(self.times, start) - 1, 0)
        while row < len(self.counts) and self.times[row] < end:
            yield min(self.times[row + 1], end) - max(self.times[row], start), self.counts[row]
            row += 1


def depth(training: Training, join: Join) -> Depth | None:
    """Of the loaders that the steps waited for. None where no worker made batches, or where some of their evidence was
    thinned, since batches that are not known of would be missing."""
    trainer = training.trainer
    fed = fed_loaders(training)
    passes = [one for one in trainer.passes if one.loader in fed and not is_here(trainer, one)]
    finders = [join.finder(trainer, one) for one in passes]
    if not passes or any(finder.is_thinned for finder in finders):
        return None
    start, end = training.steps[0].start, training.steps[-1].end
    asked = _asked(trainer)
    changes: dict[float, int] = {}
    for one, finder in zip(passes, finders, strict=True):
        for sent, taken in _ready(one, finder, asked, _thrown_away(one, passes)):
            if sent < end and taken > max(start, sent):
                for time, change in ((max(sent, start), 1), (min(taken, end), -1)):
                    changes[time] = changes.get(time, 0) + change
    return _depth(changes, start, end, sum(queue_of(trainer, loader) for loader in fed))


def _asked(trainer: Trainer) -> dict[tuple[int, int], int]:
    """When the next() that gave a batch began, by pass and index."""
    return {
        (number, index): start
        for gets in (trainer.gets, trainer.fetches)
        for number, index, start in zip(gets.pass_, gets.index, gets.start, strict=True)
    }


def _ready(
    one: Pass, finder: Finder, asked: dict[tuple[int, int], int], thrown_away: float
) -> Iterator[tuple[float, float]]:
    """From when until when each batch of a pass lay ready; one that was asked for before it was sent never did."""
    for maker, row in finder.batches():
        sent, index = maker.batches.sent[row], maker.batches.index[row]
        if sent is not None:
            yield sent, asked.get((one.number, index), thrown_away)


def _thrown_away(one: Pass, passes: Sequence[Pass]) -> float:
    """When the batches of a pass that nobody asked for are of no more use: as the loader's next pass begins."""
    return min((other.start for other in passes if other.loader == one.loader and other.start > one.start), default=inf)


def _depth(changes: dict[float, int], start: float, end: float, most: int) -> Depth:
    times, counts, now = [float(start)], [], 0
    for time in sorted(changes):
        if time > times[-1]:
            counts.append(now)
            times.append(time)
        now += changes[time]
    if end > times[-1]:
        counts.append(now)
        times.append(float(end))
    return Depth(times, counts, most)
