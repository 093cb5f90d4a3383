"""Steps that were fed with copies of kept batches, and waited for no loader."""

from __future__ import annotations

from bisect import bisect_left
from statistics import fmean

from headrace.doctor.analyse.device import device_spans
from headrace.doctor.analyse.parts import WAIT
from headrace.doctor.measure.steps import Step, window_steps
from headrace.doctor.session.model import Trainer


def window_us(trainer: Trainer, name: str, evaluation: float) -> float | None:
    """Mean step of a window; None where it has none. Evaluations go on as they are, few of them and at times of their
    own: of those the mean of the observed steps is taken, which is `evaluation`."""
    steps = [step for step in window_steps(trainer, name) if not step.gets]
    if not steps:
        return None
    return fmean(step.duration - evaluation_us(step) - _copying_us(trainer, step) for step in steps) + evaluation


def evaluation_us(step: Step) -> float:
    return sum(span.end - span.start for span in step.evaluations)


def _copying_us(trainer: Trainer, step: Step) -> float:
    """What copying kept batches added to a step: on a GPU that had work left meanwhile, less than it took."""
    replays = trainer.replays
    within = range(bisect_left(replays.start, step.start), bisect_left(replays.start, step.end))
    taken = float(sum(replays.duration[row] for row in within))
    marks = None if step.row is None else trainer.steps.device[step.row]
    if not marks:
        return taken
    return min(taken, sum(span.end - span.start for span in device_spans(marks) if span.name == WAIT))
