"""Which steps of a trainer are measured, and what happened within each."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from math import inf
from typing import Any

from headrace.doctor.analyse.parts import WAIT
from headrace.doctor.analyse.spans import Span
from headrace.doctor.probe.ending import SETTLING_STEPS
from headrace.doctor.session.model import Pass, Session, Trainer, Window

OBSERVE, REPLAY, LOAD, DRAIN = "observe", "replay", "load", "drain"
"""Names of windows."""
EVALUATION = "e"
"""Kind of span, of docs/doctor/evidence.md."""
PREFETCH = 2
"""Batches that DataLoader has in flight for each worker where nothing else is said."""


@dataclass(frozen=True)
class Step:
    """One optimizer step, or where none was seen, one batch: from the start of its `next()` to that of the following.

    `row` is its row in `Trainer.steps` (None for a batch), `gets` the rows of `Trainer.gets` that began within it,
    those of its `evaluations` left out.
    """

    number: int
    row: int | None
    start: int
    end: int
    gets: list[int]
    evaluations: list[Span]

    @property
    def duration(self) -> int:
        return self.end - self.start


@dataclass(frozen=True)
class Training:
    """One trainer with the steps that are measured: complete, and after its warm-up."""

    trainer: Trainer
    unit: str
    """`step` or `batch`."""
    seen: int
    """Steps in the evidence, warm-up included."""
    warmup: int
    """Steps left out at the start."""
    steps: list[Step]
    waits: list[Span]
    """Whatever of the loaders blocks the loop, by its start: gets, the start of a pass, its last `next()`."""

    @cached_property
    def _reached(self) -> list[float]:
        """Until when the waits up to each have lasted."""
        return list(accumulate((span.end for span in self.waits), max))

    @property
    def gets(self) -> list[int]:
        """Rows of the gets within measured steps."""
        return [row for step in self.steps for row in step.gets]

    @property
    def until(self) -> float:
        """When the run stops being as it is: the windows after the observed one begin."""
        observed = window(self.trainer, OBSERVE)
        return inf if observed is None else observed.end

    @property
    def total_us(self) -> int:
        return sum(step.duration for step in self.steps)

    def waits_in(self, step: Step) -> list[Span]:
        """Those that reach into a step, and are none of an evaluation."""
        first = bisect_right(self._reached, step.start)
        last = bisect_left(self.waits, float(step.end), key=_start)
        return [span for span in self.waits[first:last] if not _within(span.start, step.evaluations)]

    def is_measured(self, time: float) -> bool:
        """Whether it lies within a measured step, and in no evaluation."""
        row = bisect_right(self.steps, time, key=lambda step: step.start) - 1
        return row >= 0 and time < self.steps[row].end and not _within(time, self.steps[row].evaluations)


def training(session: Session, trainer: Trainer) -> Training:
    """A run that is measured without windows stops at the number of steps asked for; an observed one takes them all.
    Where there are windows, only what they observed counts: the steps after that are fed with copies."""
    unit, steps = ("step", _steps(trainer)) if trainer.steps.number else ("batch", _batches(trainer))
    observed = window(trainer, OBSERVE)
    if observed is not None:
        steps = [step for step in steps if step.number < observed.first + observed.steps]
        measured = [step for step in steps if step.number >= observed.first]
        return Training(trainer, unit, len(steps), len(steps) - len(measured), measured, _waits(trainer))
    warmup = _decided(session, trainer)
    warmup = _warmup(trainer, steps) if warmup is None else warmup
    warmup = min(warmup, len(steps) // 2)
    most = warmup + session.steps if session.mode == "measure" else len(steps)
    return Training(trainer, unit, len(steps), warmup, steps[warmup:most], _waits(trainer))


def window(trainer: Trainer, name: str) -> Window | None:
    return next((one for one in trainer.windows if one.name == name), None)


def window_steps(trainer: Trainer, name: str) -> list[Step]:
    """The steps of a window that do not belong to the change from the one before."""
    found = window(trainer, name)
    if found is None:
        return []
    numbers = range(found.first + found.settling, found.first + found.steps)
    return [step for step in _steps(trainer) if step.number in numbers]


def pass_of(trainer: Trainer) -> dict[int, Pass]:
    return {one.number: one for one in trainer.passes}


def queue_of(trainer: Trainer, loader: int) -> int:
    """Batches that a loader keeps in flight: what may have been made before the loop first asked."""
    facts = next((one.facts for one in trainer.loaders if one.number == loader), {})
    return (whole_fact(facts, "num_workers") or 0) * (whole_fact(facts, "prefetch_factor") or PREFETCH)


def whole_fact(facts: dict[str, Any], name: str) -> int | None:
    """A fact that is a whole number, as a loader of somebody's own may not have it."""
    value = facts.get(name)
    return value if isinstance(value, int) else None


