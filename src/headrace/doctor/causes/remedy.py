"""Remedies and what became of their proofs."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from statistics import median, quantiles
from typing import Any

from headrace.doctor.quantities import counted, percent
from headrace.doctor.session.model import Calibration, Proof
from headrace.doctor.simulate.prediction import Prediction as Prediction

# -- from doctor/remedies/model.py: What a prescription says: computed from a session, as the diagnosis is, and just
# as pure.
#
# Times are microseconds, shares of 1. None means that it was not measured or cannot be known, which is never shown as
# 0.


@dataclass(frozen=True)
class LowerBounds:
    """What bounds the step, from the windows of a measured run."""

    observed_us: float
    """Mean step as the run is."""
    replay_us: float | None
    """Mean step on batches that were kept, with the workers idle: no loader makes it shorter."""
    load_us: float | None
    """The same while the workers go on: what they take from the training thread by sharing cores and memory with it."""
    drain_us: float | None
    """Mean time between batches, a step's worth of them, where nothing is trained: the loader's own ceiling."""


@dataclass(frozen=True)
class Edit:
    """The change in the user's own code."""

    file: str
    line: int
    diff: str
    """Unified, of one hunk or more in that file."""


@dataclass(frozen=True)
class Remedy:
    """One thing to change, or one that need not be tried."""

    code: str
    """Of docs/doctor/remedies.md, such as `workers`."""
    title: str
    """What to do, in a few words: `8 workers in place of 2`."""
    helps: bool
    why: str
    """A sentence with the numbers behind it: why it helps, or why it would not."""
    prediction: Prediction | None
    """None where it does not help, or where what it gains cannot be computed."""
    confidence: str
    """`high`, `medium` or `low`, by what the prediction rests on."""
    costs: list[str] = field(default_factory=list)
    """What it takes in memory, disk or work, each a phrase with its figure."""
    edit: Edit | None = None
    hint: str = ""
    """The change in words or a line of code, where the source line is not known."""
    changes: dict[str, Any] | None = None
    """What injection would apply to prove it; None where that needs the user's hand."""


@dataclass(frozen=True)
class ProofOutcome:
    """A proof beside what was predicted of it."""

    remedies: list[str]
    predicted: Prediction | None
    why: str
    """As in `session.model.Proof`."""
    detail: str
    step_us: float | None
    """Mean of the measured steps."""
    low_us: float | None
    high_us: float | None
    speedup: float | None
    samples: str | None
    recommended: bool
    """Not where it broke the run, changed its samples, or gained nothing."""
    disturbed_by: float | None = None
    """Cores that other programs kept busy more, or less if below 0, than in the measured run, where that is so much
    that the two cannot be compared."""

    @property
    def is_refused(self) -> bool:
        """Return whether the proof spoke against it. One that was not tried to the end stays as it was predicted."""
        return self.why in ("measured", "broke", "timed out") and not self.recommended


@dataclass(frozen=True)
class Prescription:
    """The whole answer to what to do."""

    floors: LowerBounds | None
    """None where the run had no windows."""
    why_no_windows: str
    """Why not, where it had none; else empty."""
    stop: str
    """`not input-bound`, in a sentence that says what does bound it; empty where it is input-bound."""
    remedies: list[Remedy] = field(default_factory=list)
    """Those that help first, the most gain first; then those that would not."""
    best: Prediction | None = None
    """With all remedies together that still gain beside each other, and that no proof spoke against."""
    together: list[str] = field(default_factory=list)
    """Codes of these."""
    left_out: list[str] = field(default_factory=list)
    """Codes of remedies that a proof spoke against: neither among `together` nor in `patch`."""
    patch: str = ""
    """One diff with those of their changes of the user's files that are certain, for `patch -p1` in
    `patch_root`."""
    patch_root: str = ""
    outcomes: list[ProofOutcome] = field(default_factory=list)
    again_us: float | None = None
    """Mean step of the command run once more as it is; None where it was not. A proof's gain is told by the shorter of
    both runs without remedies, and its harm by the longer."""


