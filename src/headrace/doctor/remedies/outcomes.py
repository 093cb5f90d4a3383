"""Proofs beside what was predicted of them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence

from headrace.doctor.causes.remedy import Outcome
from headrace.doctor.predict.prediction import Prediction
from headrace.doctor.session.model import Proof

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
) -> list[Outcome]:
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


def left_out(outcomes: Sequence[Outcome], codes: Sequence[str], before_us: float) -> set[str]:
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


def _is_refused_alone(one: Outcome, outcomes: Sequence[Outcome]) -> bool:
    """The last proof of it counts; one of several remedies at once that is faster than each of them speaks for it."""
    if len(one.remedies) != 1 or not [each for each in outcomes if each.remedies == one.remedies][-1].is_refused:
        return False
    if _did_harm(one, math.inf):
        return True
    useful = [each for each in outcomes if one.remedies[0] in each.remedies and each.recommended]
    return not any(_is_faster_than_its_parts(each, outcomes) for each in useful)


def _is_faster_than_its_parts(several: Outcome, outcomes: Sequence[Outcome]) -> bool:
    parts = [one.step_us for one in outcomes if len(one.remedies) == 1 and one.remedies[0] in several.remedies]
    known = [us for us in parts if us is not None]
    return several.step_us is not None and all(several.step_us < (1 - LEAST_GAIN) * us for us in known)


def _did_harm(one: Outcome, before_us: float) -> bool:
    """Nothing to be gained is no harm: where another remedy has cleared the way, it may be of use."""
    if one.why in ("broke", "timed out") or one.samples == "different":
        return True
    is_longer = one.step_us is not None and one.step_us > before_us * (1 + LEAST_GAIN)
    return is_longer and one.disturbed_by is None


def _outcome(proof: Proof, predicted: Prediction | None, before_us: float, others_cores: float | None) -> Outcome:
    if proof.why != "measured" or not proof.steps:
        return Outcome(proof.remedies, predicted, proof.why, proof.detail, None, None, None, None, proof.samples, False)
    mean, low, high = interval(proof.steps)
    return Outcome(
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
