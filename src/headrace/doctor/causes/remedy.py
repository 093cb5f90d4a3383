"""Remedies of a run, the prescription that they make up, and the outcomes of their proofs.

Everything is computed from a session, like the diagnosis. Times are in microseconds, and shares are fractions of 1.
None means that a figure was not measured or is unknown; reports never show it as 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from headrace.doctor.measure import LEAST_GAIN, LowerBounds, interval, is_gain, is_valid
from headrace.doctor.quantities import times
from headrace.doctor.session.after_run import AdoptedPart, Proof
from headrace.doctor.simulate import Prediction

EFFORTS = SETTING, ONE_LINE, FEW_LINES, ANOTHER_LOADER = (
    *("a setting", "one line of code", "a few lines of code", "another loader"),
)
"""Levels of effort for the user, least first."""


@dataclass(frozen=True)
class Edit:
    """Change to the user's own code."""

    file: str
    line: int
    diff: str
    """Unified diff with one or more hunks in the file."""


@dataclass(frozen=True)
class Remedy:
    """Single change, recommended or rejected."""

    code: str
    """Code from docs/doctor/remedies.md, such as `workers`."""
    title: str
    """Change in a few words: `8 workers in place of 2`."""
    helps: bool
    why: str
    """Sentence with the figures behind the recommendation or rejection."""
    prediction: Prediction | None
    """Predicted step; None if the remedy does not help or its gain cannot be computed."""
    confidence: str
    """`high`, `medium` or `low`, depending on the basis of the prediction."""
    costs: list[str] = field(default_factory=list)
    """Required memory, disk space or work, each as a phrase with its figure."""
    edit: Edit | None = None
    hint: str = ""
    """Change in words or a line of code, if the source line is unknown."""
    changes: dict[str, Any] | None = None
    """Changes that a proof injects; None if the user has to make the change."""
    degree: str = ""
    """Degree to which the Loader does the dataset's work: `exact` or `part`; empty for other remedies."""
    parts: list[AdoptedPart] = field(default_factory=list)
    """Parts of the script that the Loader takes over, each with its certainty."""
    effort: str = FEW_LINES
    coverage: str = ""
    """Arrays of a batch that the Loader makes; empty for other remedies."""


@dataclass(frozen=True)
class Prescription:
    """Complete recommendation for a session."""

    lower_bounds: LowerBounds | None
    """Lower bounds; None if the run had no windows."""
    why_no_windows: str
    """Reason that the run had no windows; empty if it had."""
    stop: str
    """Sentence on why no remedy applies: what limits the step instead of data, or that too few steps were measured.
    Empty if the run is input-bound."""
    remedies: list[Remedy] = field(default_factory=list)
    """Remedies that help, largest gain first, then remedies that would not help."""
    best: Prediction | None = None
    """Prediction for all remedies that still gain together and that no proof refuted."""
    together: list[str] = field(default_factory=list)
    """Codes of the remedies in `best`."""
    left_out: list[str] = field(default_factory=list)
    """Codes of refuted remedies, which are neither in `together` nor in `patch`."""
    patch: str = ""
    """Diff of all certain changes to the user's files, for `patch -p1` in `patch_root`."""
    patch_root: str = ""
    outcomes: list[ProofOutcome] = field(default_factory=list)
    again_us: float | None = None
    """Mean step of the control runs; None without any. The shortest run without remedies is the baseline for a proof's
    gain, the longest for its harm."""

    @property
    def helping(self) -> list[Remedy]:
        """Helpful remedies, largest gain first."""
        return [remedy for remedy in self.remedies if remedy.helps]

    def outcome_of(self, codes: Sequence[str]) -> ProofOutcome | None:
        """Return the last proof of exactly these remedies."""
        found = [one for one in self.outcomes if sorted(one.remedies) == sorted(codes)]
        return found[-1] if found else None


SURPLUS = 0.05
"""Share of a step by which a proof may exceed what its cause's share allows. Two runs of a script differ by as much."""


