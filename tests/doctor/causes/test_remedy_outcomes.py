"""Proofs beside what was predicted."""

from __future__ import annotations

import random
import statistics

import pytest

from headrace.doctor.causes import ProofOutcome, outcomes
from headrace.doctor.measure import interval
from headrace.doctor.session.after_run import Proof
from headrace.doctor.simulate.prediction import Prediction

OBSERVED_US = 100_000.0
PREDICTED = Prediction(50_000.0, 45_000.0, 55_000.0, 2.0)
BUSY_BEFORE_US = [286_000.0, 300_400.0]
BUSY_MS = (
    "172 424 177 226 105 546 52 369 28 758 236 448 208 268 59 353 168 414 249 283 347 402 312 170 517 63 "
    "582 331 290 98 409 419 587 183 315 318 294 129 557 240 420 135 244 190 430 374 633 425 410 172 356 "
    "307 394 114 206 659 201 182 202 482"
)
"""Steps of tests/doctor/adopted/folder_v1.py with persistent workers, on two cores of which other programs used 1.3:
recorded. Of the run without it there are the means, of the measured run and of the one that came again."""


def proof(*steps: int, why: str = "measured", samples: str | None = "same") -> Proof:
    return Proof(["workers"], {"loaders": {}}, why, "detail", 1, list(steps), samples)


def outcome_of(one: Proof, *controls_us: float, left: float = 0.2) -> ProofOutcome:
    """Return the outcome next to control runs; the remedy must leave that share of a step."""
    controls_us = controls_us or (OBSERVED_US,)
    [found] = outcomes([one], lambda _: PREDICTED, lambda _: left, controls_us[0], controls_us)
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
        (proof(*[50_000] * 40, samples="alike"), True),
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


@pytest.mark.parametrize(
    ("mean_us", "controls_us", "left"),
    [(58_500, [100_000.0], 0.97), (95_000, [100_000.0, 94_000.0], 0.2), (50_000, [], 0.2)],
    ids=["more than its share", "within the spread of the controls", "no control"],
)
def test_an_unclear_proof_proves_nothing(mean_us: int, controls_us: list[float], left: float) -> None:
    steps = proof(*[mean_us] * 40)
    [found] = outcomes([steps], lambda _: PREDICTED, lambda _: left, OBSERVED_US, controls_us)
    assert (found.recommended, found.is_refused, found.did_harm) == (False, found.low_us > 90_000, False)


def test_a_mean_that_is_longer_by_noise_is_not_slower() -> None:
    steps = [1000 * int(ms) for ms in BUSY_MS.split()]
    found = outcome_of(proof(*steps), *BUSY_BEFORE_US)
    assert found.speedup == pytest.approx(0.92, abs=0.01)
    assert (found.is_refused, found.is_slower, found.did_harm) == (True, False, False)
    quiet = outcome_of(proof(*[310_000, 311_000] * 30), *BUSY_BEFORE_US)
    assert (quiet.is_refused, quiet.is_slower, quiet.did_harm) == (True, True, True)
    longer = outcome_of(proof(*[310_000, 311_000] * 30), 286_000.0, 320_000.0)
    assert not longer.is_slower  # the run without it took longer still


@pytest.mark.parametrize(
    ("controls_us", "samples", "is_refused"),
    [((100_000, 250_000), "alike", False), ((100_000,), "alike", True), ((100_000, 250_000), "different", True)],
)
def test_a_proof_on_a_machine_that_alone_changes_as_much_refutes_nothing(
    controls_us: tuple[int, ...], samples: str, is_refused: bool
) -> None:
    found = outcome_of(proof(*[120_000] * 40, samples=samples), *controls_us)
    assert (found.is_refused, found.is_undecided) == (is_refused, not is_refused)


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
