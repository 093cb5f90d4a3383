"""Remedies: how much of a stage each leaves, and how its proof ended.

All of it is computed from a session, as the diagnosis is. Times are microseconds, shares of 1. None means that a figure
was not measured or cannot be known, and is never shown as 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median, quantiles, stdev
from typing import Any

from ..measure import T_95, TrainerView, at_hand_us
from ..quantities import counted, percent
from ..session.after_run import AdoptedPart, Calibration, Proof
from ..session.model import Session
from ..simulate import Prediction as Prediction

ALONGSIDE, MOST_ALONGSIDE = 1.15, 1.35
"""Factors by which what was timed alone takes longer alongside others, usually and at the most. Faster code waits for
memory more often, and shares that with the other workers."""
BLOCKS = 8
"""Consecutive steps depend on each other: a slow batch makes several wait. Means of so many blocks hardly do."""
LEAST_GAIN = 0.02
"""Share of the step below which nothing was gained."""
LEAST_STEPS = 10
"""Measured steps below which figures bear no advice."""
DISTURBING = 0.3
"""Change of the cores that other programs keep busy, from which steps become longer or shorter by that alone."""


@dataclass(frozen=True)
class LowerBounds:
    """Lower bounds of the step, from the windows of a measured run."""

    observed_us: float
    """Mean step of the baseline."""
    replay_us: float | None
    """Mean step on cached batches, with the workers idle, less the data work in the loop: no loader makes it
    shorter."""
    load_us: float | None
    """The same while the workers go on: what they take from the training thread by sharing cores and memory with it."""
    drain_us: float | None
    """Mean time between batches, a step's worth of them, where nothing is trained: the loader's own ceiling."""
    work_us: float = 0.0
    """Data work in the loop, which the steps on cached batches still did: a loader can do it for them."""


@dataclass(frozen=True)
class Edit:
    """Change of the user's own code."""

    file: str
    line: int
    diff: str
    """Unified, of one hunk or more in that file."""


@dataclass(frozen=True)
class Remedy:
    """One thing to change, or one that need not be tried."""

    code: str
    """Code of docs/doctor/remedies.md, such as `workers`."""
    title: str
    """The change in a few words: `8 workers in place of 2`."""
    helps: bool
    why: str
    """A sentence with the numbers behind it: why it helps, or why it would not."""
    prediction: Prediction | None
    """None where it does not help, or where its gain cannot be computed."""
    confidence: str
    """`high`, `medium` or `low`, by what the prediction rests on."""
    costs: list[str] = field(default_factory=list)
    """Memory, disk or work that it takes, each a phrase with its figure."""
    edit: Edit | None = None
    hint: str = ""
    """The change in words or a line of code, where the source line is not known."""
    changes: dict[str, Any] | None = None
    """Changes that a proof injects; None where it needs the user's hand."""
    degree: str = ""
    """How much of the dataset's work the Loader does: `exact` or `part`; empty for other remedies."""
    parts: list[AdoptedPart] = field(default_factory=list)
    """Parts of the script that the Loader takes over, each with how sure that is."""
    coverage: str = ""
    """Which arrays of a batch the Loader makes; empty for other remedies."""
    beside: str = ""
    """Code of the remedy without which it does not help: the prediction is of both."""


@dataclass(frozen=True)
class ProofOutcome:
    """A proof alongside its prediction."""

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
    """False where it broke the run, changed its samples, or gained nothing."""
    disturbed_by: float | None = None
    """Cores that other programs kept busy more (or less, below 0) than in the measured run, where that is so much that
    the two cannot be compared."""
    is_slower: bool = False
    """Whether the whole interval is above the step of both runs without remedies: a mean alone may be noise."""

    @property
    def is_undecided(self) -> bool:
        """True if its steps neither gained nor refuted the prediction, or other programs used more cores meanwhile."""
        return self.why == "measured" and not self.recommended and not self.is_refused

    @property
    def is_refused(self) -> bool:
        """True if the proof refuted the remedy. A proof that decides nothing leaves it as it was predicted."""
        is_disturbed = self.disturbed_by is not None and self.disturbed_by > 0
        return self.is_faulty or (self._misses and not self.recommended and not is_disturbed)

    @property
    def _misses(self) -> bool:
        """True if the whole interval is above what was predicted, or above any gain: a mean alone may be noise."""
        if self.low_us is None or self.step_us is None or self.speedup is None:
            return False
        no_gain_us = (1 - LEAST_GAIN) * self.step_us * self.speedup
        return self.low_us > (no_gain_us if self.predicted is None else min(self.predicted.high_us, no_gain_us))

    @property
    def is_faulty(self) -> bool:
        """True if the run broke, or trained on other samples."""
        return self.why == "broke" or self.samples == "different"

    @property
    def did_harm(self) -> bool:
        """Return whether it broke or slowed the run. To gain nothing is no harm: another remedy may clear its way."""
        return self.is_faulty or (self.is_slower and self.disturbed_by is None)


