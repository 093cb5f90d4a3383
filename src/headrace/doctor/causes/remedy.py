"""Remedies, the factors by which they scale stages, and outcomes of their proofs.

Everything is computed from a session, like the diagnosis. Times are in microseconds, and shares are fractions of 1.
None means that a figure was not measured or is unknown; reports never show it as 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median, quantiles, stdev
from typing import Any

from headrace.doctor.measure import T_95, TrainerView, at_hand_us
from headrace.doctor.quantities import counted, percent
from headrace.doctor.session.after_run import AdoptedPart, Calibration, Proof
from headrace.doctor.session.model import Session
from headrace.doctor.simulate import Prediction as Prediction

ALONGSIDE, MOST_ALONGSIDE = 1.15, 1.35
"""Slowdown of code timed alone once it runs alongside other workers: usual value and upper bound. Faster code waits for
memory more often, and shares memory with the other workers."""
BLOCKS = 8
"""Number of blocks per interval. A slow batch delays several steps, so steps are correlated; block means hardly are."""
LEAST_GAIN = 0.02
"""Minimum share of the step that counts as a gain."""
LEAST_STEPS = 10
"""Minimum number of measured steps for advice."""
DISTURBING = 0.3
"""Change in the cores used by other programs that alone makes steps longer or shorter."""


@dataclass(frozen=True)
class LowerBounds:
    """Lower bounds of the step, from the windows of a measured run."""

    observed_us: float
    """Mean step of the baseline."""
    replay_us: float | None
    """Mean step on cached batches with idle workers, minus data work in the loop: the minimum for any loader."""
    load_us: float | None
    """Mean step on cached batches with active workers, which share cores and memory with the training thread."""
    drain_us: float | None
    """Mean time between batches without training, times the batches per step: the loader's own limit."""
    work_us: float = 0.0
    """Data work in the loop, included in steps on cached batches. A loader can take it over."""


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
    coverage: str = ""
    """Arrays of a batch that the Loader makes; empty for other remedies."""


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
    """Mean step of a second run of the unchanged command; None without such a run. The shorter run without remedies is
    the baseline for a proof's gain, the longer one for its harm."""

    @property
    def helping(self) -> list[Remedy]:
        """Helpful remedies, largest gain first."""
        return [remedy for remedy in self.remedies if remedy.helps]

    def outcome_of(self, codes: Sequence[str]) -> ProofOutcome | None:
        """Return the last proof of exactly these remedies."""
        found = [one for one in self.outcomes if sorted(one.remedies) == sorted(codes)]
        return found[-1] if found else None


@dataclass(frozen=True)
class Factor:
    """Shares of the current time that a remedy leaves: lower bound, usual value, upper bound."""

    least: float
    usual: float
    most: float
    is_measured: bool
    basis: str
    """Sentence on the basis of the factor."""


def factor(
    calibrations: Sequence[Calibration],
    code: str,
    unit: str,
    *,
    assumed: tuple[float, float],
    present_us: float | None = None,
) -> Factor:
    """Return the factor timed on the run's own files, or else a range with the bounds `assumed`.

    `present_us` is the run's own time for one unit, used if the current code was not timed again.
    """
    found = next((one for one in calibrations if (one.remedy, one.unit) == (code, unit)), None)
    now_us = [] if found is None else found.present_us or [present_us or 0.0] * len(found.other_us)
    others_us = [] if found is None else found.other_us
    shares = [min(other / now, 1.0) for other, now in zip(others_us, now_us, strict=False) if now > 0]
    if found is None or not shares:
        return untimed(*assumed)
    deciles = quantiles(shares, n=10, method="inclusive") if len(shares) > 1 else shares
    alone = median(shares)
    basis = f"Timed on {counted(len(shares), found.unit)} in the run's own files: {percent(alone)} of the time."
    return Factor(deciles[0], min(ALONGSIDE * alone, 1.0), min(MOST_ALONGSIDE * deciles[-1], 1.0), True, basis)


def untimed(least: float, most: float) -> Factor:
    """Return a factor between two assumed bounds."""
    basis = (
        f"It was not timed on the run's own files: the prediction assumes {percent(least)} to {percent(most)} of "
        "the time."
    )
    return Factor(least, (least + most) / 2, most, False, basis)


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


def is_gain(steps: Sequence[float], before_us: float) -> bool:
    """Return True if the whole interval is below the baseline's step, and the mean by at least `LEAST_GAIN`."""
    mean, _, high = interval(steps)
    return high < before_us and mean < before_us * (1 - LEAST_GAIN)


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
