"""Measured steps of a trainer, and how their time divides into parts."""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from math import inf
from typing import Any, NamedTuple

import msgspec

from ..probe import SETTLING_STEPS
from ..session.model import Session
from ..session.trainers import EARLY, OBSERVE, REPLAY, LoaderFacts, MeasuredWindow, Trainer, TrainerPass
from .diagnosis import TimePart

WAIT = "data wait"
DATA_WORK = "data work"
"""Name of what the training thread itself does with a batch before the model has it."""
COPY, FORWARD, BACKWARD, OPTIMIZER = "host to device", "forward", "backward", "optimizer"
COLLECTIVE, OTHER = "collective", "other"
UNSEEN = "not seen"
"""Name of `forward` where no batch was seen to come: it holds the wait for them, too."""
ORDER = (WAIT, DATA_WORK, COPY, FORWARD, UNSEEN, BACKWARD, OPTIMIZER, COLLECTIVE, OTHER)
TURNS = {WAIT, BACKWARD, OPTIMIZER}
"""Parts that the phases of a step turn on: the forward pass leads from a batch to its backward pass."""
EVALUATION = "e"
"""Kind of span, of docs/doctor/session.md."""
BOUND = 0.05
"""Share of a step from which a run is called input-bound: below it, nothing done about data gains more than this."""
PREFETCH = 2
"""Batches that DataLoader has in flight for each worker where nothing else is said."""


class TimeSpan(NamedTuple):
    """Microseconds on any one clock; one that ends before it starts is empty."""

    name: str
    start: float
    end: float


class TimeSegment(NamedTuple):
    """A stretch of time and the span that it belongs to, None where it belongs to none."""

    name: str | None
    start: float
    end: float


def segments(start: float, end: float, spans: Iterable[TimeSpan]) -> Iterator[TimeSegment]:
    """Cut [start, end] into segments that leave nothing out and overlap nowhere.

    Each is charged to the innermost span, which is the one that started last, and of several the one that ends first.
    """
    coming = sorted((span for span in spans if span.end > max(start, span.start)), key=lambda span: -span.start)
    running: list[tuple[float, float, str]] = []
    now = start
    while now < end:
        while coming and coming[-1].start <= now:
            span = coming.pop()
            heapq.heappush(running, (-span.start, span.end, span.name))
        while running and running[0][1] <= now:
            heapq.heappop(running)
        until = min(end, running[0][1] if running else end, coming[-1].start if coming else end)
        yield TimeSegment(running[0][2] if running else None, now, until)
        now = until


def parts_of(pieces: Sequence[TimeSegment]) -> dict[str, float]:
    """Sum segments by part.

    Time in no span is `forward` where a backward pass comes next, with the batch in hand; else it is `other`: logging,
    evaluation, checkpoints.
    """
    turns: list[str | None] = []
    coming = None
    for piece in reversed(pieces):
        turns.append(coming)
        coming = piece.name if piece.name in TURNS else coming
    parts: dict[str, float] = {}
    has_batch = all(piece.name != WAIT for piece in pieces)
    for piece, coming in zip(pieces, reversed(turns), strict=True):
        has_batch = has_batch or piece.name == WAIT
        name = piece.name or (FORWARD if coming == BACKWARD and has_batch else OTHER)
        parts[name] = parts.get(name, 0) + piece.end - piece.start
    return parts


def mean_parts(steps: Sequence[dict[str, float]], order: Iterable[str]) -> list[TimePart]:
    """Return the mean of each part over the steps, and its share of the whole. Parts that no step has are left out."""
    seen = {name for step in steps for name in step}
    return time_parts({name: sum(step.get(name, 0) for step in steps) for name in order if name in seen}, len(steps))


def time_parts(totals: Mapping[str, float], steps: int) -> list[TimePart]:
    """Return the mean of each part over so many steps, and its share of the whole."""
    whole = sum(totals.values())
    return [TimePart(name, us / steps, us / whole) for name, us in totals.items()]


@dataclass(frozen=True)
class MeasuredStep:
    """One optimizer step, or where none was seen, one batch: from the start of its `next()` to that of the following.

    `row` is its row in `Trainer.steps` (None for a batch), `gets` the rows of `Trainer.gets` that began within it,
    those of its `evaluations` left out.
    """

    number: int
    row: int | None
    start: int
    end: int
    gets: list[int]
    evaluations: list[TimeSpan]

    @property
    def duration(self) -> int:
        """Microseconds, without those of its evaluations."""
        return sum(round(end - start) for start, end in self.stretches)

    @property
    def stretches(self) -> list[tuple[float, float]]:
        """Return the beginnings and ends of what is left of it without its evaluations."""
        starts = [float(self.start), *(span.end for span in self.evaluations)]
        ends = [*(span.start for span in self.evaluations), float(self.end)]
        return [(start, end) for start, end in zip(starts, ends, strict=True) if start < end]


