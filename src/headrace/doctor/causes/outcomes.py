"""Outcomes of proofs, next to their predictions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headrace.doctor.measure import LEAST_GAIN, interval, is_gain
from headrace.doctor.session.after_run import Proof
from headrace.doctor.simulate import Prediction

DISTURBING = 0.3
"""Change in the cores used by other programs that alone makes steps longer or shorter."""


@dataclass(frozen=True)
class ProofOutcome:
    """Outcome of a proof next to its prediction."""

    remedies: list[str]
    predicted: Prediction | None
    why: str
    """Kind of outcome, as in `session.model.Proof`."""
    detail: str
    step_us: float | None
    """Mean of the measured steps."""
    low_us: float | None
    high_us: float | None
    speedup: float | None
    samples: str | None
    recommended: bool
    """False if the remedy broke the run, changed its samples, or gained nothing."""
    disturbed_by: float | None = None
    """Additional cores that other programs used compared with the measured run, negative for fewer; None if the
    difference is too small to prevent a comparison."""
    is_slower: bool = False
    """True if the whole interval is above the step of both runs without remedies. A mean alone may be noise."""

    @property
    def is_undecided(self) -> bool:
        """True if the steps neither gained nor refuted the prediction, or other programs used more cores meanwhile."""
        return self.why == "measured" and not self.recommended and not self.is_refused

    @property
    def is_refused(self) -> bool:
        """True if the proof refuted the remedy. After an undecided proof, the remedy stays as predicted."""
        is_disturbed = self.disturbed_by is not None and self.disturbed_by > 0
        return self.is_faulty or (self._misses and not self.recommended and not is_disturbed)

    @property
    def _misses(self) -> bool:
        """True if the whole interval is above the prediction or above any gain. A mean alone may be noise."""
        if self.low_us is None or self.step_us is None or self.speedup is None:
            return False
        no_gain_us = (1 - LEAST_GAIN) * self.step_us * self.speedup
        return self.low_us > (no_gain_us if self.predicted is None else min(self.predicted.high_us, no_gain_us))

    @property
    def is_faulty(self) -> bool:
        """True if the run broke or trained on different samples."""
        return self.why == "broke" or self.samples == "different"

    @property
    def did_harm(self) -> bool:
        """True if the remedy broke or slowed the run. To gain nothing is no harm: another remedy may change that."""
        return self.is_faulty or (self.is_slower and self.disturbed_by is None)


def outcomes(
    proofs: Sequence[Proof],
    predict: Callable[[list[str]], Prediction | None],
    before_us: Sequence[float],
    others_cores: float | None = None,
) -> list[ProofOutcome]:
    """Judge each proof in order: gain against the shorter run without remedies, harm against the longer.

    Args:
        proofs: Proofs of one session.
        predict: Function that predicts the remedies with the given codes together.
        before_us: Mean steps of the runs without any remedy.
        others_cores: Cores that other programs used in the last of these runs.
    """
    found = []
    shorter_us, longer_us = min(before_us), max(before_us)
    for proof in proofs:
        measured = proof.steps if proof.why == "measured" else []
        mean, low, high = interval(measured) if measured else (None, None, None)
        more = None if proof.others_cores is None or others_cores is None else proof.others_cores - others_cores
        one = ProofOutcome(
            remedies=proof.remedies,
            predicted=predict(proof.remedies),
            why=proof.why,
            detail=proof.detail,
            step_us=mean,
            low_us=low,
            high_us=high,
            speedup=None if mean is None else shorter_us / mean,
            samples=proof.samples,
            recommended=bool(measured) and is_gain(measured, shorter_us) and proof.samples != "different",
            disturbed_by=more if measured and more is not None and abs(more) >= DISTURBING else None,
            is_slower=low is not None and mean is not None and low > longer_us and mean > longer_us * (1 + LEAST_GAIN),
        )
        found.append(one)
    return found


def left_out(outcomes: Sequence[ProofOutcome], codes: Sequence[str]) -> set[str]:
    """Return the chosen remedies that a proof refuted, alone or together.

    If several do harm only together, the first one stays.
    """
    last = {one.remedies[0]: one for one in outcomes if len(one.remedies) == 1}
    out = {code for code in codes if code in last and last[code].is_refused}
    for one in sorted(outcomes, key=lambda one: len(one.remedies)):
        named = [code for code in codes if code in one.remedies and code not in out]
        if len(named) == len(one.remedies) and one.did_harm:
            out |= set(named[1:] or named)
    return out
