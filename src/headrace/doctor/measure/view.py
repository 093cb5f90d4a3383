"""One trainer, measured from every side: step budget, device, replayed steps, the probe's cost."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import sqrt
from statistics import fmean, median, quantiles, stdev

from ..session.model import Session
from ..session.trainers import LoaderFacts, Trainer
from .batches import Join, busy_us
from .diagnosis import LoaderProduction, ProbeCost, StepBudget, TimePart, WaitCauses, WaitSplit
from .production import batch_production, shares_of_feeds
from .steps import (
    BACKWARD,
    COLLECTIVE,
    COPY,
    DATA_WORK,
    EVALUATION,
    FORWARD,
    OPTIMIZER,
    ORDER,
    OTHER,
    REPLAY,
    UNSEEN,
    WAIT,
    MeasuredStep,
    MeasuredTraining,
    TimeSpan,
    mean_parts,
    parts_of,
    segments,
    training,
    window_steps,
    with_loaders_as_one,
)
from .waits import Wait, causes, wait_split, waits

PAIRS = {"w": ("r", WAIT), "h": ("i", COPY), "b": ("c", BACKWARD), "o": ("p", OPTIMIZER)}
"""Mark that begins a span, with the mark that ends it and its part."""
MODEL = "m"
"""Mark at which the model is called: what comes between a batch and this, or the next batch, is work on data."""

Marks = Sequence[tuple[str, float]]
KINDS = {
    "d": DATA_WORK,
    "n": UNSEEN,
    "f": FORWARD,
    "h": COPY,
    "b": BACKWARD,
    "o": OPTIMIZER,
    "s": OPTIMIZER,
    "c": COLLECTIVE,
}
"""Parts by kind of span in the evidence; a newer probe's kinds are `other`."""


def device_parts(training: MeasuredTraining) -> list[TimePart] | None:
    """Return the mean parts of a step on the GPU; None where it was not measured.

    `data wait` is the time between a `next()` that began, once all work before it was done, and its return: the stream
    has nothing to do meanwhile. It is less than the CPU's wait where the GPU was still behind.
    """
    steps = []
    for step, following in pairwise(training.steps):
        if step.evaluations:  # the GPU worked for these, too
            continue
        marks, coming = _marks(training.trainer, step), _marks(training.trainer, following)
        if marks and coming and following.number == step.number + 1 and coming[0][1] > marks[0][1]:
            steps.append(parts_of(list(segments(marks[0][1], coming[0][1], device_spans(marks)))))
    return mean_parts(steps, ORDER) if steps else None


def device_spans(marks: Marks) -> list[TimeSpan]:
    """Return the spans that the marks of one step bound, on the GPU's clock. A mark without its partner bounds none."""
    begun: dict[str, float] = {}
    spans = []
    ends = {end: (begin, name) for begin, (end, name) in PAIRS.items()}
    in_hand: float | None = None
    shows_model = any(kind == MODEL for kind, _ in marks)
    for kind, us in marks:
        if kind in (MODEL, "w") and in_hand is not None:
            spans.append(TimeSpan(DATA_WORK, in_hand, us))
        if kind in (MODEL, "w", "b", "o"):
            in_hand = None
        if kind in PAIRS:
            begun[kind] = us
        elif kind in ends:
            begin, name = ends[kind]
            if begin in begun:
                spans.append(TimeSpan(name, begun.pop(begin), us))
        if kind == "r" and shows_model:
            in_hand = us
    return spans


def _marks(trainer: Trainer, step: MeasuredStep) -> Marks | None:
    return None if step.row is None else trainer.steps.device[step.row]


T_95 = {1: 12.71, 2: 4.30, 3: 3.18, 4: 2.78, 5: 2.57, 6: 2.45, 7: 2.36}
"""Student's t for 95 %, two-sided, by degrees of freedom."""
FEW_STEPS = 20
"""Fewer steps have their mean's interval beside it."""


def mean_half_us(durations: Sequence[int]) -> float | None:
    """Return half of the 95 % confidence interval of the mean of few steps; None of one alone, and of many."""
    if not 1 < len(durations) < FEW_STEPS:
        return None
    return T_95[min(len(durations) - 1, max(T_95))] * stdev(durations) / sqrt(len(durations))


def step_budget(training: MeasuredTraining) -> StepBudget | None:
    """Return the mean parts of the measured steps; None where there were none."""
    if not training.steps:
        return None
    durations = training.durations
    return StepBudget(
        pid=training.trainer.pid,
        rank=training.trainer.rank,
        unit=training.unit,
        steps=len(durations),
        micro_batches=len(training.gets) / len(durations),
        mean_us=fmean(durations),
        median_us=median(durations),
        p95_us=quantiles(durations, n=20, method="inclusive")[-1] if len(durations) > 1 else durations[0],
        parts=mean_parts([step_parts(training, step) for step in training.steps], ORDER),
        device=device_parts(training),
        mean_half_us=mean_half_us(durations),
    )


