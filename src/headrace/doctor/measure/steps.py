"""Measured steps of a trainer, and how their time divides into parts."""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from math import inf
from typing import Any, NamedTuple

from headrace.doctor.measure.diagnosis import TimePart
from headrace.doctor.probe.training.loop_watch import SETTLING_STEPS
from headrace.doctor.session.model import Session
from headrace.doctor.session.trainers import OBSERVE, LoaderFacts, MeasuredWindow, Trainer, TrainerPass

WAIT = "data wait"
DATA_WORK = "data work"
"""Name of the training thread's own work on a batch before the model receives it."""
COPY, FORWARD, BACKWARD, OPTIMIZER = "host to device", "forward", "backward", "optimizer"
COLLECTIVE, OTHER = "collective", "other"
UNSEEN = "not seen"
"""Name of `forward` if no batch was seen to arrive: it includes the data stall."""
ORDER = (WAIT, DATA_WORK, COPY, FORWARD, UNSEEN, BACKWARD, OPTIMIZER, COLLECTIVE, OTHER)
TURNS = {WAIT, BACKWARD, OPTIMIZER}
"""Parts that delimit the phases of a step: the forward pass leads from a batch to its backward pass."""
EVALUATION = "e"
"""Kind of span in docs/doctor/internals.md."""
BOUND = 0.05
"""Share of a step above which a run is input-bound. Below it, no data remedy gains more."""
PREFETCH = 2
"""DataLoader's default of batches in flight per worker."""


class TimeSpan(NamedTuple):
    """Span in microseconds on any one clock; empty if it ends before it starts."""

    name: str
    """Name; empty for a segment outside all spans."""
    start: float
    end: float


def segments(start: float, end: float, spans: Iterable[TimeSpan]) -> Iterator[TimeSpan]:
    """Divide [start, end] into segments without gaps, each of the innermost span that started last and ends first."""
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
        yield TimeSpan(running[0][2] if running else "", now, until)
        now = until


def named(pieces: Sequence[TimeSpan]) -> list[TimeSpan]:
    """Return segments with their parts.

    Time outside spans is `forward` if a batch has arrived and a backward pass follows; otherwise it is `other`:
    logging, evaluation, checkpoints.
    """
    turns: list[str | None] = []
    coming = None
    for piece in reversed(pieces):
        turns.append(coming)
        coming = piece.name if piece.name in TURNS else coming
    found = []
    has_batch = all(piece.name != WAIT for piece in pieces)
    for piece, coming in zip(pieces, reversed(turns), strict=True):
        has_batch = has_batch or piece.name == WAIT
        name = piece.name or (FORWARD if coming == BACKWARD and has_batch else OTHER)
        found.append(TimeSpan(name, piece.start, piece.end))
    return found


def parts_of(pieces: Sequence[TimeSpan]) -> dict[str, float]:
    parts: dict[str, float] = {}
    for name, start, end in named(pieces):
        parts[name] = parts.get(name, 0) + end - start
    return parts


def mean_parts(steps: Sequence[dict[str, float]], order: Iterable[str]) -> list[TimePart]:
    """Return the mean of each part over the steps, and its share of the whole. Parts without any time are left out."""
    seen = {name for step in steps for name in step}
    return time_parts({name: sum(step.get(name, 0) for step in steps) for name in order if name in seen}, len(steps))


def time_parts(totals: Mapping[str, float], steps: int) -> list[TimePart]:
    """Return the mean of each part over `steps` steps, and its share of the whole."""
    whole = sum(totals.values())
    return [TimePart(name, us / steps, us / whole) for name, us in totals.items()]


@dataclass(frozen=True)
class MeasuredStep:
    """One optimizer step, or without any, one batch: from the start of its `next()` to the next one's.

    `row` is its row in `Trainer.steps` (None for a batch), `gets` the rows of `Trainer.gets` that began in it, without
    its `evaluations`.
    """

    number: int
    row: int | None
    start: int
    end: int
    gets: list[int]
    evaluations: list[TimeSpan]

    @property
    def duration(self) -> int:
        """Microseconds, without its evaluations."""
        return sum(round(end - start) for start, end in self.stretches)

    @property
    def stretches(self) -> list[tuple[float, float]]:
        """Starts and ends of its time outside evaluations."""
        starts = [float(self.start), *(span.end for span in self.evaluations)]
        ends = [*(span.start for span in self.evaluations), float(self.end)]
        return [(start, end) for start, end in zip(starts, ends, strict=True) if start < end]