# -- from doctor/remedies/outcomes.py: Proofs beside what was predicted of them.


BLOCKS = 8
"""Steps that follow each other are not independent of each other: a slow batch makes several of them wait. Means of so
many blocks of them nearly are."""
T_95 = {1: 12.71, 2: 4.30, 3: 3.18, 4: 2.78, 5: 2.57, 6: 2.45, 7: 2.36}
"""Student's t for 95 %, two-sided, by degrees of freedom."""
LEAST_GAIN = 0.02
"""Of the step, below which nothing was gained."""
DISTURBING = 0.3
"""Cores that other programs keep busy more, or less, from which steps are longer, or shorter, for that alone."""


def outcomes(
    proofs: Sequence[Proof],
    predict: Callable[[list[str]], Prediction | None],
    before_us: float,
    others_cores: float | None = None,
) -> list[ProofOutcome]:
    """One a proof, in their order. `predict` knows what remedies of these codes together should come to, `before_us`
    is the mean step without any, of two runs the shorter, and `others_cores` what other programs kept busy then."""
    return [_outcome(proof, predict(proof.remedies), before_us, others_cores) for proof in proofs]


def interval(steps: Sequence[float]) -> tuple[float, float, float]:
    """Mean, and the bounds that the true one lies between in 95 of 100 cases. Of fewer than two blocks' steps nothing
    bounds it."""
    mean = statistics.fmean(steps)
    blocks = min(BLOCKS, len(steps) // 2)
    if blocks < 2:
        return mean, 0.0, math.inf
    size = len(steps) / blocks
    means = [statistics.fmean(steps[round(i * size) : round((i + 1) * size)]) for i in range(blocks)]
    half = T_95[blocks - 1] * statistics.stdev(means) / math.sqrt(blocks)
    return mean, max(mean - half, 0.0), mean + half


def is_gain(steps: Sequence[float], before_us: float) -> bool:
    """Whether the whole interval is below the step as it was, and the mean by enough to be worth it."""
    mean, _, high = interval(steps)
    return high < before_us and mean < before_us * (1 - LEAST_GAIN)


def left_out(outcomes: Sequence[ProofOutcome], codes: Sequence[str], before_us: float) -> set[str]:
    """Of these remedies, in the order in which they were chosen, those that are not to be made: a proof of them, by
    themselves or together, spoke against it. What gained nothing by itself counts where it was proved to gain beside
    others. Of several that only together did harm the first one stays. `before_us` is
    the mean step without any, of two runs the longer."""
    out = {one.remedies[0] for one in outcomes if _is_refused_alone(one, outcomes)} & set(codes)
    for one in sorted(outcomes, key=lambda one: len(one.remedies)):
        named = [code for code in codes if code in one.remedies and code not in out]
        if len(named) == len(one.remedies) and _did_harm(one, before_us):
            out |= set(named[1:] or named)
    return out


def _is_refused_alone(one: ProofOutcome, outcomes: Sequence[ProofOutcome]) -> bool:
    """The last proof of it counts; one of several remedies at once that is faster than each of them speaks for it."""
    if len(one.remedies) != 1 or not [each for each in outcomes if each.remedies == one.remedies][-1].is_refused:
        return False
    if _did_harm(one, math.inf):
        return True
    useful = [each for each in outcomes if one.remedies[0] in each.remedies and each.recommended]
    return not any(_is_faster_than_its_parts(each, outcomes) for each in useful)


def _is_faster_than_its_parts(several: ProofOutcome, outcomes: Sequence[ProofOutcome]) -> bool:
    parts = [one.step_us for one in outcomes if len(one.remedies) == 1 and one.remedies[0] in several.remedies]
    known = [us for us in parts if us is not None]
    return several.step_us is not None and all(several.step_us < (1 - LEAST_GAIN) * us for us in known)


def _did_harm(one: ProofOutcome, before_us: float) -> bool:
    """Nothing to be gained is no harm: where another remedy has cleared the way, it may be of use."""
    if one.why in ("broke", "timed out") or one.samples == "different":
        return True
    is_longer = one.step_us is not None and one.step_us > before_us * (1 + LEAST_GAIN)
    return is_longer and one.disturbed_by is None


def _outcome(proof: Proof, predicted: Prediction | None, before_us: float, others_cores: float | None) -> ProofOutcome:
    if proof.why != "measured" or not proof.steps:
        return ProofOutcome(
            proof.remedies, predicted, proof.why, proof.detail, None, None, None, None, proof.samples, False
        )
    mean, low, high = interval(proof.steps)
    return ProofOutcome(
        remedies=proof.remedies,
        predicted=predicted,
        why=proof.why,
        detail=proof.detail,
        step_us=mean,
        low_us=low,
        high_us=high,
        speedup=before_us / mean,
        samples=proof.samples,
        recommended=is_gain(proof.steps, before_us) and proof.samples != "different",
        disturbed_by=_disturbed_by(proof.others_cores, others_cores),
    )


def _disturbed_by(then: float | None, before: float | None) -> float | None:
    more = None if then is None or before is None else then - before
    return more if more is not None and abs(more) >= DISTURBING else None


# -- from doctor/remedies/factor.py: How much of a stage's time is left with another implementation of it.


BESIDE, MOST_BESIDE = 1.15, 1.35
"""By which what is timed alone takes longer beside others, usually and at the most: code that is the faster one waits
for memory the more often, and shares that with the other workers."""


@dataclass(frozen=True)
class Factor:
    """Shares of the present time: at the least, usually, at the most."""

    least: float
    usual: float
    most: float
    is_measured: bool
    basis: str
    """What it rests on, in a sentence."""


def factor(
    calibrations: Sequence[Calibration],
    code: str,
    unit: str,
    *,
    assumed: tuple[float, float],
    present_us: float | None = None,
) -> Factor:
    """As it was timed on the run's own files; where it was not, anything from one to the other of `assumed`.

    `present_us` is what the run measured of one unit, for what was not timed once more."""
    found = next((one for one in calibrations if (one.remedy, one.unit) == (code, unit)), None)
    shares = [] if found is None else _shares(found, present_us)
    if found is None or not shares:
        return untimed(*assumed)
    least, most = _spread(shares)
    alone = median(shares)
    basis = f"Timed on {counted(len(shares), found.unit)} in the run's own files: {percent(alone)} of the time."
    return Factor(least, min(BESIDE * alone, 1.0), min(MOST_BESIDE * most, 1.0), True, basis)


def over(usual: Prediction | None, least: Prediction | None, most: Prediction | None) -> Prediction | None:
    """The usual one, with an interval from what the least would give to what the most would."""
    if usual is None or least is None or most is None:
        return None
    return replace(usual, low_us=min(usual.low_us, least.low_us), high_us=max(usual.high_us, most.high_us))


def untimed(least: float, most: float) -> Factor:
    """Anything from one to the other."""
    basis = f"It was not timed on the run's own files: assumed is {percent(least)} to {percent(most)} of the time."
    return Factor(least, (least + most) / 2, most, False, basis)


def _shares(found: Calibration, present_us: float | None) -> list[float]:
    present = found.present_us or [present_us or 0.0] * len(found.other_us)
    return [min(other / now, 1.0) for other, now in zip(found.other_us, present, strict=False) if now > 0]


def _spread(shares: Sequence[float]) -> tuple[float, float]:
    """From the first to the last decile; of one file, what it took."""
    if len(shares) < 2:
        return shares[0], shares[0]
    deciles = quantiles(shares, n=10, method="inclusive")
    return deciles[0], deciles[-1]
