"""The plan of single samples: dealt out in turn, a prefix of the epoch at any moment, resumed at any world size."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import StateError, UsageError
from headrace.plan import SamplePlan, UniformPlan, resume_samples, state_at


def rounds(plans, epoch, consumed, start, stop):
    """What all ranks take, one sample each in turn."""
    return np.stack([plan.samples(epoch, consumed, start, stop) for plan in plans], axis=1).ravel().tolist()


def ranks_of(world_size, **parameters):
    return [SamplePlan(world_size=world_size, rank=rank, **parameters) for rank in range(world_size)]


@given(st.data())
def test_what_was_consumed_is_a_prefix_and_any_world_size_goes_on_from_it(data):
    length = data.draw(st.integers(6, 80))
    parameters = {
        "length": length,
        "shuffle": data.draw(st.booleans()),
        "seed": data.draw(st.integers(0, 2**64 - 1)),
        "remainder": data.draw(st.sampled_from(["drop", "wrap"])),
    }
    epoch = data.draw(st.integers(0, 3))
    whole = UniformPlan(length=length, batch_size=length, shuffle=parameters["shuffle"], seed=parameters["seed"])
    order = whole.batch(epoch, 0).samples.tolist()
    first = ranks_of(data.draw(st.integers(1, 6)), **parameters)
    taken = data.draw(st.integers(0, length // len(first)))
    assert rounds(first, epoch, 0, 0, taken) == order[: taken * len(first)]
    then = ranks_of(data.draw(st.integers(1, 6)), **parameters)
    consumed = taken * len(first)
    steps = then[0].steps_from(consumed)
    got = rounds(then, epoch, consumed, 0, steps)
    if parameters["remainder"] == "wrap":
        assert got == (order + order)[consumed : consumed + len(got)]
        assert 0 <= consumed + len(got) - length < len(then)
    else:
        assert got == order[consumed : consumed + len(got)]
        assert 0 <= length - consumed - len(got) < len(then)


def test_samples_in_several_calls_are_those_of_one():
    plan = SamplePlan(length=50, world_size=3, rank=1)
    whole = plan.samples(2, 7, 0, 14)
    parts = [plan.samples(2, 7, 0, 5), plan.samples(2, 7, 5, 6), plan.samples(2, 7, 6, 14)]
    assert np.array_equal(np.concatenate(parts), whole)
    assert whole.dtype == np.int64


@pytest.mark.parametrize(("remainder", "steps", "left_out", "repeated"), [("drop", 3, 1, 0), ("wrap", 4, 0, 2)])
def test_what_becomes_of_the_last_samples(remainder, steps, left_out, repeated):
    plan = SamplePlan(length=10, world_size=3, remainder=remainder)
    assert (plan.steps, plan.left_out, plan.repeated) == (steps, left_out, repeated)


@pytest.mark.parametrize("remainder", ["drop", "wrap"])
def test_a_consumed_epoch_has_no_step_left(remainder):
    plan = SamplePlan(length=10, world_size=3, remainder=remainder)
    assert plan.steps_from(10) == 0
    assert plan.steps_from(9) == (remainder == "wrap")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            {"remainder": "short"},
            r"expected 'drop' or 'wrap', .* got 'short'; .* \(ResumableBatchSampler\) also has 'short'",
        ),
        ({"length": 0}, "length: expected an int from 1"),
        ({"rank": 1}, "rank: expected an int from 0 to 0, got 1"),
        ({"seed": 2**64}, "seed: expected"),
        ({"shuffle": 1}, "shuffle: expected True or False"),
        ({"world_size": 11, "remainder": "drop"}, "remainder='drop' leaves nothing"),
    ],
)
def test_a_wrong_argument_is_named(change, says):
    with pytest.raises(UsageError, match=says):
        SamplePlan(**{"length": 10, **change})


def test_a_state_is_the_same_on_every_rank_and_world_size():
    states = [
        state_at(plan, epoch=3, samples=12, dataset="d", core="").to_dict()
        for world_size in (1, 2, 4)
        for plan in ranks_of(world_size, length=40)
    ]
    assert all(state == states[0] for state in states)
    assert states[0]["global_batch"] == 1


def test_resume_refuses_another_order_and_whole_batches():
    plan = SamplePlan(length=40, seed=5)
    state = state_at(plan, epoch=3, samples=12, dataset="d", core="")
    assert resume_samples(state, SamplePlan(length=40, seed=5, world_size=7), dataset="d") == (3, 12)
    for other, says in [
        (state_at(SamplePlan(length=40, seed=6), epoch=3, samples=12, dataset="d", core=""), "pass seed=6"),
        (state_at(plan, epoch=3, samples=12, dataset="e", core=""), "expected dataset 'd'"),
        (state_at(plan, epoch=3, samples=41, dataset="d", core=""), "at most the 40 samples of an epoch, got 41"),
        (
            state_at(
                UniformPlan(length=40, batch_size=4, seed=5, remainder="wrap"),
                epoch=3,
                samples=12,
                dataset="d",
                core="",
            ),
            "expected one of a sampler of single samples .* got global batch 4; load it into a sampler of batches",
        ),
    ]:
        with pytest.raises(StateError, match=says):
            resume_samples(other, plan, dataset="d")
