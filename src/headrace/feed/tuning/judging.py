"""Whether a move has paid: the time of a step, wait and work together, before it and after it. Pure."""

from __future__ import annotations

import math
from enum import Enum

from headrace.feed.tuning.moves import LEAST_AHEAD, MOSTLY_WAITING, WAITS, Move
from headrace.feed.tuning.observation import Observation

GAIN = 0.02
"""The share of a step that more has to save, and that counts as faster."""
LOSS = 0.01
"""The share of a step that less may cost."""
SLACK = 0.02
"""The share of time in which a feed that keeps up finds all places filled."""
CALMER = 0.7
"""What may be left of the waiting where more batches ahead have paid, whatever the step's own jitter."""
SURE = 1.5
"""Standard errors beyond which a difference is taken for one."""
MOST_WINDOWS = 3
"""After so many, a difference that noise hides is none."""


class Verdict(Enum):
    KEEP = "keep"
    BACK = "back"
    LONGER = "look longer"


def judge(move: Move, before: Observation, now: Observation, windows: int) -> Verdict:
    """`now` is of `windows` windows since the move."""
    noise_s = SURE * math.hypot(before.error_s, now.error_s)
    saved_s = before.step_s - now.step_s
    if saved_s > max(GAIN * before.step_s, noise_s):
        return Verdict.KEEP
    if move.up and move.knob == "prefetch" and _is_calmer(before, now, noise_s):
        return Verdict.KEEP
    if -saved_s > max(LOSS * before.step_s, noise_s):
        return Verdict.BACK
    if move.up and before.wait_share >= MOSTLY_WAITING and (move.knob == "threads" or move.value <= LEAST_AHEAD):
        return Verdict.KEEP  # of no gain that noise lets see; to go without for seconds would cost the most
    if noise_s > (GAIN if move.up else LOSS) * before.step_s and windows < MOST_WINDOWS:
        return Verdict.LONGER
    return Verdict.BACK if move.up or not keeps_up(move, now) else Verdict.KEEP


def keeps_up(move: Move, now: Observation) -> bool:
    """Whether no batch will be late once those that were ready at the move are used up."""
    if move.knob == "prefetch":
        return now.wait_share < WAITS
    return now.feed_wait_share >= SLACK and now.wait_share < WAITS


def _is_calmer(before: Observation, now: Observation, noise_s: float) -> bool:
    """Less waiting shows sooner than the shorter step that it makes."""
    was_s, is_s = before.wait_s / before.steps, now.wait_s / now.steps
    saved_s = was_s - is_s
    return is_s < CALMER * was_s and saved_s > LOSS / 2 * before.step_s and now.step_s < before.step_s + noise_s
