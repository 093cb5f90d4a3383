"""Samplers under torchdata's StatefulDataLoader, which saves and restores its sampler itself."""

from __future__ import annotations

import json

import pytest
from sampler_loaders import KINDS, WORKERS, everywhere, factory, loader_of, sampler_of, samples_of

from headrace.errors import StateError

torchdata = pytest.importorskip("torchdata.stateful_dataloader")

# torchdata 0.11 still calls what torch has deprecated.
pytestmark = pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")

both = pytest.mark.parametrize("kind", KINDS)


def stateful_loader(kind, workers="no workers", **options):
    num_workers, persistent = WORKERS[workers]
    sampler = sampler_of(kind, **options)
    loader = loader_of(
        sampler, cls=torchdata.StatefulDataLoader, num_workers=num_workers, persistent_workers=persistent
    )
    return sampler, loader


def epochs(kind, count):
    loader = factory(kind)()
    return [samples_of(list(loader)) for _ in range(count)]


def after(loader, taken, *, exhausted=False):
    """The state after `taken` batches of a pass, through JSON; `exhausted` asks for one more than there is."""
    iterator = iter(loader)
    for _ in range(taken):
        next(iterator)
    if exhausted:
        assert list(iterator) == []
    return json.loads(json.dumps(loader.state_dict()))


@everywhere
@pytest.mark.one_in(3)
def test_resume_at_every_step(kind, workers):
    first, second = epochs(kind, 2)
    for taken in range(len(first) + 1):
        state = after(stateful_loader(kind, workers)[1], taken)
        resumed = stateful_loader(kind, workers)[1]
        resumed.load_state_dict(state)
        assert [samples_of(resumed), samples_of(resumed)] == [first[taken:], second]


@pytest.mark.one_in(2)
@everywhere
def test_resume_after_the_end_of_a_pass(kind, workers):
    first, second, third = epochs(kind, 3)
    state = after(stateful_loader(kind, workers)[1], len(first), exhausted=True)
    resumed = stateful_loader(kind, workers)[1]
    resumed.load_state_dict(state)
    assert [samples_of(resumed), samples_of(resumed)] == [second, third]


@pytest.mark.one_in(4)
@everywhere
@pytest.mark.parametrize("taken", [2, 4, 6])
def test_a_loop_that_sets_epochs_sees_each_batch_once(kind, workers, taken):
    """An epoch has 4 batches. The loop saves the epoch's number beside the loader's state."""
    expected = epochs(kind, 3)
    sampler, loader = stateful_loader(kind, workers)
    got, saved = [], None
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for batch in loader:
            got.append(batch["sample"].tolist())
            if len(got) == taken:
                saved = epoch, json.loads(json.dumps(loader.state_dict()))
                break
        if saved:
            break
    sampler, loader = stateful_loader(kind, workers)
    loader.load_state_dict(saved[1])
    for epoch in range(saved[0], 3):
        sampler.set_epoch(epoch)
        got += samples_of(loader)
    assert got == [batch for epoch in expected for batch in epoch]


@both
@pytest.mark.one_in(4)
def test_resume_twice(kind):
    first = epochs(kind, 1)[0]
    state = after(stateful_loader(kind, "workers")[1], 1)
    again = stateful_loader(kind, "workers")[1]
    again.load_state_dict(state)
    state = after(again, 1)
    last = stateful_loader(kind, "workers")[1]
    last.load_state_dict(state)
    assert samples_of(last) == first[2:]


@both
def test_after_an_abandoned_pass_comes_the_next_epoch(kind):
    following = epochs(kind, 2)[1]
    _, loader = stateful_loader(kind)
    after(loader, 2)
    assert samples_of(loader) == following


@pytest.mark.one_in(3)
@both
@pytest.mark.parametrize("workers", ["no workers", "workers"])
def test_the_sampler_itself_still_does_not_know(kind, workers):
    """Only the loader knows when to ask."""
    sampler, loader = stateful_loader(kind, workers)
    next(iter(loader))
    with pytest.raises(StateError, match="ahead of the loop"):
        sampler.state_dict()


def test_single_samples_that_wrap_around_resume_at_their_end():
    """3 ranks take 42 of 40 samples."""
    ranks = [{"batch_size": 12, "rank": rank, "world_size": 3} for rank in range(3)]
    states = [after(stateful_loader("samples", **rank)[1], 2) for rank in ranks]
    loader = stateful_loader("samples", **ranks[2])[1]
    loader.load_state_dict(states[2])
    whole = stateful_loader("samples", **ranks[2])[1]
    assert [samples_of(loader), samples_of(loader)] == [samples_of(whole)[2:], samples_of(whole)]


def test_a_state_resumes_at_another_world_size():
    expected = epochs("batches", 1)[0]
    state = after(stateful_loader("batches")[1], 2)
    parts = []
    for rank in range(2):
        loader = stateful_loader("batches", batch_size=6, rank=rank, world_size=2)[1]
        loader.load_state_dict(state)
        parts.append(samples_of(loader))
    assert [left + right for left, right in zip(*parts, strict=True)] == expected[2:]
