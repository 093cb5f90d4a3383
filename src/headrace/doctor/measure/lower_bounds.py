"""Lower bounds of a step, on cached batches."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from headrace.doctor.measure.steps import window
from headrace.doctor.measure.view import T_95, TrainerView, at_hand_us, replayed_work_us
from headrace.doctor.probe import SETTLING_STEPS, replayed_steps
from headrace.doctor.quantities import counted
from headrace.doctor.session.after_run import Proof
from headrace.doctor.session.model import Session
from headrace.doctor.session.trainers import OBSERVE, REPLAY

USUAL_WARMUP = 10
"""Usual warm-up when the probe chooses it: the queue of two workers, and the settling steps."""
FEWEST_OBSERVED, MOST_SUGGESTED = 3, 40
BLOCKS = 8
"""Number of blocks per interval. A slow batch delays several steps, so steps are correlated; block means hardly are."""
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
    """Return the mean step on cached batches, minus data work in the loop; None if it is no lower bound.

    A valid proof with significantly shorter steps refutes the bound.
    """
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
