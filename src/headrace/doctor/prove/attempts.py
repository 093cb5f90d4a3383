"""Which remedies are tried, in which order, and which of them together. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from headrace.doctor.causes.remedy import Prescription
from headrace.doctor.remedies.outcomes import is_gain
from headrace.doctor.session.model import Proof


@dataclass(frozen=True)
class Attempt:
    """One run to make."""

    remedies: list[str]
    changes: dict[str, Any]
    step_us: float | None
    """What is expected of a step; None where nothing is."""


def attempts(prescription: Prescription) -> list[Attempt]:
    """One for each remedy that would help and that injection can apply, the shortest expected step first; of those
    without a prediction nothing is expected."""
    found = [
        Attempt([remedy.code], remedy.changes, None if remedy.prediction is None else remedy.prediction.step_us)
        for remedy in prescription.remedies
        if remedy.helps and remedy.changes
    ]
    return sorted(found, key=lambda one: float("inf") if one.step_us is None else one.step_us)


def together(proofs: Sequence[Proof], observed_us: float) -> Attempt | None:
    """All that proved to be of use, the most useful first: where two of them say something about the same thing, its
    word counts. None where that is no more than one of them does. It is expected to do no worse than the best alone."""
    useful = sorted((proof for proof in proofs if is_of_use(proof, observed_us)), key=mean_us)
    codes = [code for proof in useful for code in proof.remedies]
    changes: dict[str, Any] = {}
    for proof in useful:
        changes = joined(changes, proof.changes)
    if len(codes) < 2 or changes == useful[0].changes:
        return None
    return Attempt(codes, changes, mean_us(useful[0]))


def is_of_use(proof: Proof, observed_us: float) -> bool:
    """Return whether it would be recommended: it was measured, surely gained, and left the samples as they were."""
    if proof.why != "measured" or not proof.steps or proof.samples == "different":
        return False
    return is_gain(proof.steps, observed_us)


def mean_us(proof: Proof) -> float:
    return sum(proof.steps) / len(proof.steps)


def joined(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """All that either says; of what both say, what the first does."""
    both = {
        key: joined(value, second[key]) if isinstance(value, dict) and isinstance(second.get(key), dict) else value
        for key, value in first.items()
    }
    return {**second, **both}