def step_parts(training: MeasuredTraining, step: MeasuredStep) -> dict[str, float]:
    """Return microseconds of one step by part; they sum to its duration, whatever its spans are."""
    spans = training.waits_in(step)
    if step.row is not None:
        spans += [
            TimeSpan(KINDS.get(kind, OTHER), start, start + duration)
            for kind, start, duration in training.trainer.steps.spans[step.row]
            if kind != EVALUATION
        ]
    parts = parts_of([piece for start, end in step.stretches for piece in segments(start, end, spans)])
    if training.trainer.gets.start:
        return {WAIT: 0.0, **parts}
    if UNSEEN in parts:  # until the model was called
        return parts
    return {UNSEEN if name == FORWARD else name: us for name, us in parts.items()}


@dataclass(frozen=True)
class TrainerView:
    """One trainer, measured once for the verdict and the findings."""

    training: MeasuredTraining
    budget: StepBudget | None
    waits: list[Wait]
    split: WaitSplit | None
    causes: WaitCauses
    batch_production: list[LoaderProduction]
    only: bool
    """Whether no other rank trains alongside it."""

    @classmethod
    def of(cls, session: Session, trainer: Trainer, join: Join) -> TrainerView:
        measured = training(session, with_loaders_as_one(trainer))
        found = waits(measured, join)
        return cls(
            training=measured,
            budget=step_budget(measured),
            waits=found,
            split=wait_split(measured, found),
            causes=causes(trainer.pid, found, len(measured.steps), shares_of_feeds(measured)),
            batch_production=_by_wait(batch_production(measured, join), measured, found),
            only=len({one.rank for one in session.trainers}) < 2,
        )

    @property
    def trainer(self) -> Trainer:
        return self.training.trainer

    @cached_property
    def waited_us(self) -> Counter[int]:
        """Time that the training thread waited in measured steps, by loader that fed them."""
        return _waited_us(self.training, self.waits)

    @property
    def has_gpu(self) -> bool:
        """Tell whether the waits of the GPU were measured."""
        return self.budget is not None and self.budget.device is not None

    @cached_property
    def data_share(self) -> float | None:
        """Data wait and the training thread's own work on data, as a share of each step."""
        return None if self.wait_share is None else self.wait_share + self.share(DATA_WORK)

    @cached_property
    def wait_share(self) -> float | None:
        """Data wait as a share of each step, seen by the GPU where that was measured; None without a loader."""
        if self.budget is None or not self.training.trainer.gets.start:
            return None
        return self.share(WAIT)

    def share(self, part: str) -> float:
        """Return a part's share of each step, seen by the GPU where that was measured.

        0 where there is no such part.
        """
        parts = [] if self.budget is None else self.budget.device or self.budget.parts
        return next((one.share for one in parts if one.name == part), 0.0)

    def loader(self, number: int) -> LoaderFacts | None:
        return next((loader for loader in self.trainer.loaders if loader.number == number), None)

    def demanded_cores(self, making: LoaderProduction) -> float | None:
        """Return the cores that making batches takes as fast as the trainer can take them; None where unknown.

        It is the CPU time of a step's batches by the least time that a step takes, however many workers there are.
        """
        known = [(part.cpu_us, part.wall_us) for part in making.stages if part.cpu_us is not None]
        cpu, wall = sum(cpu for cpu, _ in known), sum(wall for _, wall in known)
        if self.budget is None or making.batches == 0 or wall <= 0:
            return None
        step_us = self._unhindered_us(self.budget)
        return self.budget.micro_batches * making.batch_us * cpu / wall / step_us if step_us > 0 else None

    def _unhindered_us(self, budget: StepBudget) -> float:
        """Return the step that never waits for a worker.

        It is its computing and the unpickling of its batches, by the same thread. Where another thread unpickles and
        pins them meanwhile, it is the longer of the two.
        """
        computing = sum(part.us for part in budget.parts if part.name != WAIT)
        gets, rows, steps = self.trainer.gets, self.training.gets, len(self.training.steps)
        between = sum(gets.unpickle[row] or 0 for row in rows if gets.pin[row] is None)
        beside = sum((gets.unpickle[row] or 0) + (gets.pin[row] or 0) for row in rows if gets.pin[row] is not None)
        return max(computing + between / steps, beside / steps)


def _waited_us(training: MeasuredTraining, found: Sequence[Wait]) -> Counter[int]:
    waited = Counter(dict.fromkeys(training.fed, 0))
    for wait in found:
        if wait.loader in waited:
            waited[wait.loader] += sum(wait.parts.values())
    return waited


def _by_wait(
    made: Sequence[LoaderProduction], training: MeasuredTraining, found: Sequence[Wait]
) -> list[LoaderProduction]:
    """Sort loaders that feed the steps together by how long these wait for each."""
    waited = _waited_us(training, found)
    return sorted(made, key=lambda one: (one.loader not in waited, -waited[one.loader]))


