"""The simulation against schedules worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_work import batch, setup, step, step_ends, work

from headrace.doctor.simulate.engine import TAKING_TURNS
from headrace.doctor.simulate.work import PassCosts


def steady(ends: list[float]) -> float:
    """Mean step once the beginning is over."""
    half = len(ends) // 2
    return (ends[-1] - ends[half - 1]) / (len(ends) - half)


@pytest.mark.parametrize("workers", [1, 2, 3, 5])
@pytest.mark.parametrize("device", [3, 10, 40])
def test_the_slower_of_loader_and_device_sets_the_pace(workers: int, device: int) -> None:
    ends = step_ends(setup(workers=workers), work([batch(wait=30)], [step(wait=device)]), steps=60)
    assert steady(ends) == pytest.approx(max(30 / workers, device))


def test_without_workers_the_times_add_up() -> None:
    known = work([batch(5, wait=3, receive=100, pin=2)], [step(7, wait=4)], draw=1)
    assert step_ends(setup(workers=0), known, steps=3) == [22, 44, 66]


def test_a_schedule_by_hand() -> None:
    """Two workers, one batch each in flight. Times: 0 at 10, 1 at 10, taken at 10 and 14, so that 2 is made from 10 to
    20 and 3 from 14 to 24, and so on: a step of 4 after each."""
    known = work([batch(wait=10)], [step(wait=4)])
    assert step_ends(setup(prefetch=1), known, steps=6) == [14, 18, 24, 28, 34, 38]


def test_a_slow_batch_holds_up_the_line() -> None:
    """Batch 2 takes 50 in worker 0, from 10 to 60; meanwhile worker 1 has made 1, 3 and then stands still, since only
    four may be in flight: 2, 3, 4 and 5 are, of which 5 is made by 30. All wait for 2. Then 3 lies ready, 4 is made
    from 60 to 70, and 5 lies ready."""
    known = work([batch(wait=50 if number == 2 else 10) for number in range(20)], [step(wait=1)])
    ends = step_ends(setup(), known, steps=6)
    assert ends == [11, 12, 61, 62, 71, 72]


def test_out_of_order_a_slow_batch_holds_up_its_own_worker_alone() -> None:
    """Batch 4 waits in worker 0 behind 2, and worker 1, which has two in flight at most, makes 3, 5, 6, 7."""
    known = work([batch(wait=50 if number == 2 else 10) for number in range(20)], [step(wait=1)])
    assert step_ends(setup(in_order=False), known, steps=6) == [11, 12, 21, 31, 41, 51]


def test_a_longer_queue_hides_what_a_slow_batch_takes() -> None:
    known = work([batch(wait=50 if number % 12 == 11 else 10) for number in range(120)], [step(wait=9)])
    short, long = (steady(step_ends(setup(prefetch=prefetch), known, steps=240)) for prefetch in (1, 8))
    assert long == pytest.approx(9, rel=0.01)
    assert short > 10


def test_on_one_core_all_that_computes_adds_up() -> None:
    known = work([batch(10, wait=5, serialise=1)], [step(3, wait=2)])
    for workers in (2, 4, 8):
        assert steady(step_ends(setup(workers=workers, cores=1), known, steps=200)) == pytest.approx(14, rel=0.01)


def test_other_programs_keep_their_part() -> None:
    """One thread of theirs beside one of ours on one core: half of it."""
    known = work([batch(10)], [step(wait=1)])
    assert steady(step_ends(setup(workers=1, cores=1, others=1.0), known, steps=50)) == pytest.approx(20)


def test_a_batch_made_by_several_threads_takes_as_many_cores() -> None:
    known = work([batch(10)], [step(wait=1)])
    several = setup(workers=2, cores=2, worker_threads=2.0)
    assert steady(step_ends(several, known, steps=400)) == pytest.approx(10, rel=0.01)


def test_a_team_waits_for_its_slowest_thread() -> None:
    """Two threads of the trainer on two cores, and a worker: beside it one of them has half a core, and the other spins
    meanwhile. Sharing fairly, three threads would have two thirds each."""
    known = work([batch(10)], [step(10)], team=2)
    crowded = setup(workers=1, cores=2)
    assert steady(step_ends(crowded, known, steps=200)) == pytest.approx(2 * 10 * TAKING_TURNS, rel=0.01)
    assert steady(step_ends(replace(crowded, cores=3), known, steps=200)) == pytest.approx(10, rel=0.01)
    assert steady(step_ends(crowded, work([batch(10)], [step(10)]), steps=200)) == pytest.approx(10, rel=0.01)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 6), st.integers(1, 4), st.integers(1, 60), st.integers(1, 60), st.booleans())
def test_a_step_is_no_less_than_its_work(workers: int, cores: int, making: int, training: int, is_team: bool) -> None:
    team = cores if is_team else 1
    known = work([batch(making)], [step(training)], team=team)
    floor = (making + training * team) / cores
    assert steady(step_ends(setup(workers=workers, cores=cores), known, steps=300)) >= 0.97 * floor


def test_what_the_trainer_does_for_a_batch_is_part_of_the_step() -> None:
    known = work([batch(wait=1, receive=2, pin=3)], [step(wait=10)], draw=1)
    assert steady(step_ends(setup(), known, steps=40)) == pytest.approx(16)


def test_a_pinning_thread_takes_it_off_the_step() -> None:
    known = work([batch(wait=1, receive=2, pin=3)], [step(wait=10)], draw=1)
    assert steady(step_ends(setup(pinned=True), known, steps=40)) == pytest.approx(11)


def test_several_batches_make_a_step() -> None:
    known = work([batch(wait=10)], [step(wait=12, gets=4)])
    assert steady(step_ends(setup(workers=1), known, steps=40)) == pytest.approx(40)
    assert steady(step_ends(setup(workers=4), known, steps=40)) == pytest.approx(12)


def test_the_device_runs_on_beside_the_training_thread() -> None:
    """8 of the thread's time and 5 of waiting for a batch lie within 20 of the device's."""
    known = work([batch(wait=5)], [step(8, device=20)])
    assert steady(step_ends(setup(workers=0), known, steps=60)) == pytest.approx(20)
    known = work([batch(wait=15)], [step(8, device=20)])
    assert steady(step_ends(setup(workers=0), known, steps=60)) == pytest.approx(23)


def test_storage_has_a_rate_for_all() -> None:
    """100 batches a second are one in 10,000 microseconds."""
    known = work([batch(wait=30_000)], [step(wait=1)])
    assert steady(step_ends(setup(workers=8, storage=100), known, steps=100)) == pytest.approx(10_000)
    assert steady(step_ends(setup(workers=2, storage=100), known, steps=100)) == pytest.approx(15_000)


PASSES = PassCosts(fork=5, begin=7, resume=3, shut_down=2, first_wait=11, first_compute=13, iterates=False)


def test_each_pass_starts_its_workers_anew() -> None:
    """Of 2 workers, the first is forked at 5, begins at 12, and has its first batch at 12 + 11 + 13 + 10 = 46; the
    second at 51. Those of the first pass are taken at 46 and 51, the third at 56; then 4 to shut both down, and again.
    """
    known = work([batch(wait=10)], [step(wait=1)], passes=PASSES)
    ends = step_ends(setup(pass_batches=3), known, steps=6)
    assert ends[:3] == [47, 52, 57]
    assert [end - 61 for end in ends[3:]] == [47, 52, 57]


def test_a_worker_that_iterates_begins_to_in_each_pass() -> None:
    """However long it lives: 24 more for the first batch of each."""
    known = work([batch(wait=10)], [step(wait=1)], passes=replace(PASSES, iterates=True))
    ends = step_ends(setup(pass_batches=3, persistent=True), known, steps=6)
    assert ends[:3] == [47, 52, 57]
    assert [end - 57 for end in ends[3:]] == [38, 39, 48]


def test_a_batch_is_held_while_its_worker_makes_another() -> None:
    """One worker, always at work: 10 to make a batch, 4 to be answered. Where it rests, nobody waits for it."""
    busy = work([batch(wait=10, held=4)], [step(wait=8)])
    assert steady(step_ends(setup(workers=1), busy, steps=50)) == pytest.approx(12)
    resting = work([batch(wait=10, held=4)], [step(wait=100)])
    assert steady(step_ends(setup(workers=1), resting, steps=50)) == pytest.approx(100)


def test_a_pass_may_be_under_way() -> None:
    known = work([batch(wait=10)], [step(wait=1)], passes=PASSES)
    assert step_ends(setup(workers=1, pass_batches=3), known, first=1, steps=2) == [11, 21]