@dataclass(frozen=True)
class MeasuredTraining:
    """One trainer with the steps that are measured: complete, and after its warm-up."""

    trainer: Trainer
    unit: str
    """`step` or `batch`."""
    seen: int
    """Steps in the evidence, warm-up included."""
    warmup: int
    """Steps left out at the start."""
    steps: list[MeasuredStep]
    waits: list[TimeSpan]
    """Whatever of the loaders blocks the loop, by its start: gets, the start of a pass, its last `next()`."""

    @cached_property
    def _reached(self) -> list[float]:
        """End of all waits up to each."""
        return list(accumulate((span.end for span in self.waits), max))

    @property
    def gets(self) -> list[int]:
        """Rows of the gets within measured steps."""
        return [row for step in self.steps for row in step.gets]

    @cached_property
    def fed(self) -> Counter[int]:
        """Count the batches that measured steps waited for, by loader, without those of an evaluation."""
        loader_of = {one.number: one.loader for one in self.trainer.passes}
        numbers = (self.trainer.gets.pass_[row] for row in self.gets)
        return Counter(loader_of[number] for number in numbers if number in loader_of)

    @property
    def until(self) -> float:
        """End of the undisturbed run: the windows after the observed one begin."""
        observed = window(self.trainer, OBSERVE)
        return inf if observed is None else observed.end

    @property
    def durations(self) -> list[int]:
        """Durations of the measured steps, in microseconds."""
        return [step.duration for step in self.steps]

    @property
    def total_us(self) -> int:
        return sum(self.durations)

    def waits_in(self, step: MeasuredStep) -> list[TimeSpan]:
        """Return the waits that reach into a step, and are none of an evaluation."""
        first = bisect_right(self._reached, step.start)
        last = bisect_left(self.waits, float(step.end), key=_start)
        return [span for span in self.waits[first:last] if not _within(span.start, step.evaluations)]

    def is_measured(self, time: float) -> bool:
        """Return whether a time lies within a measured step, and in no evaluation."""
        row = bisect_right(self.steps, time, key=lambda step: step.start) - 1
        return row >= 0 and time < self.steps[row].end and not _within(time, self.steps[row].evaluations)


