"""Lower bounds of a step: its replay on cached batches, and proofs that refute a bound."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median, stdev

from headrace.doctor.measure.steps import DATA_WORK, WAIT, MeasuredStep, parts_of, segments, window, window_steps
from headrace.doctor.measure.view import TrainerView, device_spans, host_spans, marks_of
from headrace.doctor.probe.training.loop_watch import SETTLING_STEPS
from headrace.doctor.probe.training.windows import replayed_steps
from headrace.doctor.quantities import counted
from headrace.doctor.session.after_run import Proof
from headrace.doctor.session.model import Session
from headrace.doctor.session.trainers import OBSERVE, REPLAY, Trainer

USUAL_WARMUP = 10
"""Usual warm-up when the probe chooses it: the queue of two workers, and the settling steps."""
FEWEST_OBSERVED, MOST_SUGGESTED = 3, 40
BLOCKS = 8
"""Number of blocks per interval. A slow batch delays several steps, so steps are correlated; block means hardly are."""
T_95 = {1: 12.71, 2: 4.30, 3: 3.18, 4: 2.78, 5: 2.57, 6: 2.45, 7: 2.36}
"""Student's t for 95 %, two-sided, by degrees of freedom."""
LEAST_GAIN = 0.02
"""Minimum share of the step that counts as a gain."""


@dataclass(frozen=True)
class LowerBounds:
    """Lower bounds of the step, from the windows of a measured run."""

    observed_us: float
    """Mean step of the baseline."""
    replay_us: float | None
    """Mean step on cached batches with idle workers, minus data work in the loop: the minimum for any loader."""
    work_us: float = 0.0
    """Data work in the loop, included in steps on cached batches. A loader can take it over."""


def lower_bounds(session: Session, view: TrainerView) -> LowerBounds | None:
    """Return the lower bounds of one trainer's step; None if the run had no windows."""
    trainer = view.trainer
    if view.budget is None or window(trainer, REPLAY) is None:
        return None
    replay_us = cached_step_us(session, view)
    return LowerBounds(
        observed_us=view.budget.mean_us,
        replay_us=replay_us,
        work_us=0.0 if replay_us is None else replayed_work_us(trainer),
    )


def why_no_lower_bounds(session: Session, view: TrainerView | None) -> str:
    """Return why there are no lower bounds; empty if there are."""
    if session.mode != "measure":
        return "The run was only observed, as requested."
    said = next((note.text for note in session.notes if note.code in ("no-replay", "enough")), "")
    if said:
        return said
    if view is not None and window(view.trainer, REPLAY) is not None:
        beaten = view.budget is not None and cached_step_us(session, view) is None
        return "A proof's steps are shorter than those on cached batches, so these bound nothing." if beaten else ""
    if view is not None and window(view.trainer, OBSERVE) is not None:
        return "The run ended before anything was replayed."
    seen = 0 if view is None else view.training.seen
    said = f"The run ended after {counted(seen, 'step')}, before cached batches were tried."
    options = options_for(seen)
    return f"{said} {options} leaves room for them." if options else f"{said} That takes a longer run."


def options_for(steps: int) -> str:
    """Return the option that leaves room for cached batches in a run of `steps` steps; empty if none does."""
    for observed in range(MOST_SUGGESTED, FEWEST_OBSERVED - 1, -1):
        replayed = SETTLING_STEPS + replayed_steps(MOST_SUGGESTED, observed, 0.0)
        if USUAL_WARMUP + observed + replayed <= steps:
            return f"--steps {observed}"
    return ""


def cached_step_us(session: Session, view: TrainerView) -> float | None:
    """Return the mean step on cached batches, without data work in the loop; None if a valid proof refutes it."""
    bound_us = at_hand_us(view)
    if bound_us is None or any(is_valid(one) and is_gain(one.steps, bound_us) for one in session.proofs):
        return None
    return bound_us


def is_valid(proof: Proof) -> bool:
    """Return True if a proof measured steps on the run's samples."""
    return proof.why == "measured" and bool(proof.steps) and proof.samples != "different"


def is_gain(steps: Sequence[float], before_us: float) -> bool:
    """Return True if the whole interval is below the baseline's step, and the mean by at least `LEAST_GAIN`."""
    mean, _, high = interval(steps)
    return high < before_us and mean < before_us * (1 - LEAST_GAIN)


def interval(steps: Sequence[float]) -> tuple[float, float, float]:
    """Return the mean and its 95 % confidence interval, which is infinite for fewer than two blocks."""
    mean = fmean(steps)
    blocks = min(BLOCKS, len(steps) // 2)
    if blocks < 2:
        return mean, 0.0, math.inf
    size = len(steps) / blocks
    means = [fmean(steps[round(i * size) : round((i + 1) * size)]) for i in range(blocks)]
    half = T_95[blocks - 1] * stdev(means) / math.sqrt(blocks)
    return mean, max(mean - half, 0.0), mean + half


def window_us(trainer: Trainer, name: str) -> float | None:
    """Return the mean step of a window; None if it has no steps."""
    steps = [step for step in window_steps(trainer, name) if not step.gets]
    if not steps:
        return None
    return fmean(step.duration - _copying_us(trainer, step) for step in steps)


def replayed_work_us(trainer: Trainer) -> float:
    """Return the data work in a replayed step: on a GPU, only as far as the GPU waits for it."""
    steps = [step for step in window_steps(trainer, REPLAY) if not step.gets]
    return fmean(_data_work_us(trainer, step) for step in steps) if steps else 0.0


def _data_work_us(trainer: Trainer, step: MeasuredStep) -> float:
    spans, start, end = host_spans(trainer, step), float(step.start), float(step.end)
    if marks := marks_of(trainer, step):
        spans, start, end = device_spans(marks), marks[0][1], marks[-1][1]
    return parts_of(list(segments(start, end, spans))).get(DATA_WORK, 0.0)


def replayed_us(view: TrainerView) -> float | None:
    """Return the mean step on cached batches, data work in the loop included; None without a replay window.

    Without workers, the step itself produces the batches, so cached batches save only the data stall.
    """
    replay_us = window_us(view.trainer, REPLAY)
    if replay_us is None or view.budget is None or any(one.workers for one in view.batch_production[:1]):
        return replay_us
    return max(replay_us, (1 - (view.wait_share or 0.0)) * view.budget.mean_us)


def at_hand_us(view: TrainerView) -> float | None:
    """Return the mean step with batches ready for the model, from the replay window; None without one."""
    if view.budget is None:
        return None
    replay_us = replayed_us(view)
    return None if replay_us is None else max(replay_us - replayed_work_us(view.trainer), 0.0)


def replayed_threads(trainer: Trainer) -> float | None:
    """Return the threads that computed at once in the median replayed step; None if unknown."""
    found = [
        cpu / step.duration
        for step in window_steps(trainer, REPLAY)
        if not step.gets and not step.evaluations and step.duration and step.row is not None and trainer.steps.cpu
        if (cpu := trainer.steps.cpu[step.row]) is not None
    ]
    return median(found) if found else None


def _copying_us(trainer: Trainer, step: MeasuredStep) -> float:
    """Return the time that copying cached batches added to a step: less than it took if the GPU still had work."""
    replays = trainer.replays
    within = range(bisect_left(replays.start, step.start), bisect_left(replays.start, step.end))
    taken = float(sum(replays.duration[row] for row in within))
    marks = marks_of(trainer, step)
    if not marks:
        return taken
    return min(taken, sum(span.end - span.start for span in device_spans(marks) if span.name == WAIT))