@dataclass(frozen=True)
class ProofOutcome:
    """Outcome of a proof next to its prediction."""

    remedies: list[str]
    predicted: Prediction | None
    why: str
    """Kind of outcome, as in `session.model.Proof`."""
    detail: str
    step_us: float | None
    low_us: float | None
    high_us: float | None
    speedup: float | None
    samples: str | None
    recommended: bool
    """False if the remedy broke the run, changed its samples, or gained nothing, and if the proof is unclear."""
    unclear: str = ""
    """Reason that the steps prove nothing, whatever they gain: no control run, or more than the cause's share."""
    spread: float = 1.0
    """Longest run without remedies divided by the shortest: what the machine alone does to a step."""
    is_slower: bool = False
    """True if the whole interval is above the step of both runs without remedies. A mean alone may be noise."""

    @property
    def is_undecided(self) -> bool:
        """True if the steps neither gained nor refuted the prediction, or prove nothing."""
        return self.why == "measured" and not self.recommended and not self.is_refused

    @property
    def is_refused(self) -> bool:
        """True if the proof refuted the remedy. After an undecided proof, the remedy stays as predicted."""
        return self.is_faulty or (self._misses and not self.recommended and not self.unclear)

    @property
    def _misses(self) -> bool:
        """True if the whole interval is above the prediction or above any gain. A mean alone may be noise."""
        if self.low_us is None or self.step_us is None or self.speedup is None:
            return False
        no_gain_us = (1 - LEAST_GAIN) * self.step_us * self.speedup
        most_us = no_gain_us if self.predicted is None else min(self.predicted.high_us, no_gain_us)
        return self.low_us > self.spread * most_us

    @property
    def is_faulty(self) -> bool:
        """True if the run broke or trained on different samples."""
        return self.why == "broke" or self.samples == "different"

    @property
    def did_harm(self) -> bool:
        """True if the remedy broke or slowed the run. To gain nothing is no harm: another remedy may change that."""
        return self.is_faulty or self.is_slower


def control_means_us(proofs: Sequence[Proof]) -> list[float]:
    """Return the mean step of each run without remedies that measured any."""
    return [fmean(one.steps) for one in proofs if one.steps and not one.remedies]


def outcomes(
    proofs: Sequence[Proof],
    predict: Callable[[list[str]], Prediction | None],
    left_share: Callable[[list[str]], float],
    measured_us: float,
    controls_us: Sequence[float],
) -> list[ProofOutcome]:
    """Judge each proof in order: gain against the shortest run without remedies, harm against the longest.

    A gain within the spread of the control runs is none, and without a control run nothing is proved.

    Args:
        proofs: Proofs of one session.
        predict: Function that predicts the remedies with the given codes together.
        left_share: Function that returns the share of a step that these remedies must leave.
        measured_us: Mean step of the measured run.
        controls_us: Mean steps of the runs without any remedy that alternated with the proofs.
    """
    found = []
    shorter_us, longer_us = min([measured_us, *controls_us]), max([measured_us, *controls_us])
    for proof in proofs:
        measured = proof.steps if proof.why == "measured" else []
        mean, low, high = interval(measured) if measured else (None, None, None)
        is_gained = is_valid(proof) and is_gain(measured, shorter_us)
        unclear = "" if controls_us or not measured else "no control run"
        left = left_share(proof.remedies)
        if is_gained and high is not None and high < (1 - SURPLUS) * left * shorter_us:
            unclear = f"its cause's share of a step allows {times(1 / left)}"
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
            recommended=is_gained and not unclear,
            unclear=unclear,
            spread=longer_us / shorter_us if shorter_us else 1.0,
            is_slower=low is not None and mean is not None and low > longer_us and mean > longer_us * (1 + LEAST_GAIN),
        )
        found.append(one)
    return found


def left_out(outcomes: Sequence[ProofOutcome], codes: Sequence[str]) -> set[str]:
    """Return the chosen remedies that a proof refuted. If several do harm only together, the first one stays."""
    last = {one.remedies[0]: one for one in outcomes if len(one.remedies) == 1}
    out = {code for code in codes if code in last and last[code].is_refused}
    for one in sorted(outcomes, key=lambda one: len(one.remedies)):
        named = [code for code in codes if code in one.remedies and code not in out]
        if len(named) == len(one.remedies) and one.did_harm:
            out |= set(named[1:] or named)
    return out