def _steps(trainer: Trainer) -> list[Step]:
    steps = trainer.steps
    return [
        _step(trainer, row, start, end)
        for row, (start, end) in enumerate(zip(steps.start, steps.end, strict=True))
        if end > start
    ]


def _step(trainer: Trainer, row: int, start: int, end: int) -> Step:
    starts = trainer.gets.start
    evaluations = [
        Span("evaluation", begun, begun + duration)
        for kind, begun, duration in trainer.steps.spans[row]
        if kind == EVALUATION
    ]
    within = range(bisect_left(starts, start), bisect_left(starts, end))
    gets = [get for get in within if not _within(starts[get], evaluations)]
    return Step(trainer.steps.number[row], row, start, end, gets, evaluations)


def _within(time: float, spans: list[Span]) -> bool:
    return any(span.start <= time < span.end for span in spans)


def _batches(trainer: Trainer) -> list[Step]:
    gets = trainer.gets
    if not gets.start:
        return []
    ends = [*gets.start[1:], gets.start[-1] + gets.duration[-1]]
    return [
        Step(row, None, start, end, [row], [])
        for row, (start, end) in enumerate(zip(gets.start, ends, strict=True))
        if end > start
    ]


def _decided(session: Session, trainer: Trainer) -> int | None:
    """Warm-up steps as they were asked for, or else as the probe chose them: it counted from there to the run's end."""
    if session.warmup is not None:
        return session.warmup
    process = next((one for one in session.processes if one.pid == trainer.pid), None)
    return None if process is None else whole_fact(process.facts.get("facts", {}), "warmup_steps")


def _warmup(trainer: Trainer, steps: list[Step]) -> int:
    """Steps that took what the busiest loader had prefetched, since that was made while the run started, and those that
    the probe, too, gives a run to settle."""
    passes = pass_of(trainer)
    loaders = Counter(one.loader for one in map(passes.get, trainer.gets.pass_) if one is not None)
    if not loaders:
        return SETTLING_STEPS
    ((loader, _),) = loaders.most_common(1)
    left = queue_of(trainer, loader)
    for number, step in enumerate(steps):
        if left <= 0:
            return number + SETTLING_STEPS
        left -= sum(_loader(passes, trainer.gets.pass_[row]) == loader for row in step.gets)
    return len(steps)


def _loader(passes: dict[int, Pass], number: int) -> int | None:
    one = passes.get(number)
    return None if one is None else one.loader


def _waits(trainer: Trainer) -> list[Span]:
    gets = trainer.gets
    spans = [Span(WAIT, start, start + duration) for start, duration in zip(gets.start, gets.duration, strict=True)]
    spans += [Span(WAIT, one.start, one.ready) for one in trainer.passes]
    spans += [
        Span(WAIT, one.last_start, one.last_start + one.last)
        for one in trainer.passes
        if one.last is not None and one.last_start is not None
    ]
    return sorted(spans, key=_start)


def _start(span: Span) -> float:
    return span.start
