"""One trainer, measured from every side: step budget, device, waits, batch production, the probe's cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from statistics import fmean, median, quantiles

from headrace.doctor.measure.batches import Join, batch_production, with_loaders_as_one
from headrace.doctor.measure.diagnosis import LoaderProduction, ProbeCost, StepBudget, TimePart, WaitSplit
from headrace.doctor.measure.steps import (
    BACKWARD,
    COLLECTIVE,
    COPY,
    DATA_WORK,
    EVALUATION,
    FORWARD,
    OPTIMIZER,
    ORDER,
    OTHER,
    UNSEEN,
    WAIT,
    MeasuredStep,
    MeasuredTraining,
    TimeSpan,
    mean_parts,
    parts_of,
    segments,
    training,
)
from headrace.doctor.measure.waits import Wait, causes, wait_split, waits
from headrace.doctor.session.model import Session
from headrace.doctor.session.trainers import LoaderFacts, Trainer

PAIRS = {"w": ("r", WAIT), "h": ("i", COPY), "b": ("c", BACKWARD), "o": ("p", OPTIMIZER)}
"""Mark that begins a span, with the mark that ends it and its part."""
MODEL = "m"
"""Mark of the model's call: time between a batch and this mark, or the next batch, is work on data."""

Marks = Sequence[tuple[str, float]]
KINDS = {"d": DATA_WORK, "n": UNSEEN, "h": COPY, "b": BACKWARD, "o": OPTIMIZER, "s": OPTIMIZER, "c": COLLECTIVE}
"""Parts by kind of span in the evidence; kinds of a newer probe are `other`."""


def device_parts(training: MeasuredTraining) -> list[TimePart] | None:
    """Return the mean parts of a step on the GPU; None if not measured.

    `data wait` is the time from a `next()`, once all earlier work is done, to its return: the stream is idle meanwhile.
    It is shorter than the CPU's wait if the GPU was behind.
    """
    steps = []
    for step, following in pairwise(training.steps):
        if step.evaluations:  # the GPU worked for these, too
            continue
        marks, coming = marks_of(training.trainer, step), marks_of(training.trainer, following)
        if marks and coming and following.number == step.number + 1 and coming[0][1] > marks[0][1]:
            steps.append(parts_of(list(segments(marks[0][1], coming[0][1], device_spans(marks)))))
    return mean_parts(steps, ORDER) if steps else None


def device_spans(marks: Marks) -> list[TimeSpan]:
    """Return the spans between the marks of one step, on the GPU's clock. Unpaired marks are ignored."""
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


def marks_of(trainer: Trainer, step: MeasuredStep) -> Marks | None:
    return None if step.row is None else trainer.steps.device[step.row]


def step_budget(training: MeasuredTraining) -> StepBudget | None:
    """Return the mean parts of the measured steps; None without any."""
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
    )


def host_spans(trainer: Trainer, step: MeasuredStep) -> list[TimeSpan]:
    """Return the spans of the training thread in one step, without evaluations and waits."""
    spans = [] if step.row is None else trainer.steps.spans[step.row]
    kinds = ((KINDS.get(kind, OTHER), start, start + us) for kind, start, us in spans if kind != EVALUATION)
    return [TimeSpan(*one) for one in kinds]