@dataclass(frozen=True)
class MeasuredTraining:
    """One trainer with its measured steps: complete, and after the warm-up."""

    trainer: Trainer
    unit: str
    seen: int
    """Number of steps in the evidence, warm-up included."""
    warmup: int
    """Number of steps left out at the start."""
    steps: list[MeasuredStep]
    waits: list[TimeSpan]
    """Times that loaders block the loop, in order: gets, the start of a pass, its last `next()`."""

    @cached_property
    def _reached(self) -> list[float]:
        """Running maximum of the ends of the waits."""
        return list(accumulate((span.end for span in self.waits), max))

    @property
    def gets(self) -> list[int]:
        return [row for step in self.steps for row in step.gets]

    @cached_property
    def fed(self) -> Counter[int]:
        """Number of batches that measured steps waited for, by loader, without evaluations."""
        loader_of = {one.number: one.loader for one in self.trainer.passes}
        numbers = (self.trainer.gets.pass_[row] for row in self.gets)
        return Counter(loader_of[number] for number in numbers if number in loader_of)

    @property
    def until(self) -> float:
        """End of the undisturbed run, and start of the windows after the observed one."""
        observed = window(self.trainer, OBSERVE)
        return inf if observed is None else observed.end

    @property
    def durations(self) -> list[int]:
        return [step.duration for step in self.steps]

    @property
    def total_us(self) -> int:
        return sum(self.durations)

    def waits_in(self, step: MeasuredStep) -> list[TimeSpan]:
        """Return the waits that overlap a step, outside its evaluations."""
        first = bisect_right(self._reached, step.start)
        last = bisect_left(self.waits, float(step.end), key=_start)
        return [span for span in self.waits[first:last] if not _within(span.start, step.evaluations)]

    def is_measured(self, time: float) -> bool:
        """Return True if a time is in a measured step, outside its evaluations."""
        row = bisect_right(self.steps, time, key=lambda step: step.start) - 1
        return row >= 0 and time < self.steps[row].end and not _within(time, self.steps[row].evaluations)


def training(session: Session, trainer: Trainer) -> MeasuredTraining:
    """Measure a trainer's observed steps: those before windows of copies, or the steps requested of a run."""
    unit, steps = ("step", _steps(trainer)) if trainer.steps.number else ("batch", _batches(trainer))
    observed = window(trainer, OBSERVE)
    if observed is not None:
        steps = [step for step in steps if step.number < observed.first + observed.steps]
        warmup, most = sum(step.number < observed.first for step in steps), len(steps)
    else:
        warmup = min(_warmup(session, trainer, steps), len(steps) // 2)
        most = warmup + session.steps if session.mode == "measure" else len(steps)
    gets = trainer.gets
    blocks = [(start, start + duration) for start, duration in zip(gets.start, gets.duration, strict=True)]
    blocks += [(start, start + us) for one in trainer.passes for start, us in pass_blocks(one)]
    waits = sorted((TimeSpan(WAIT, start, end) for start, end in blocks), key=_start)
    return MeasuredTraining(trainer, unit, len(steps), warmup, steps[warmup:most], waits)


def window(trainer: Trainer, name: str) -> MeasuredWindow | None:
    return next((one for one in trainer.windows if one.name == name), None)


def window_steps(trainer: Trainer, name: str) -> list[MeasuredStep]:
    """Return the steps of a window after its settling steps."""
    found = window(trainer, name)
    if found is None:
        return []
    numbers = range(found.first + found.settling, found.first + found.steps)
    return [step for step in _steps(trainer) if step.number in numbers]


def pass_blocks(one: TrainerPass) -> list[tuple[int, int]]:
    """Return start and duration of the blocks of a pass besides its gets: its start, and finding its end."""
    ended = [] if one.last is None or one.last_start is None else [(one.last_start, one.last)]
    return [(one.start, one.ready - one.start), *ended]


def pass_of(trainer: Trainer) -> dict[int, TrainerPass]:
    return {one.number: one for one in trainer.passes}


def queue_of(trainer: Trainer, loader: int) -> int:
    """Return the batches that a loader has in flight, which may be produced before the first request."""
    facts = next((one.facts for one in trainer.loaders if one.number == loader), {})
    return (whole_fact(facts, "num_workers") or 0) * (whole_fact(facts, "prefetch_factor") or PREFETCH)


def whole_fact(facts: dict[str, Any], name: str) -> int | None:
    """Return a fact if it is an integer; custom loaders may lack it."""
    value = facts.get(name)
    return value if isinstance(value, int) else None


def is_here(trainer: Trainer, one: TrainerPass) -> bool:
    """Return True if the trainer produces the batches of a pass itself."""
    return one.workers in ([], [trainer.pid])


def threads_of(loader: LoaderFacts | None) -> int:
    """Return the number of threads that produce a loader's batches in the trainer; 0 for torch's DataLoader."""
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
    """Return the evaluations in order, with adjacent ones merged."""
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
    """Return the warm-up: requested, the probe's, or that which uses up the initial prefetch, and settling steps."""
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
