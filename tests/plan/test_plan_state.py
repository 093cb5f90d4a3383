"""State: resumed at every step, on every world size, and every reason to refuse one."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import StateError
from headrace.plan import State, UniformPlan, resume, state_after
from headrace.plan.state import Resume

DATASET, CORE = "sha256:0123", "libjpeg-turbo 2.1.5"


def saved(plan, epoch, steps):
    """A state that has been through JSON."""
    state = state_after(plan, epoch=epoch, steps=steps, dataset=DATASET, core=CORE)
    return State.from_dict(json.loads(json.dumps(state.to_dict())))


def batches_of(plans, epoch, step):
    """Global batches from here to the end of the epoch."""
    return [
        np.concatenate([plan.batch(epoch, at).samples for plan in plans]).tolist() for at in range(step, plans[0].steps)
    ]


@pytest.mark.parametrize("remainder", ["short", "drop", "wrap"])
@pytest.mark.parametrize("world_size", [1, 2, 4])
def test_resume_at_every_step_on_every_world_size(remainder, world_size):
    parameters = {"length": 50, "seed": 9, "remainder": remainder}
    before = UniformPlan(**parameters, batch_size=8)
    after = [
        UniformPlan(**parameters, batch_size=8 // world_size, world_size=world_size, rank=r) for r in range(world_size)
    ]
    for epoch in range(2):
        whole = batches_of([before], epoch, 0)
        for steps in range(before.steps):
            place = resume(saved(before, epoch, steps), after[-1], dataset=DATASET, core=CORE)
            assert (place.epoch, place.step, place.warning) == (epoch, steps, None)
            assert whole[:steps] + batches_of(after, place.epoch, place.step) == whole


def test_resumed_twice_is_the_same_place():
    plan = UniformPlan(length=50, batch_size=8)
    first = resume(saved(plan, 3, 2), plan, dataset=DATASET, core=CORE)
    second = resume(saved(plan, first.epoch, first.step), plan, dataset=DATASET, core=CORE)
    assert first == second


@pytest.mark.parametrize("remainder", ["short", "drop", "wrap"])
def test_an_epochs_edge_is_the_start_of_the_next(remainder):
    plan = UniformPlan(length=50, batch_size=8, remainder=remainder)
    state = saved(plan, 3, plan.steps)
    assert (state.epoch, state.samples) == (4, 0)
    assert resume(state, plan, dataset=DATASET, core=CORE).step == 0


def test_a_state_past_the_end_is_taken_where_it_is_asked_for():
    state = State.from_dict({**saved(GOOD, 3, 2).to_dict(), "samples": 56})
    place = resume(state, GOOD, dataset=DATASET, core=CORE, past_end=True)
    assert (place.epoch, place.step) == (3, GOOD.steps)
    beyond = State.from_dict({**state.to_dict(), "samples": 64})
    with pytest.raises(StateError, match="below 64, got 64"):
        resume(beyond, GOOD, dataset=DATASET, core=CORE, past_end=True)


def test_samples_are_counted_over_all_ranks():
    assert saved(UniformPlan(length=50, batch_size=4, world_size=2, rank=1), 0, 3).samples == 24


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**40), st.integers(1, 2**40), st.booleans())
def test_a_state_survives_json(seed, epoch, length, shuffle):
    state = saved(UniformPlan(length=length, batch_size=4, seed=seed, shuffle=shuffle), epoch, 0)
    assert (state.seed, state.epoch, state.length, state.shuffle) == (seed, epoch, length, shuffle)
    assert len(json.dumps(state.to_dict())) < 400


def test_the_dict_is_the_documented_one():
    state = state_after(UniformPlan(length=50, batch_size=8, seed=7), epoch=1, steps=2, dataset=DATASET, core=CORE)
    assert state.to_dict() == {
        "version": 3,
        "plan": 2,
        "rng": 1,
        "dataset": DATASET,
        "length": 50,
        "seed": 7,
        "shuffle": True,
        "remainder": "short",
        "grouping": "",
        "global_batch": 8,
        "epoch": 1,
        "samples": 16,
        "core": CORE,
        "content": "",
    }


GOOD = UniformPlan(length=50, batch_size=8, seed=7)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"plan": 3}, "expected plan version 2 as in this loader, got 3 .*; resume with the Headrace that saved it"),
        ({"rng": 0}, "expected random source version 1 .* got 0"),
        ({"dataset": "sha256:9"}, "expected dataset 'sha256:0123' .* got 'sha256:9' .* allow_changed=True"),
        ({"length": 51}, "expected samples in an epoch 50 .* got 51"),
        ({"seed": 8}, "expected seed 7 .* got 8 .*; pass seed=8"),
        ({"shuffle": False}, "expected shuffle True .* got False .*; pass shuffle=False"),
        ({"remainder": "drop"}, "expected remainder 'short' .* got 'drop' .*; pass remainder='drop'"),
        ({"samples": 12}, r"state\['samples'\]: expected a multiple of the global batch 8 below 56, got 12"),
        ({"samples": 56}, "below 56, got 56"),
        ({"global_batch": 0}, "got 0 in the state; no plan has such a batch"),
        ({"global_batch": 16}, r"expected global batch 8 x 1 ranks = 8 .* got 16 in the state; pass batch_size=16"),
    ],
)
def test_a_state_of_another_run_is_refused(change, says):
    state = State.from_dict({**saved(GOOD, 0, 2).to_dict(), **change})
    with pytest.raises(StateError, match=says):
        resume(state, GOOD, dataset=DATASET, core=CORE)


def test_a_world_size_that_cannot_split_the_batch_is_told_which_can():
    plan = UniformPlan(length=50, batch_size=3, world_size=3, seed=7)
    with pytest.raises(StateError, match=r"3 ranks cannot split 8 evenly; world sizes that can: 1, 2, 4, 8$"):
        resume(saved(GOOD, 0, 2), plan, dataset=DATASET, core=CORE)


def test_a_state_of_plan_version_1_goes_on_at_its_position():
    state = State.from_dict({**saved(GOOD, 3, 2).to_dict(), "plan": 1})
    assert resume(state, GOOD, dataset=DATASET, core=CORE) == Resume(3, 2, None)  # nothing repeats, nothing changes
    repeating = resume(state, GOOD, dataset=DATASET, core="libjpeg-turbo 3.0.1", repeats=True)
    assert (repeating.epoch, repeating.step) == (3, 2)
    assert repeating.warning is not None
    assert "decodes with libjpeg-turbo 3.0.1" in repeating.warning
    assert "saved under plan version 1, where all repeats of a sample shared one random draw" in repeating.warning
    assert resume(saved(GOOD, 3, 2), GOOD, dataset=DATASET, core=CORE, repeats=True).warning is None


def test_other_codecs_only_warn():
    place = resume(saved(GOOD, 0, 2), GOOD, dataset=DATASET, core="libjpeg-turbo 3.0.1")
    assert place.step == 2
    assert place.warning is not None
    assert "decodes with libjpeg-turbo 3.0.1; the state was saved under libjpeg-turbo 2.1.5" in place.warning


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"version": 1}, "expected version 3, got 1; resume with the Headrace that saved it"),
        ({"version": True}, "expected version 3, got True"),
        ({"version": None}, "got None"),
        ({"version": 1, "counts": {}}, "got that of a mixture; pass it to the mixture"),
        ({"extra": 1}, r"missing \[\] and unknown \['extra'\]"),
        ({"global_batch": 10**30}, "expected an int from 0 to"),
        ({"epoch": True}, r"state\['epoch'\]: expected an int from 0 to 2\*\*64 - 1, got True"),
        ({"epoch": 1.0}, "got 1.0"),
        ({"epoch": "1"}, "got '1'"),
        ({"samples": -8}, "got -8"),
        ({"shuffle": 1}, r"state\['shuffle'\]: expected a bool, got 1"),
        ({"dataset": None}, r"state\['dataset'\]: expected a str, got None"),
    ],
)
def test_what_is_not_a_state_is_refused(change, says):
    with pytest.raises(StateError, match=says):
        State.from_dict({**saved(GOOD, 0, 2).to_dict(), **change})


@pytest.mark.parametrize("key", saved(GOOD, 0, 0).to_dict())
def test_every_key_is_needed(key):
    data = saved(GOOD, 0, 2).to_dict()
    del data[key]
    with pytest.raises(
        StateError, match="expected version 3, got None" if key == "version" else rf"missing \['{key}'\]"
    ):
        State.from_dict(data)


@pytest.mark.parametrize("data", [None, [], "{}", 5])
def test_anything_but_a_dict_is_refused(data):
    with pytest.raises(StateError, match="expected the dict that state_dict"):
        State.from_dict(data)