def step_parts(training: MeasuredTraining, step: MeasuredStep) -> dict[str, float]:
    """Return microseconds of one step by part; they always sum to its duration."""
    spans = [*training.waits_in(step), *host_spans(training.trainer, step)]
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
    causes: WaitSplit
    batch_production: list[LoaderProduction]
    only: bool
    """True if no other rank trains alongside it."""

    @classmethod
    def of(cls, session: Session, trainer: Trainer, join: Join) -> TrainerView:
        measured = training(session, with_loaders_as_one(trainer))
        found = waits(measured, join)
        return cls(
            training=measured,
            budget=step_budget(measured),
            waits=found,
            split=wait_split(measured, found),
            causes=causes(trainer.pid, found, len(measured.steps)),
            batch_production=_by_wait(batch_production(measured, join), measured, found),
            only=len({one.rank for one in session.trainers}) < 2,
        )

    @property
    def trainer(self) -> Trainer:
        return self.training.trainer

    @property
    def awaited_production(self) -> list[LoaderProduction]:
        """Batch production of the loaders that fed measured steps."""
        fed = self.training.fed
        return [one for one in self.batch_production if one.loader in fed and self.loader(one.loader) is not None]

    @property
    def has_gpu(self) -> bool:
        return self.budget is not None and self.budget.device is not None

    @cached_property
    def data_share(self) -> float | None:
        """Data stall and the training thread's own data work, as a share of each step."""
        return None if self.wait_share is None else self.wait_share + self.share(DATA_WORK)

    @cached_property
    def wait_share(self) -> float | None:
        """Data stall as a share of each step, on the GPU if measured; None without a loader."""
        if self.budget is None or not self.training.trainer.gets.start:
            return None
        return self.share(WAIT)

    def share(self, part: str) -> float:
        """Return a part's share of each step, on the GPU if measured; 0 if there is none."""
        parts = [] if self.budget is None else self.budget.device or self.budget.parts
        return next((one.share for one in parts if one.name == part), 0.0)

    def loader(self, number: int) -> LoaderFacts | None:
        return next((loader for loader in self.trainer.loaders if loader.number == number), None)

    def demanded_cores(self, making: LoaderProduction) -> float | None:
        """Return the cores that produce batches as fast as the shortest possible step; None if unknown."""
        known = [(part.cpu_us, part.wall_us) for part in making.stages if part.cpu_us is not None]
        cpu, wall = sum(cpu for cpu, _ in known), sum(wall for _, wall in known)
        if self.budget is None or making.batches == 0 or wall <= 0:
            return None
        step_us = self._unhindered_us(self.budget)
        return self.budget.micro_batches * making.batch_us * cpu / wall / step_us if step_us > 0 else None

    def _unhindered_us(self, budget: StepBudget) -> float:
        """Return the step without waits for a worker: computing plus unpickling, or the longer if in two threads."""
        computing = sum(part.us for part in budget.parts if part.name != WAIT)
        gets, rows, steps = self.trainer.gets, self.training.gets, len(self.training.steps)
        between = sum(gets.unpickle[row] or 0 for row in rows if gets.pin[row] is None)
        beside = sum((gets.unpickle[row] or 0) + (gets.pin[row] or 0) for row in rows if gets.pin[row] is not None)
        return max(computing + between / steps, beside / steps)


def _by_wait(
    made: Sequence[LoaderProduction], training: MeasuredTraining, found: Sequence[Wait]
) -> list[LoaderProduction]:
    """Sort loaders that feed the steps together by the wait for each."""
    waited = Counter(dict.fromkeys(training.fed, 0))
    for wait in found:
        if wait.loader in waited:
            waited[wait.loader] += sum(wait.parts.values())
    return sorted(made, key=lambda one: (one.loader not in waited, -waited[one.loader]))


def main_view(views: Sequence[TrainerView]) -> TrainerView | None:
    """Return the view for the verdict: among training ones, the one with the longest data stall."""

    def weight(view: TrainerView) -> tuple[bool, float]:
        wait = (view.wait_share or 0.0) * view.training.total_us
        return view.training.unit == "step" and bool(view.training.steps), wait

    return max(views, key=weight, default=None)


def main_view_of(session: Session) -> TrainerView | None:
    join = Join(session)
    return main_view([TrainerView.of(session, trainer, join) for trainer in session.trainers])


def uses_gpu(session: Session, trainer: Trainer) -> bool:
    """Return True if a trainer used a GPU; torch with CUDA may train without one."""
    facts = session.process_facts(trainer)
    return any(facts.get(kind, {}).get("device") is not None for kind in ("facts", "torch"))


def cost(session: Session, views: Sequence[TrainerView]) -> ProbeCost:
    """Return the cost of the probe, the median step's, since the first step includes one-time costs."""
    probed = [
        (us, step.duration)
        for view in views
        for step in view.training.steps
        if step.row is not None and (us := view.trainer.steps.probe[step.row]) is not None
    ]
    step_us = share = None
    if probed:
        step_us = median(us for us, _ in probed)
        share = step_us / fmean(duration for _, duration in probed)
    return ProbeCost(
        step_us=step_us, step_share=share, evidence_bytes=sum(process.evidence_bytes for process in session.processes)
    )
