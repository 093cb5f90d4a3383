"""Where the training thread's time goes in a step."""

from __future__ import annotations

from statistics import fmean, median, quantiles

from headrace.doctor.analyse.device import device_parts
from headrace.doctor.analyse.parts import (
    BACKWARD,
    COLLECTIVE,
    COPY,
    FORWARD,
    OPTIMIZER,
    ORDER,
    OTHER,
    UNSEEN,
    WAIT,
    mean_parts,
    parts_of,
)
from headrace.doctor.analyse.spans import Span, segments
from headrace.doctor.measure.diagnosis import StepBudget
from headrace.doctor.measure.steps import Step, Training

KINDS = {"h": COPY, "b": BACKWARD, "o": OPTIMIZER, "s": OPTIMIZER, "c": COLLECTIVE}
"""Of spans in the evidence; a newer probe's kinds are `other`."""


def step_budget(training: Training) -> StepBudget | None:
    """None where no step was measured."""
    if not training.steps:
        return None
    durations = [step.duration for step in training.steps]
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


def step_parts(training: Training, step: Step) -> dict[str, float]:
    """Microseconds of one step by part; they sum to its duration, whatever its spans are."""
    spans = training.waits_in(step)
    if step.row is not None:
        spans += [
            Span(KINDS.get(kind, OTHER), start, start + duration)
            for kind, start, duration in training.trainer.steps.spans[step.row]
        ]
    parts = parts_of(list(segments(step.start, step.end, spans)))
    if training.trainer.gets.start:
        return {WAIT: 0.0, **parts}
    return {UNSEEN if name == FORWARD else name: us for name, us in parts.items()}