def main_view(views: Sequence[TrainerView]) -> TrainerView | None:
    """Return the view that the verdict is about: of those that train, the one that waited longest for data."""

    def weight(view: TrainerView) -> tuple[bool, float]:
        wait = (view.wait_share or 0.0) * view.training.total_us
        return view.training.unit == "step" and bool(view.training.steps), wait

    return max(views, key=weight, default=None)


def main_view_of(session: Session) -> TrainerView | None:
    """Measure a session's trainers, and return the main view."""
    join = Join(session)
    return main_view([TrainerView.of(session, trainer, join) for trainer in session.trainers])


def uses_gpu(session: Session, trainer: Trainer) -> bool:
    """Return whether a trainer used a GPU; torch with CUDA may well train without one."""
    facts = session.process_facts(trainer)
    return any(facts.get(kind, {}).get("device") is not None for kind in ("facts", "torch"))


def cost(session: Session, views: Sequence[TrainerView], join: Join) -> ProbeCost:
    """Return what the probe cost.

    Makers whose batches were thinned do not tell how long they were busy, and are left out of `worker_share`. The cost
    of a measured step is the median: the first one also pays for what is done once. Steps that were let pass cost less,
    and count as they are.
    """
    probed = [
        (us, step.duration)
        for view in views
        for step in view.training.steps
        if step.row is not None and (us := view.trainer.steps.probe[step.row]) is not None
    ]
    rests = [rest for view in views for rest in view.trainer.rests]
    step_us = share = None
    if probed:
        spent = median(us for us, _ in probed) * len(probed) + sum(rest.probe for rest in rests)
        step_us = spent / (len(probed) + sum(rest.steps for rest in rests))
        share = step_us / fmean(duration for _, duration in probed)
    told = [maker for maker in session.makers if maker.probe is not None and not join.is_thinned(maker)]
    busy = sum(busy_us(maker) for maker in told)
    return ProbeCost(
        step_us=step_us,
        step_share=share,
        worker_share=sum(maker.probe or 0 for maker in told) / busy if busy else None,
        evidence_bytes=sum(process.evidence_bytes for process in session.processes),
    )


def window_us(trainer: Trainer, name: str) -> float | None:
    """Return the mean step of a window; None where it has none."""
    steps = [step for step in window_steps(trainer, name) if not step.gets]
    if not steps:
        return None
    return fmean(step.duration - _copying_us(trainer, step) for step in steps)


def replayed_work_us(trainer: Trainer) -> float:
    """Return what work on data adds to a replayed step: on a GPU, as much as that waits for it."""
    steps = [step for step in window_steps(trainer, REPLAY) if not step.gets]
    return fmean(_data_work_us(trainer, step) for step in steps) if steps else 0.0


def _data_work_us(trainer: Trainer, step: MeasuredStep) -> float:
    spans: list[TimeSpan] = []
    start, end = float(step.start), float(step.end)
    if marks := _marks(trainer, step):
        spans, start, end = device_spans(marks), marks[0][1], marks[-1][1]
    elif step.row is not None:
        spans = [
            TimeSpan(KINDS.get(kind, OTHER), begun, begun + us) for kind, begun, us in trainer.steps.spans[step.row]
        ]
    return parts_of(list(segments(start, end, spans))).get(DATA_WORK, 0.0)


def replayed_us(view: TrainerView) -> float | None:
    """Return the mean step on cached batches, data work in the loop included; None without a replay window.

    Without workers the step itself makes the batches, so that cached ones save no more than the wait for these.
    """
    replay_us = window_us(view.trainer, REPLAY)
    if replay_us is None or view.budget is None or any(one.workers for one in view.batch_production[:1]):
        return replay_us
    return max(replay_us, (1 - (view.wait_share or 0.0)) * view.budget.mean_us)


def at_hand_us(view: TrainerView) -> float | None:
    """Return the mean step with batches at hand that need no more work, by the replay window; None without one."""
    if view.budget is None:
        return None
    replay_us = replayed_us(view)
    return None if replay_us is None else max(replay_us - replayed_work_us(view.trainer), 0.0)


def replayed_threads(trainer: Trainer) -> float | None:
    """Return the threads that computed at once in the median replayed step; None where none tells."""
    found = [
        cpu / step.duration
        for step in window_steps(trainer, REPLAY)
        if not step.gets and not step.evaluations and step.duration and step.row is not None and trainer.steps.cpu
        if (cpu := trainer.steps.cpu[step.row]) is not None
    ]
    return median(found) if found else None


def _copying_us(trainer: Trainer, step: MeasuredStep) -> float:
    """Return what copying cached batches added to a step: less than it took on a GPU that had work left meanwhile."""
    replays = trainer.replays
    within = range(bisect_left(replays.start, step.start), bisect_left(replays.start, step.end))
    taken = float(sum(replays.duration[row] for row in within))
    marks = _marks(trainer, step)
    if not marks:
        return taken
    return min(taken, sum(span.end - span.start for span in device_spans(marks) if span.name == WAIT))
