"""`ThreadDataLoader` over the resumable samplers, and either kind of loader under `DevicePrefetcher`: the battery."""

from __future__ import annotations

import battery
import pytest
from sampler_loaders import GLOBAL_BATCH, KINDS, Numbers, SeededThreads, dealt, factory, flat, loader_of, sampler_of

from headrace.device import DevicePrefetcher
from headrace.dropins.random_sources import sample_random
from headrace.errors import UsageError

every_kind = pytest.mark.parametrize("kind", KINDS)


class Drawn(Numbers):
    """With a random draw beside each sample."""

    def __getitem__(self, index):
        return super().__getitem__(index) | {"draw": sample_random().numpy.random()}


def thread_factory(kind, *, dataset=Drawn, persistent=False, **fixed):
    """`make(**overrides)` for the battery."""

    def make(threads=2, rank=0, world_size=1, batch_size=GLOBAL_BATCH, **overrides):
        sampler = sampler_of(kind, batch_size=batch_size, rank=rank, world_size=world_size, **(fixed | overrides))
        return loader_of(
            sampler,
            dataset=dataset(),
            batch_size=batch_size,
            cls=SeededThreads,
            num_workers=threads,
            multiprocessing_context=None,
            persistent_workers=persistent,
        )

    return make


def prefetched(make):
    return lambda **overrides: DevicePrefetcher(make(**overrides), "cpu")


@pytest.fixture
def ranks_joined(kind, monkeypatch):
    """The battery joins parts in rank order; single samples are dealt out to the ranks in turn instead."""
    if kind == "samples":
        monkeypatch.setattr(battery, "joined", dealt)


@every_kind
def test_threads(kind):
    battery.check_threads(thread_factory(kind))


@pytest.mark.one_in(2)
@every_kind
@pytest.mark.parametrize("persistent", [False, True], ids=["threads of a pass", "persistent threads"])
def test_resume_at_every_step(kind, persistent):
    battery.check_resume_at_every_step(thread_factory(kind, persistent=persistent))


@every_kind
@pytest.mark.one_in(4)
def test_resume_with_other_threads(kind):
    for threads in battery.THREADS:
        battery.check_resume_at_every_step(thread_factory(kind), threads=threads)


@every_kind
@pytest.mark.parametrize("remainder", ["drop", "wrap"])
@pytest.mark.one_in(6)
def test_other_remainders(kind, remainder):
    make = thread_factory(kind, remainder=remainder)
    battery.check_resume_at_every_step(make)
    battery.check_resume_twice(make)


@pytest.mark.one_in(2)
@every_kind
def test_resume_twice(kind):
    battery.check_resume_twice(thread_factory(kind))


@every_kind
def test_restored_state_is_the_same(kind):
    battery.check_restored_state_is_the_same(thread_factory(kind))


@pytest.mark.one_in(2)
@every_kind
@pytest.mark.usefixtures("ranks_joined")
def test_world_sizes(kind):
    battery.check_world_sizes(thread_factory(kind, dataset=Numbers), GLOBAL_BATCH)


@every_kind
@pytest.mark.usefixtures("ranks_joined")
@pytest.mark.one_in(4)
def test_resume_on_other_world_sizes(kind):
    battery.check_resume_on_other_world_sizes(thread_factory(kind, dataset=Numbers), GLOBAL_BATCH)


@every_kind
def test_batches_are_those_of_a_tracked_dataloader(kind):
    threads = battery.epochs(thread_factory(kind, dataset=Numbers)())
    battery.assert_equal(threads, battery.epochs(factory(kind)()), "threads beside DataLoader")


@every_kind
@pytest.mark.one_in(4)
def test_threads_under_a_prefetcher(kind):
    make = prefetched(thread_factory(kind))
    battery.check_threads(make)
    battery.check_resume_at_every_step(make)
    battery.check_resume_twice(make)
    battery.check_restored_state_is_the_same(make)


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("workers", ["workers", "persistent workers"])
def test_tracked_workers_under_a_prefetcher(kind, workers):
    make = prefetched(factory(kind, workers))
    battery.check_resume_at_every_step(make)
    battery.check_resume_twice(make)


@pytest.mark.one_in(2)
@every_kind
def test_seek_at_every_step(kind):
    """The same batches as a pass has from there on, and the same state."""
    make = thread_factory(kind)
    for epoch in range(2):
        whole = make()
        whole.set_epoch(epoch)
        expected = battery.kept(whole)
        for step in range(len(whole) + 1):
            sought, taken = make(), make()
            sought.seek(epoch, step)
            taken.set_epoch(epoch)
            assert sought.next_step == step
            assert sought._positioned
            assert sought.state_dict() == battery.state_after(taken, step)
            resumed = make()
            resumed.load_state_dict(sought.state_dict())
            for loader in (sought, resumed) if step < len(whole) else ():
                batches = battery.kept(loader)
                assert [batch["sample"].tolist() for batch in batches] == [
                    batch["sample"].tolist() for batch in expected[step:]
                ]
            assert not sought._positioned or step == len(whole)


def test_seek_goes_on_from_a_restored_step_and_from_an_earlier_seek():
    make = thread_factory("batches")
    expected = battery.kept(make())
    loader = make()
    loader.load_state_dict(battery.state_after(make(), 1))
    assert loader.next_step == 1
    loader.seek(0, 2)
    battery.assert_equal(battery.kept(loader), expected[2:], "restored")
    loader.set_epoch(0)
    for step in (2, 1):
        loader.seek(0, step)
    battery.assert_equal(battery.kept(loader), expected[1:], "the later seek counts")


def test_who_seeks_and_thinks_better_of_it():
    loader, fresh = thread_factory("batches")(), thread_factory("batches")()
    loader.seek(0, 2)
    loader.set_epoch(1)
    fresh.set_epoch(1)
    assert loader.next_step == 0
    battery.assert_equal(battery.kept(loader), battery.kept(fresh), "epoch 1")


def test_seek_loads_nothing_it_passes():
    loaded = []

    class Counted(Numbers):
        def __getitem__(self, index):
            loaded.append(index)
            return super().__getitem__(index)

    loader = thread_factory("batches", dataset=Counted)()
    loader.seek(0, 2)
    got = [batch["sample"].tolist() for batch in loader]
    assert sorted(loaded) == sorted(flat(got))


def test_seek_beyond_an_epoch_or_back_is_refused():
    make = thread_factory("batches")
    with pytest.raises(UsageError, match="seek: expected a step of the epoch's 4, got 5"):
        make().seek(0, 5)
    resumed = make()
    resumed.load_state_dict(battery.state_after(make(), 2))
    for step, got in [(1, "1"), ("2", "'2'")]:
        with pytest.raises(UsageError, match=f"seek: expected step to be an int, 2 or more, got {got}"):
            resumed.seek(0, step)
    with pytest.raises(UsageError, match="set_epoch: expected an int of at least 0, got -1"):
        resumed.seek(-1, 0)


def test_threads_are_not_tracked_a_second_time():
    loader = thread_factory("batches")()
    with pytest.raises(UsageError, match=r"got a ThreadDataLoader, which counts .* by itself; .* its state_dict"):
        loader.batch_sampler.track(loader)
