"""Proofs: the same run again with a remedy, measured against the baseline."""

from __future__ import annotations

from .baseline import DIGESTS, FEWEST_STEPS, STEPS, BaselinePace
from .prover import Prover, TrialRunner
from .trial import Trial

__all__ = [
    "DIGESTS",
    "FEWEST_STEPS",
    "STEPS",
    "BaselinePace",
    "Prover",
    "Trial",
    "TrialRunner",
]
