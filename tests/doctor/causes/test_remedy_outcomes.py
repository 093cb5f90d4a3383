"""Proofs beside what was predicted."""

from __future__ import annotations

import math
import random
import statistics
from dataclasses import replace

import pytest

from headrace.doctor.causes.remedy import interval, outcomes
from headrace.doctor.session.after_run import Proof
from headrace.doctor.simulate.prediction import Prediction

OBSERVED_US = 100_000.0
PREDICTED = Prediction(50_000.0, 45_000.0, 55_000.0, 2.0)


def proof(*steps: int, why: str = "measured", samples: str | None = "same") -> Proof:
    return Proof(["workers"], {"loaders": {}}, why, "detail", 1, list(steps), samples)


def outcome_of(one: Proof, observed_us: float = OBSERVED_US):  # type: ignore[no-untyped-def]  # of one module's own
    [found] = outcomes([one], lambda codes: PREDICTED if codes == ["workers"] else None, observed_us)
    return found


def test_a_proof_says_what_came_of_it_beside_what_was_predicted() -> None:
    found = outcome_of(proof(*[49_000, 51_000] * 20))
    assert found.predicted == PREDICTED
    assert found.step_us == 50_000
    assert found.low_us <= 50_000 <= found.high_us
    assert found.speedup == 2.0
    assert (found.why, found.detail, found.samples) == ("measured", "detail", "same")
    assert found.recommended


@pytest.mark.parametrize(
    ("one", "recommended"),
    [
        (proof(*[50_000] * 40, samples=None), True),
        (proof(*[50_000] * 40, samples="close"), True),
        (proof(*[50_000] * 40, samples="different"), False),
        (proof(*[99_000] * 40), False),  # nothing gained
        (proof(*[120_000] * 40), False),
        (proof(*[20_000] * 20, *[175_000] * 20), False),  # it may as well have gained nothing
        (proof(50_000), False),  # one step says nothing
        (proof(*[50_000] * 40, why="broke"), False),
        (proof(why="timed out"), False),
        (proof(why="not applied"), False),
    ],
)
def test_only_what_gained_and_broke_nothing_is_recommended(one: Proof, recommended: bool) -> None:
    assert outcome_of(one).recommended is recommended


def test_what_was_not_measured_has_no_figures() -> None:
    found = outcome_of(proof(why="broke"))
    assert (found.step_us, found.low_us, found.high_us, found.speedup) == (None, None, None, None)
    assert found.why == "broke"


def test_the_interval_of_a_single_step_is_open() -> None:
    assert interval([5.0]) == (5.0, 0.0, math.inf)


def test_the_interval_covers_the_mean_of_steps_that_depend_on_each_other() -> None:
    """Every eighth batch is slow, with a little noise that lasts for three steps: it covers what a long run would give
    in at least 90 of 100 cases."""
    rng = random.Random(0)

    def steps(count: int) -> list[float]:
        noise = [rng.gauss(0, 5) for _ in range(count + 2)]
        return [100 + 40 * (number % 8 == 0) + sum(noise[number : number + 3]) for number in range(count)]

    truth = statistics.fmean(100 + 40 * (number % 8 == 0) for number in range(8))
    covered = sum(low <= truth <= high for _, low, high in (interval(steps(60)) for _ in range(200)))
    assert covered >= 180


@pytest.mark.parametrize(
    ("before", "then", "by"),
    [(0.1, 0.9, 0.8), (0.9, 0.1, -0.8), (0.1, 0.3, None), (None, 0.9, None), (0.9, None, None)],
)
def test_a_proof_beside_other_programs_says_so(before: float | None, then: float | None, by: float | None) -> None:
    one = replace(proof(*[50_000] * 40), others_cores=then)
    [found] = outcomes([one], lambda codes: PREDICTED, OBSERVED_US, before)
    assert found.disturbed_by == (None if by is None else pytest.approx(by))
    assert found.step_us == 50_000
