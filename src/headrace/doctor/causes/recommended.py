"""Recommended next action of a diagnosis, of which reports show one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from headrace.doctor.causes.cores import CROWDED, SPINNING
from headrace.doctor.causes.remedy import LEAST_STEPS, Prescription, ProofOutcome, Remedy
from headrace.doctor.measure import BOUND, Diagnosis
from headrace.doctor.quantities import duration
from headrace.doctor.simulate import Prediction

SLOWED = 0.85
"""Reporting threshold: ratio of a step on cached batches with idle workers to a step without its waits."""


@dataclass(frozen=True)
class Recommended:
    """Remedies with their proof or prediction, or else advice in words."""

    remedies: Sequence[Remedy] = ()
    outcome: ProofOutcome | None = None
    prediction: Prediction | None = None
    stop: str = ""
    """Reason to leave the data as it is."""
    advice: str = ""
    """Advice of a finding, with an unknown gain."""


def recommended(diagnosis: Diagnosis, prescription: Prescription | None) -> Recommended | None:
    """Return the best proven remedy, else the first remedy with a certain predicted gain, else advice.

    If data does not limit the step, only a proven remedy counts. If a proof refuted a remedy, no advice is given,
    because it may amount to the same remedy. None if too few steps were seen: the end of the command then matters more.
    """
    are_few = bool(diagnosis.budgets) and all(budget.steps < LEAST_STEPS for budget in diagnosis.budgets)
    if prescription is not None and prescription.stop:
        return (None if are_few else _proved(prescription)) or Recommended(stop=prescription.stop)
    if are_few:
        return None
    if prescription is not None:
        found = gaining(prescription)
        if found is not None or any(outcome.is_refused for outcome in prescription.outcomes):
            return found
    # Crowded workers and threads make every stage slower than necessary.
    first = sorted(diagnosis.findings, key=lambda one: one.code not in CROWDED or one.weight < BOUND)
    advice = next((finding.advice for finding in first if finding.advice), "")
    return Recommended(advice=advice) if advice else None


def gaining(prescription: Prescription) -> Recommended | None:
    """Return the best proven remedy, else the first with a certain predicted gain; None without either."""
    return _proved(prescription) or _predicted(prescription)


def _proved(prescription: Prescription) -> Recommended | None:
    """Return the remedies with the largest proven gain; None if no proof gained."""
    outcomes = {tuple(sorted(one.remedies)): one for one in prescription.outcomes}  # the last proof counts
    gained = [(one.step_us, one) for one in outcomes.values() if one.recommended and one.step_us is not None]
    if not gained:
        return None
    _, best = min(gained, key=lambda each: each[0])
    known = {one.code: one for one in prescription.remedies}
    return Recommended([known[code] for code in best.remedies if code in known], outcome=best)


def _predicted(prescription: Prescription) -> Recommended | None:
    """Return the first remedy with a predicted gain; None if there is none.

    Refuted remedies and remedies that may gain nothing are skipped.
    """
    for remedy in prescription.helping:
        outcome, prediction = prescription.outcome_of([remedy.code]), remedy.prediction
        is_open = outcome is None or not outcome.is_refused
        if is_open and prediction is not None and prediction.high_us < prediction.step_us * prediction.speedup:
            return Recommended([remedy], prediction=prediction)
    return None


def slowed(diagnosis: Diagnosis, prescription: Prescription | None) -> Iterator[str]:
    """Yield a sentence if workers slow the training down, so that a step on cached batches is shorter."""
    bounds = None if prescription is None or prescription.stop else prescription.lower_bounds
    waits = diagnosis.wait_share
    is_said = any(one.code == SPINNING for one in diagnosis.findings)
    if bounds is None or bounds.replay_us is None or waits is None or is_said:
        return
    own_us = bounds.observed_us * (1 - waits)
    if bounds.replay_us < SLOWED * own_us:
        yield (
            f"The workers slow the training down: without its waits a step takes {duration(own_us)} beside them, and "
            f"{duration(bounds.replay_us)} while they are idle."
        )