@dataclass(frozen=True)
class Prescription:
    """The whole answer to what to do."""

    lower_bounds: LowerBounds | None
    """None where the run had no windows."""
    why_no_windows: str
    """Why not, where it had none; else empty."""
    stop: str
    """Why there is no remedy to take, in a sentence: the run is not input-bound, with what does bound it, or too few
    steps were measured. Empty if it is input-bound."""
    remedies: list[Remedy] = field(default_factory=list)
    """Remedies that help, the most gain first; then those that would not."""
    best: Prediction | None = None
    """Prediction of all remedies that still gain beside each other, and that no proof spoke against."""
    together: list[str] = field(default_factory=list)
    """Codes of these."""
    left_out: list[str] = field(default_factory=list)
    """Codes of remedies that a proof spoke against: neither among `together` nor in `patch`."""
    patch: str = ""
    """One diff of their certain changes of the user's files, for `patch -p1` in `patch_root`."""
    patch_root: str = ""
    outcomes: list[ProofOutcome] = field(default_factory=list)
    again_us: float | None = None
    """Mean step of the command run once more unchanged; None where it was not. A proof's gain is judged by the shorter
    of both runs without remedies, and its harm by the longer."""


@dataclass(frozen=True)
class Factor:
    """Shares of the present time that a remedy leaves: at the least, usually, at the most."""

    least: float
    usual: float
    most: float
    is_measured: bool
    basis: str
    """A sentence that says what it rests on."""


def factor(
    calibrations: Sequence[Calibration],
    code: str,
    unit: str,
    *,
    assumed: tuple[float, float],
    present_us: float | None = None,
) -> Factor:
    """Return the factor as it was timed on the run's own files, else a range from one to the other of `assumed`.

    `present_us` is what the run measured of one unit, for what was not timed once more.
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
    """Return a factor anywhere from one to the other."""
    basis = (
        f"It was not timed on the run's own files: the prediction assumes {percent(least)} to {percent(most)} of "
        "the time."
    )
    return Factor(least, (least + most) / 2, most, False, basis)


def interval(steps: Sequence[float]) -> tuple[float, float, float]:
    """Return the mean and the bounds of its 95 % confidence interval, which is infinite for fewer than two blocks."""
    mean = fmean(steps)
    blocks = min(BLOCKS, len(steps) // 2)
    if blocks < 2:
        return mean, 0.0, math.inf
    size = len(steps) / blocks
    means = [fmean(steps[round(i * size) : round((i + 1) * size)]) for i in range(blocks)]
    half = T_95[blocks - 1] * stdev(means) / math.sqrt(blocks)
    return mean, max(mean - half, 0.0), mean + half


def is_gain(steps: Sequence[float], before_us: float) -> bool:
    """Return whether the whole interval is below the baseline's step, and the mean by `LEAST_GAIN`."""
    mean, _, high = interval(steps)
    return high < before_us and mean < before_us * (1 - LEAST_GAIN)


def cached_step_us(session: Session, view: TrainerView) -> float | None:
    """Return the mean step on cached batches, less the data work in the loop; None if it is no lower bound.

    A proof whose steps are surely shorter withdraws it.
    """
    bound_us = at_hand_us(view)
    if bound_us is None or any(is_valid(one) and is_gain(one.steps, bound_us) for one in session.proofs):
        return None
    return bound_us


def is_valid(proof: Proof) -> bool:
    """Return whether a proof came to its steps, on the samples of the run."""
    return proof.why == "measured" and bool(proof.steps) and proof.samples != "different"


def outcomes(
    proofs: Sequence[Proof],
    predict: Callable[[list[str]], Prediction | None],
    before_us: Sequence[float],
    others_cores: float | None = None,
) -> list[ProofOutcome]:
    """Judge each proof, in their order: its gain by the shorter of the runs without remedies, its harm by the longer.

    Args:
        proofs: The proofs of one session.
        predict: Predicts the remedies of these codes together.
        before_us: Mean steps of the runs without any remedy.
        others_cores: Cores that other programs kept busy in the last of these.
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
    """Return which of the chosen remedies a proof spoke against, by themselves or together.

    A remedy that gained nothing by itself counts where it was proved to gain beside others. Of several that only
    together did harm the first one stays.
    """
    last = {one.remedies[0]: one for one in outcomes if len(one.remedies) == 1}
    refused = {code for code, one in last.items() if one.is_refused and not _gains_beside(code, outcomes)}
    out = refused & set(codes)
    for one in sorted(outcomes, key=lambda one: len(one.remedies)):
        named = [code for code in codes if code in one.remedies and code not in out]
        if len(named) == len(one.remedies) and one.did_harm:
            out |= set(named[1:] or named)
    return out


def _gains_beside(code: str, outcomes: Sequence[ProofOutcome]) -> bool:
    """Return whether a useful proof of several is faster than each of its parts, none of this one's being faulty."""
    alone = [one for one in outcomes if len(one.remedies) == 1]
    if any(one.is_faulty for one in alone if one.remedies == [code]):
        return False
    for several in outcomes:
        if several.recommended and code in several.remedies and several.step_us is not None:
            parts = [one.step_us for one in alone if one.remedies[0] in several.remedies and one.step_us is not None]
            if all(several.step_us < (1 - LEAST_GAIN) * us for us in parts):
                return True
    return False