def training(session: Session, trainer: Trainer) -> MeasuredTraining:
    """Measure a trainer.

    A run that is measured without windows stops at the number of steps asked for; an observed one takes them all. Where
    there are windows, only what they observed counts: the steps after that are fed with copies.
    """
    unit, steps = ("step", _steps(trainer)) if trainer.steps.number else ("batch", _batches(trainer))
    early, observed = early_steps(trainer), window(trainer, OBSERVE)
    steps = [step for step in steps if step.number not in early]
    if observed is not None:
        steps = [step for step in steps if step.number < observed.first + observed.steps]
        warmup, most = sum(step.number < observed.first for step in steps), len(steps)
    else:
        chosen = _warmup(session, trainer, steps)
        warmup = min(chosen - sum(number < chosen for number in early), len(steps) // 2)
        most = warmup + session.steps if session.mode == "measure" else len(steps)
    gets = trainer.gets
    blocks = [(start, start + duration) for start, duration in zip(gets.start, gets.duration, strict=True)]
    blocks += [(start, start + us) for one in trainer.passes for start, us in pass_blocks(one)]
    waits = sorted((TimeSpan(WAIT, start, end) for start, end in blocks), key=_start)
    return MeasuredTraining(trainer, unit, len(steps), warmup, steps[warmup:most], waits)


def window(trainer: Trainer, name: str) -> MeasuredWindow | None:
    """Return a window. Of a run that ended before its replay, the few steps replayed after its first epoch are that."""
    names = (REPLAY, EARLY) if name == REPLAY else (name,)
    return next((one for wanted in names for one in trainer.windows if one.name == wanted), None)


def early_steps(trainer: Trainer) -> range:
    """Return the numbers of the steps that were replayed after the first epoch, none of which is an observed one."""
    early = window(trainer, EARLY)
    return range(0) if early is None else range(early.first, early.first + early.steps)


def window_steps(trainer: Trainer, name: str) -> list[MeasuredStep]:
    """Return the steps of a window that do not belong to the change from the one before."""
    found = window(trainer, name)
    if found is None:
        return []
    numbers = range(found.first + found.settling, found.first + found.steps)
    return [step for step in _steps(trainer) if step.number in numbers]


def pass_blocks(one: TrainerPass) -> list[tuple[int, int]]:
    """Return when a pass blocks the loop besides its gets, and for how long: at its start, and to find its end."""
    ended = [] if one.last is None or one.last_start is None else [(one.last_start, one.last)]
    return [(one.start, one.ready - one.start), *ended]


def pass_of(trainer: Trainer) -> dict[int, TrainerPass]:
    return {one.number: one for one in trainer.passes}


def queue_of(trainer: Trainer, loader: int) -> int:
    """Return the batches that a loader keeps in flight: what may have been made before the loop first asked."""
    facts = next((one.facts for one in trainer.loaders if one.number == loader), {})
    return (whole_fact(facts, "num_workers") or 0) * (whole_fact(facts, "prefetch_factor") or PREFETCH)


def whole_fact(facts: dict[str, Any], name: str) -> int | None:
    """Return a fact that is a whole number, as a loader of somebody's own may not have it."""
    value = facts.get(name)
    return value if isinstance(value, int) else None


def is_here(trainer: Trainer, one: TrainerPass) -> bool:
    """Return whether the trainer makes the batches of a pass itself."""
    return one.workers in ([], [trainer.pid])


def is_source(loader: LoaderFacts | None) -> bool:
    """Return whether it is no loader at all, but a function or an iterator that the loop calls for a batch."""
    return loader is not None and "source" in loader.facts


def threads_of(loader: LoaderFacts | None) -> int:
    """Count the threads that make a loader's batches in the trainer itself; 0 for torch's DataLoader."""
    return 0 if loader is None else whole_fact(loader.facts, "threads") or 0


def _steps(trainer: Trainer) -> list[MeasuredStep]:
    steps, starts = trainer.steps, trainer.gets.start
    found = []
    for row, (start, end) in enumerate(zip(steps.start, steps.end, strict=True)):
        if end <= start:
            continue
        evaluations = _merged(
            (max(begun, start), min(begun + duration, end))
            for kind, begun, duration in steps.spans[row]
            if kind == EVALUATION
        )
        within = range(bisect_left(starts, start), bisect_left(starts, end))
        gets = [get for get in within if not _within(starts[get], evaluations)]
        found.append(MeasuredStep(steps.number[row], row, start, end, gets, evaluations))
    return found


def _merged(evaluations: Iterable[tuple[int, int]]) -> list[TimeSpan]:
    """Return them in order, those that touch as one."""
    merged: list[TimeSpan] = []
    for start, end in sorted(one for one in evaluations if one[0] < one[1]):
        if merged and start <= merged[-1].end:
            merged[-1] = merged[-1]._replace(end=max(merged[-1].end, end))
        else:
            merged.append(TimeSpan("evaluation", start, end))
    return merged


def _within(time: float, spans: list[TimeSpan]) -> bool:
    return any(span.start <= time < span.end for span in spans)


def _batches(trainer: Trainer) -> list[MeasuredStep]:
    gets = trainer.gets
    if not gets.start:
        return []
    ends = [*gets.start[1:], gets.start[-1] + gets.duration[-1]]
    return [
        MeasuredStep(row, None, start, end, [row], [])
        for row, (start, end) in enumerate(zip(gets.start, ends, strict=True))
        if end > start
    ]


def _warmup(session: Session, trainer: Trainer, steps: list[MeasuredStep]) -> int:
    """Return the warm-up that was asked for, else the one that the probe chose, else a count of steps.

    These took what the busiest loader had prefetched at the start, or are left for settling.
    """
    chosen = whole_fact(session.process_facts(trainer).get("facts", {}), "warmup_steps")
    for warmup in (session.warmup, chosen):
        if warmup is not None:
            return warmup
    loader_of = {one.number: one.loader for one in trainer.passes}
    loaders = Counter(loader_of[number] for number in trainer.gets.pass_ if number in loader_of)
    if not loaders:
        return SETTLING_STEPS
    ((loader, _),) = loaders.most_common(1)
    left = queue_of(trainer, loader)
    for number, step in enumerate(steps):
        if left <= 0:
            return number + SETTLING_STEPS
        left -= sum(loader_of.get(trainer.gets.pass_[row]) == loader for row in step.gets)
    return len(steps)


def _start(span: TimeSpan) -> float:
    return span.start


def with_loaders_as_one(trainer: Trainer) -> Trainer:
    """Count each DataLoader as the one before it where all that is known of them is the same, one used after the other.

    A script that makes one an epoch has one loader, and starts its workers anew. A loader that only evaluations took
    batches of is never one that is trained from.
    """
    number_of = _numbers(trainer)
    if all(number == loader for loader, number in number_of.items()):
        return trainer
    return replace(
        trainer,
        loaders=[loader for loader in trainer.loaders if number_of[loader.number] == loader.number],
        passes=[replace(one, loader=number_of.get(one.loader, one.loader)) for one in trainer.passes],
    )


def _numbers(trainer: Trainer) -> dict[int, int]:
    """Return, by loader, the number of the first of those that count as one."""
    used: dict[int, tuple[int, int]] = {}  # when its first and its last pass began
    for one in trainer.passes:
        first, last = used.get(one.loader, (one.start, one.start))
        used[one.loader] = min(first, one.start), max(last, one.start)
    loader_of = {one.number: one.loader for one in trainer.passes}
    trained = {loader_of.get(number) for number in trainer.gets.pass_}
    evaluated = {loader_of.get(number) for number in trainer.fetches.pass_} - trained
    newest: dict[tuple[bytes, bool], tuple[int, int]] = {}
    """Of equal ones, the first's number, and when the last was last begun."""
    numbers = {loader.number: loader.number for loader in trainer.loaders}
    for loader in sorted((one for one in trainer.loaders if one.number in used), key=lambda one: used[one.number][0]):
        first, last = used[loader.number]
        what = msgspec.json.encode(loader.facts, order="sorted"), loader.number in evaluated
        known, until = newest.get(what, (loader.number, first))
        if "dataset" in loader.facts and until < first:
            numbers[loader.number] = known
        newest[what] = (numbers[loader.number], last)
    return numbers
