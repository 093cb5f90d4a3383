"""Which settings are run and which one is taken, by predictions and measurements that are made."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import replace
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.doctor.simulate.prediction import WIDTH, Prediction
from headrace.doctor.tune.candidates import (
    EVEN,
    Arguments,
    MeasuredArguments,
    TuneBounds,
    arguments,
    chosen,
    corrected,
    excluded,
    grid,
    left_out,
    next_run,
)
from headrace.doctor.tune.run import MOST_RUNS

NONE, ONE, TWO, FOUR = (arguments(count) for count in (0, 1, 2, 4))


def prediction(step_us: float, spread: float = 0.08) -> Prediction:
    width = math.exp(WIDTH * spread)
    return Prediction(step_us, step_us / width, step_us * width, 1.0)


def steady(what: Arguments, step_us: float) -> MeasuredArguments:
    return MeasuredArguments(what, "measured", [step_us * (1 + 0.001 * (number % 3 - 1)) for number in range(60)])


class TestNextRun:
    def test_the_fastest_prediction_comes_first(self) -> None:
        wanted = {NONE: prediction(50.0), ONE: prediction(30.0), FOUR: prediction(12.0)}
        assert next_run(wanted, [steady(NONE, 50.0)]) == FOUR

    def test_of_equal_predictions_the_cheaper_one(self) -> None:
        wanted = {NONE: prediction(50.0), TWO: prediction(20.0), FOUR: prediction(20.0)}
        assert next_run(wanted, [steady(NONE, 50.0)]) == TWO

    def test_a_run_that_belies_its_prediction_corrects_its_neighbours(self) -> None:
        near, far = arguments(4, 4), NONE
        wanted = {ONE: prediction(50.0), FOUR: prediction(10.0), near: prediction(10.0), far: prediction(45.0)}
        after = corrected(wanted, [steady(ONE, 50.0), steady(FOUR, 14.0)])
        assert after[near].step_us == pytest.approx(10 * math.sqrt(1.4), rel=0.01)
        assert after[near].high_us / after[near].low_us == pytest.approx(wanted[near].high_us / wanted[near].low_us)
        assert after[far].step_us == pytest.approx(45)

    def test_none_where_nothing_waits_for_data(self) -> None:
        wanted = {TWO: prediction(20.0), FOUR: prediction(20.0)}
        assert next_run(wanted, [steady(TWO, 20.0)]) is not None
        assert next_run(wanted, [steady(TWO, 20.0)], lower_bound_us=19.9) is None

    def test_none_once_all_were_run(self) -> None:
        wanted = {ONE: prediction(50.0), TWO: prediction(20.0)}
        assert next_run(wanted, [steady(ONE, 50.0), steady(TWO, 20.0)]) is None

    def test_none_before_anything_was_measured(self) -> None:
        assert next_run({ONE: prediction(50.0)}, []) is None

    @pytest.mark.parametrize("why", ["broke", "timed out"])
    def test_as_many_workers_as_failed_are_not_tried_again(self, why: str) -> None:
        wanted = {one: prediction(10.0) for one in (NONE, ONE, TWO, FOUR, arguments(4, 8), arguments(6))}
        runs = [steady(ONE, 50.0), MeasuredArguments(FOUR, why)]  # type: ignore[arg-type]
        assert excluded(wanted, runs) == {ONE, FOUR, arguments(4, 8), arguments(6)}
        assert next_run(wanted, runs) in (NONE, TWO)

    def test_a_failure_with_fewer_workers_says_nothing_of_more(self) -> None:
        assert excluded([NONE, TWO, FOUR], [steady(TWO, 50.0), MeasuredArguments(NONE, "broke")]) == {NONE, TWO}


class TestChosen:
    def test_the_cheapest_of_those_that_are_even(self) -> None:
        runs = [steady(NONE, 50.0), steady(FOUR, 20.0), steady(TWO, 20.2)]
        assert chosen(runs) == runs[2]

    def test_the_script_as_it_is_where_nothing_is_clearly_faster(self) -> None:
        runs = [steady(FOUR, 20.0), steady(TWO, 19.8)]
        assert chosen(runs) == runs[0]

    def test_a_gain_within_the_noise_of_its_run_is_none(self) -> None:
        noisy = MeasuredArguments(FOUR, "measured", [5.0, 5.0, 60.0, 5.0] * 5)
        runs = [steady(TWO, 20.0), noisy]
        assert fmean(noisy.steps) < 0.95 * 20
        assert chosen(runs) == runs[0]

    @pytest.mark.parametrize("why", ["broke", "not applied", "timed out", "different samples"])
    def test_what_did_not_come_to_its_end_is_never_taken(self, why: str) -> None:
        runs = [steady(TWO, 20.0), MeasuredArguments(FOUR, why)]  # type: ignore[arg-type]
        assert chosen(runs) == runs[0]

    def test_nothing_measured_is_nothing_chosen(self) -> None:
        assert chosen([MeasuredArguments(FOUR, "broke")]) is None


@given(
    present=st.sampled_from([NONE, ONE, TWO, FOUR]),
    worth_us=st.lists(st.floats(5, 100), min_size=30, max_size=30),
    wrong=st.lists(st.floats(0.6, 1.6), min_size=30, max_size=30),
    fails=st.sets(st.integers(0, 29), max_size=8),
    most=st.integers(1, 6),
    seed=st.integers(0, 100),
)
def test_never_takes_what_was_measured_worse_and_ends(
    present: Arguments, worth_us: list[float], wrong: list[float], fails: set[int], most: int, seed: int
) -> None:
    """Whatever the truth, the predictions and the failures: every setting is run once at most, what is taken was
    measured, and nothing that was measured is faster by more than what counts as even, unless the script stays."""
    candidates = grid(TuneBounds(present=present, cores=2))
    truth = dict(zip(candidates, worth_us, strict=False))
    wanted: Mapping[Arguments, Prediction] = {
        one: prediction(truth[one] * factor) for one, factor in zip(truth, wrong, strict=False)
    }
    noise = random.Random(seed)
    runs = [steady(present, truth[present])]
    while len(runs) < most and (one := next_run(wanted, runs)) is not None:
        broken = candidates.index(one) in fails
        steps = [truth[one] * noise.uniform(0.97, 1.03) for _ in range(20)]
        runs.append(MeasuredArguments(one, "broke") if broken else MeasuredArguments(one, "measured", steps))
    taken = chosen(runs)
    assert len({run.arguments for run in runs}) == len(runs)
    assert taken in runs
    assert taken is not None
    assert taken.why == "measured"
    measured_us = [fmean(run.steps) for run in runs if run.steps]
    if taken is runs[0]:
        fastest = min((run for run in runs if run.steps), key=lambda run: fmean(run.steps))
        assert fastest.interval is not None
        assert fastest is runs[0] or fastest.interval[2] >= 0.95 * fmean(runs[0].steps)
    else:
        assert fmean(taken.steps) < fmean(runs[0].steps)
        assert fmean(taken.steps) <= (1 + EVEN) * min(measured_us)


def test_a_few_runs_find_what_is_within_five_per_cent_of_the_best() -> None:
    """Of made machines whose simulation is wrong by 8 % in ways that neighbours share: in nine of ten cases, with three
    runs where the whole grid has more than a dozen."""
    good = sum(_found(seed) <= 1.05 for seed in range(60))
    assert good >= 54


def _found(seed: int) -> float:
    chance = random.Random(seed)
    cores, work, floor = chance.choice([2, 4, 8]), chance.uniform(20, 200), chance.uniform(5, 40)
    tilt, level = chance.gauss(0, 0.04), chance.gauss(0, 0.07)

    def simulated(one: Arguments) -> float:
        if not one.num_workers:
            return work + floor
        served = work / min(one.num_workers, cores) * (1 + 0.2 / (one.prefetch_factor or 2))
        return max(served, floor) * (1 + 0.01 * max(one.num_workers - cores, 0))

    def true(one: Arguments) -> float:
        return simulated(one) * math.exp((level + tilt * math.log2(one.num_workers)) if one.num_workers else 0.0)

    candidates = grid(TuneBounds(present=NONE, cores=cores))
    wanted = {one: prediction(simulated(one)) for one in candidates}
    runs = [steady(NONE, true(NONE))]
    while len(runs) < MOST_RUNS and (one := next_run(wanted, runs, lower_bound_us=0.8 * floor)) is not None:
        runs.append(steady(one, true(one)))
    taken = chosen(runs)
    assert taken is not None
    return fmean(taken.steps) / min(map(true, candidates))


class TestGrid:
    def test_has_workers_up_to_twice_the_cores_and_each_queue(self) -> None:
        found = grid(TuneBounds(present=NONE, cores=2))
        assert [one.num_workers for one in found[:1]] == [0]
        assert {one.num_workers for one in found} == {0, 1, 2, 3, 4, 6}
        assert {one.prefetch_factor for one in found if one.num_workers} == {2, 4, 8}
        assert not any(one.pin_memory or one.persistent_workers for one in found)
        assert len(found) == 16

    def test_no_more_workers_than_keep_the_cores_busy(self) -> None:
        found = grid(TuneBounds(present=NONE, cores=2, most_workers=2))
        assert {one.num_workers for one in found} == {0, 1, 2}
        found = grid(TuneBounds(present=arguments(8), cores=2, most_workers=2))
        assert {one.num_workers for one in found} == {0, 1, 2, 8}
        found = grid(TuneBounds(present=NONE, cores=2, most_workers=40))
        assert max(one.num_workers for one in found) == 6

    def test_the_present_one_is_among_them_whatever_it_is(self) -> None:
        odd = arguments(5, 3, pin_memory=True, persistent_workers=True)
        assert odd in grid(TuneBounds(present=odd, cores=2))

    def test_persistent_workers_where_several_passes_were_seen(self) -> None:
        assert len(grid(TuneBounds(present=NONE, cores=2, passes=2))) == 31
        once = TuneBounds(present=NONE, cores=2, passes=2, is_made_anew=True)
        assert len(grid(once)) == 16
        assert any("makes a new DataLoader for each pass" in text for text in left_out(once))

    def test_pinning_where_a_gpu_is_used(self) -> None:
        found = TuneBounds(present=NONE, cores=2, has_gpu=True)
        assert {one.pin_memory for one in grid(found)} == {False, True}
        assert not any("pin_memory" in text for text in left_out(found))
        assert any("no CUDA device" in text for text in left_out(TuneBounds(present=NONE, cores=2)))

    def test_memory_bounds_workers_and_the_queue(self) -> None:
        tight = TuneBounds(present=TWO, cores=4, worker_bytes=3e9, free_bytes=7e9, batch_bytes=1e9, queue_bytes=8e9)
        found = grid(tight)
        assert max(one.num_workers for one in found) == 4
        most = max(one.num_workers * (one.prefetch_factor or 0) for one in found)
        assert most == 12
        assert any("no room" in text for text in left_out(tight))

    def test_an_iterable_dataset_keeps_its_workers(self) -> None:
        found = TuneBounds(present=TWO, cores=4, is_iterable=True)
        assert {one.num_workers for one in grid(found)} == {2}
        assert any("iterable" in text for text in left_out(found))

    @pytest.mark.parametrize("needs", ["timeout", "worker_init_fn"])
    def test_what_means_something_in_workers_only_keeps_them(self, needs: str) -> None:
        found = TuneBounds(present=TWO, cores=4, needs_workers=needs)
        assert NONE not in grid(found)
        assert any(needs in text for text in left_out(found))

    def test_no_workers_have_no_queue(self) -> None:
        assert arguments(0, 8, persistent_workers=True) == NONE
        assert NONE.changes() == {"num_workers": 0, "pin_memory": False}
        assert str(NONE) == "0 workers"
        assert str(replace(ONE, persistent_workers=True, pin_memory=True)) == "1 worker, prefetch 2, persistent, pinned"
