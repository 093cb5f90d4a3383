"""Proofs: the same run again with a remedy, measured against the baseline."""

from __future__ import annotations

from .baseline import DIGESTS, FEWEST_STEPS, STEPS, BaselinePace, ComparedSamples, are_equal, compare, patience_s
from .prover import ProveProgress, prover_of
from .trial import Trial, TrialRequest, attempt

__all__ = [
    "DIGESTS",
    "FEWEST_STEPS",
    "STEPS",
    "BaselinePace",
    "ComparedSamples",
    "ProveProgress",
    "Trial",
    "TrialRequest",
    "are_equal",
    "attempt",
    "compare",
    "patience_s",
    "prover_of",
]
