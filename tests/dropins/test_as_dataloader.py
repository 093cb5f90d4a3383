"""A loader as a DataLoader: the same batches, not copied; frameworks' ways of taking it apart are refused or served."""

from __future__ import annotations

import itertools
import os
import threading
import traceback

import battery
import pytest
import torch
from framework_data import MAKERS, STEPS, Samples, assert_not_copied, loader_only, state_at, thread_maker, watched
from processes import own_threads, run_python
from torch.utils.data import DataLoader, DistributedSampler, IterableDataset

from headrace.device import DevicePrefetcher
from headrace.dropins.resumable_samplers import ResumableBatchSampler, ResumableSampler
from headrace.dropins.thread_loader.thread_dataloader import ThreadDataLoader
from headrace.errors import StateError, UsageError
from headrace.loader.framework_dataloader import as_dataloader
from headrace.tools.bench.runs import tree

GLOBAL_BATCH = 12


@pytest.fixture(scope="module", params=MAKERS)
def make(request, tmp_path_factory):
    return MAKERS[request.param](tmp_path_factory.mktemp("as_dataloader"))


@pytest.fixture(scope="module")
def expected(make):
    """The first four epochs."""
    return battery.epochs(make(), 4)


@pytest.fixture(scope="module")
def make_dataloader(make):
    return lambda **overrides: make(**overrides).as_dataloader()


class Numbers:
    """A loader with as little as is asked for: batches [10 e + k, …] of epoch e."""

    batch_size = 2

    def __init__(self):
        self.epoch = 0
        self.taken = []

    def __len__(self):
        return 4

    def __iter__(self):
        for step in range(len(self)):
            self.taken.append(step)
            yield torch.tensor([10 * self.epoch + step])

    def set_epoch(self, epoch):
        self.epoch = epoch


class StatefulNumbers(Numbers):
    """The same with a state of its own: it goes on from there without loading what came before."""

    def __init__(self):
        super().__init__()
        self.step = 0

    def __iter__(self):
        for step in range(self.step, len(self)):
            number = 10 * self.epoch + step
            self.epoch, self.step = divmod((self.epoch * len(self)) + step + 1, len(self))
            self.taken.append(step)
            yield torch.tensor([number])
        self.step = 0

    def state_dict(self):
        return {"epoch": self.epoch, "step": self.step}

    def load_state_dict(self, state):
        self.epoch, self.step = state["epoch"], state["step"]


def rebuilt(dataloader, *, ranks=1, rank=0):
    """As Accelerate builds it: the batch sampler's batches dealt out to ranks in turn, fetched by torch's DataLoader.

    The reference is torch itself; the tests of Accelerate show that it does so.
    """

    class Dealt:
        def __iter__(self):
            for place, part in enumerate(dataloader.batch_sampler):
                if place % ranks == rank:
                    yield part

        def __len__(self):
            return len(dataloader.batch_sampler) // ranks

    return DataLoader(dataloader.dataset, batch_sampler=Dealt(), collate_fn=dataloader.collate_fn)


def numbers(batches):
    return [batch.item() for batch in batches]


def test_world_sizes(make_dataloader):
    battery.check_world_sizes(make_dataloader, GLOBAL_BATCH)


@pytest.mark.one_in(2)
def test_resume_at_every_step(make_dataloader):
    battery.check_resume_at_every_step(make_dataloader)


def test_resume_twice(make_dataloader):
    battery.check_resume_twice(make_dataloader)


def test_restored_state(make_dataloader):
    battery.check_restored_state_is_the_same(make_dataloader)


@pytest.mark.one_in(2)
@pytest.mark.long
def test_resume_on_other_world_sizes(make_dataloader):
    battery.check_resume_on_other_world_sizes(make_dataloader, GLOBAL_BATCH)


def test_is_the_loader_to_whoever_looks(make):
    loader = make(rank=1, world_size=2)
    dataloader = loader.as_dataloader()
    assert isinstance(dataloader, DataLoader)
    assert isinstance(dataloader.sampler, DistributedSampler), "Lightning would put one of its own in its place"
    assert (len(dataloader), dataloader.batch_size, len(dataloader.dataset)) == (4, 6, 40)
    assert (len(dataloader.batch_sampler), dataloader.batch_sampler.batch_size) == (8, 6)
    assert (dataloader.num_workers, dataloader.pin_memory, dataloader.drop_last) == (0, False, False)
    assert len(make(batch_size=6, remainder="drop").as_dataloader().dataset) == 36
    assert len(make(batch_size=6, remainder="wrap").as_dataloader().dataset) == 40


@pytest.mark.parametrize("way", [iter, lambda dataloader: iter(rebuilt(dataloader))], ids=["as it is", "rebuilt"])
@pytest.mark.parametrize("kind", ["loader", "threads"])
def test_hands_out_the_loaders_own_batches(tmp_path, kind, way):
    """The very objects, hence the same memory."""
    loader = watched(kind, tmp_path)
    got = list(way(loader.as_dataloader()))
    assert all(mine is theirs for mine, theirs in zip(got, loader.given, strict=True))
    assert_not_copied(got, loader)


@pytest.mark.parametrize("way", [iter, lambda dataloader: iter(rebuilt(dataloader))], ids=["as it is", "rebuilt"])
def test_adds_no_thread_and_no_process(make, way):
    loader = make()
    iterator = iter(loader)
    next(iterator)
    alone = own_threads(), threading.active_count(), tree(os.getpid())
    iterator.close()
    iterator = way(loader.as_dataloader())
    next(iterator)
    assert (own_threads(), threading.active_count(), tree(os.getpid())) == alone


def test_an_abandoned_pass_ends_its_threads_and_the_next_takes_the_next_epoch(make, expected):
    dataloader = make().as_dataloader()
    for epoch, way in enumerate((dataloader, rebuilt(dataloader))):
        for batch in way:
            battery.assert_equal(battery.kept([batch]), expected[epoch * STEPS :][:1], "first batch")
            assert own_threads() != []
            break
        assert own_threads() == []
    battery.assert_equal(battery.kept(dataloader), expected[2 * STEPS : 3 * STEPS], "after the break")


def test_an_exception_comes_through_as_it_is(make):
    def breaks(sample, rng):
        raise ZeroDivisionError("in the user's map")

    dataloader = make(map=breaks).as_dataloader()
    for way in (dataloader, rebuilt(dataloader)):
        with pytest.raises(ZeroDivisionError, match="in the user's map") as caught:
            next(iter(way))
        assert "breaks" in [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]


def test_rebuilt_ranks_are_the_loaders_ranks(make):
    whole = battery.epochs(make(batch_size=GLOBAL_BATCH))
    ranks = []
    for rank in range(3):
        dataloader = make(batch_size=GLOBAL_BATCH // 3, rank=rank, world_size=3).as_dataloader()
        ranks.append(battery.epochs(rebuilt(dataloader, ranks=3, rank=rank)))
    battery.assert_equal([battery.joined(parts) for parts in zip(*ranks, strict=True)], whole, "three ranks")


@pytest.mark.parametrize("speaker", ["sampler", "dataset"])
def test_an_announced_epoch_is_taken(make_dataloader, expected, speaker):
    """Whether it is announced before or after the iterator is made."""
    dataloader = make_dataloader()
    for epoch in (2, 0, 3):
        iterator = iter(dataloader)
        getattr(dataloader, speaker).set_epoch(epoch)
        battery.assert_equal(battery.kept(iterator), expected[epoch * STEPS :][:STEPS], f"epoch {epoch}")


def test_a_restored_position_outranks_an_announced_count(make, expected):
    """Fabric announces 0, 1, … in every process, also in one that resumes in epoch 1."""
    state = state_at(make, 1, 4)
    dataloader = make().as_dataloader()
    dataloader.load_state_dict(state)
    for count, epoch, taken in [(0, 1, 4), (1, 2, 0), (2, 3, 0)]:
        dataloader.sampler.set_epoch(count)
        rest = expected[epoch * STEPS + taken : (epoch + 1) * STEPS]
        battery.assert_equal(battery.kept(dataloader), rest, f"count {count}")


def test_an_announced_epoch_that_is_the_restored_one_keeps_its_place(make, expected):
    loader = make()
    dataloader = loader.as_dataloader()
    loader.load_state_dict(state_at(make, 1, 4))
    for epoch, taken in [(1, 4), (2, 0)]:
        dataloader.sampler.set_epoch(epoch)
        rest = expected[epoch * STEPS + taken : (epoch + 1) * STEPS]
        battery.assert_equal(battery.kept(dataloader), rest, f"epoch {epoch}")


def test_set_epoch_outranks_an_announced_count(make_dataloader, expected):
    dataloader = make_dataloader()
    dataloader.set_epoch(2)
    for count in (0, 1):
        dataloader.sampler.set_epoch(count)
        rest = expected[(2 + count) * STEPS :][:STEPS]
        battery.assert_equal(battery.kept(dataloader), rest, f"count {count}")


def test_a_run_started_anew_over_a_used_loader_takes_the_epochs_announced(make, expected):
    """Hugging Face's Trainer makes a new DataLoader for each run and announces epoch 0."""
    loader = make()
    battery.take(loader.as_dataloader(), 3)
    battery.epochs(loader, 2)
    dataloader = loader.as_dataloader()
    dataloader.dataset.set_epoch(0)
    battery.assert_equal(battery.kept(rebuilt(dataloader)), expected[:STEPS], "run again")


def test_parts_passed_over_are_not_read(make, expected):
    read = []

    def watch(sample, rng):
        read.append(sample["text"])
        return sample

    dataloader = make(map=watch).as_dataloader()
    parts = list(dataloader.batch_sampler)[5:]
    got = [dataloader.dataset.__getitems__(part) for part in parts]
    battery.assert_equal(battery.kept(got), expected[5:STEPS], "rest")
    assert sorted(read) == sorted(text for batch in expected[5:STEPS] for text in batch["text"])


def test_an_epoch_passed_over_whole_is_through(make, expected):
    dataloader = make().as_dataloader()
    assert len(list(dataloader.batch_sampler)) == STEPS
    battery.assert_equal(battery.kept(dataloader), expected[STEPS : 2 * STEPS], "next epoch")


@loader_only
def test_state_of_the_dataset_says_where_the_pass_began(make):
    loader = make()
    dataloader = loader.as_dataloader()
    assert dataloader.dataset.state_dict() == state_at(make, 0, 0)
    dataloader.load_state_dict(state_at(make, 2, 3))
    assert dataloader.dataset.state_dict() == state_at(make, 2, 3)
    iterator = iter(rebuilt(dataloader))
    next(iterator), next(iterator)
    assert dataloader.dataset.state_dict() == state_at(make, 2, 3)
    assert loader.state_dict() == state_at(make, 2, 5)
    list(iterator)
    assert dataloader.dataset.state_dict() == state_at(make, 3, 0)


def test_what_is_no_part_is_refused(make_dataloader):
    dataset = make_dataloader().dataset
    for key in (3, [1, 2], range(6)):
        with pytest.raises(UsageError, match=r"expected a rank's part of a batch, got .*split_batches.*sampler"):
            dataset[key]
    with pytest.raises(UsageError, match=r"got \[0, 0, [0, ]{5,50}\.\.\.\]: something"):
        dataset[[0] * 100]


def test_a_slice_of_a_part_is_no_part(make_dataloader):
    """Accelerate's split_batches cuts batches up."""
    dataloader = make_dataloader()
    part = next(iter(dataloader.batch_sampler))
    assert (len(part), list(part), list(part[2:4])) == (6, [0, 1, 2, 3, 4, 5], [2, 3])
    with pytest.raises(UsageError, match="split_batches"):
        dataloader.dataset[part[:3]]


def test_another_ranks_part_is_refused(make_dataloader):
    """Accelerate's dispatch_batches reads every rank's part in rank 0."""
    dataloader = make_dataloader(rank=0, world_size=2)
    with pytest.raises(UsageError, match=r"expected the parts of rank 0, got one of rank 1: .*dispatch_batches off"):
        list(rebuilt(dataloader))


def test_dealing_to_more_ranks_than_the_loader_knows_is_refused(make_dataloader):
    dataloader = make_dataloader()
    with pytest.raises(UsageError, match=r"expected step 2, got 3: .* the 1 that .*pass it rank= and world_size="):
        list(rebuilt(dataloader, ranks=2, rank=1))


def test_any_loader_will_do():
    loader = Numbers()
    dataloader = as_dataloader(loader)
    assert (len(dataloader), dataloader.batch_size, len(dataloader.dataset)) == (4, 2, 8)
    assert numbers(dataloader) == [0, 1, 2, 3]
    assert numbers(rebuilt(dataloader)) == [10, 11, 12, 13]
    dataloader.sampler.set_epoch(5)
    assert numbers(dataloader) == [50, 51, 52, 53]


@pytest.mark.parametrize("kind", [Numbers, StatefulNumbers])
@pytest.mark.parametrize("way", [lambda dataloader: dataloader, rebuilt], ids=["as it is", "rebuilt"])
def test_any_loader_resumes_at_every_step(kind, way):
    for taken in range(5):
        dataloader = as_dataloader(kind())
        state = battery.state_after(_Batches(dataloader, way), taken)
        resumed = as_dataloader(kind())
        resumed.load_state_dict(state)
        assert resumed.state_dict() == state
        got = numbers(way(resumed)) + (numbers(way(resumed)) if taken < 4 else [])
        assert got == [0, 1, 2, 3, 10, 11, 12, 13][taken:]


class _Batches:
    """What a way of iterating gives, with the DataLoader's state, as the battery takes it."""

    def __init__(self, dataloader, way):
        self._dataloader, self._way = dataloader, way
        self.state_dict = dataloader.state_dict

    def __iter__(self):
        return ({"number": batch} for batch in self._way(self._dataloader))


WAYS = pytest.mark.parametrize("way", [lambda dataloader: dataloader, rebuilt], ids=["as it is", "rebuilt"])


@pytest.mark.one_in(2)
@WAYS
@pytest.mark.parametrize("restored", [False, True])
def test_a_prefetchers_abandoned_pass_counts_as_its_epochs(make, expected, way, restored):
    """By itself a prefetcher goes on from where its consumer was: that epoch would be short for the framework."""
    dataloader = as_dataloader(DevicePrefetcher(make(), "cpu"))
    if restored:
        one = as_dataloader(DevicePrefetcher(make(), "cpu"))
        battery.take(_Kept(one, way), 1)
        dataloader.load_state_dict(one.state_dict())
    battery.take(_Kept(dataloader, way), 2)
    got = battery.kept(_Kept(dataloader, way)) + battery.kept(_Kept(dataloader, way))
    battery.assert_equal(got, expected[len(dataloader) : 3 * len(dataloader)], "two epochs")


@pytest.mark.one_in(2)
@WAYS
def test_a_prefetcher_resumes_at_every_step(make, way):
    for taken in range(len(make()) + 1):
        dataloader = as_dataloader(DevicePrefetcher(make(), "cpu"))
        battery.take(_Kept(dataloader, way), taken)
        resumed = as_dataloader(DevicePrefetcher(make(), "cpu"))
        resumed.load_state_dict(dataloader.state_dict())
        assert len(battery.kept(_Kept(resumed, way))) == (len(dataloader) - taken or len(dataloader))


def test_a_prefetcher_of_a_loader_without_state_has_none():
    """It has what its source has, so its class does not tell."""
    source = DataLoader(torch.arange(8), batch_size=2)
    dataloader = as_dataloader(DevicePrefetcher(source, "cpu"))
    next(iter(dataloader))
    state = dataloader.state_dict()
    assert state == {"epoch": 0, "step": 1}
    resumed = as_dataloader(DevicePrefetcher(source, "cpu"))
    resumed.load_state_dict(state)
    assert [batch.tolist() for batch in resumed] == [[2, 3], [4, 5], [6, 7]]


class _Kept:
    """A way of iterating, as the battery takes a loader."""

    def __init__(self, dataloader, way):
        self._dataloader, self._way = dataloader, way

    def __iter__(self):
        return iter(self._way(self._dataloader))


def test_a_stateful_loader_drops_nothing_to_resume():
    resumed = StatefulNumbers()
    dataloader = as_dataloader(resumed)
    dataloader.load_state_dict({"epoch": 0, "step": 2, "loader": {"epoch": 0, "step": 2}})
    parts = iter(dataloader.batch_sampler)
    next(parts)
    assert dataloader.dataset[next(parts)].item() == 3
    assert resumed.taken == [2, 3], "the part passed over is dropped, those before are not loaded"


def test_a_loader_restored_before_goes_on_from_there():
    loader = StatefulNumbers()
    loader.load_state_dict({"epoch": 2, "step": 3})
    dataloader = as_dataloader(loader)
    assert [numbers(dataloader) for _ in range(2)] == [[23], [30, 31, 32, 33]]


def test_a_loader_restored_before_is_found_out_where_a_framework_counts_its_steps():
    loader = StatefulNumbers()
    loader.load_state_dict({"epoch": 0, "step": 3})
    dataloader = as_dataloader(loader)
    with pytest.raises(UsageError, match=r"expected 4 batches, as .* got 1; restore states through the DataLoader"):
        list(rebuilt(dataloader))


def test_states_of_other_loaders_are_refused(make_dataloader):
    dataloader = as_dataloader(Numbers())
    for state, got in [({"epoch": 1}, r"\['epoch'\]"), ([], "list")]:
        with pytest.raises(StateError, match=rf"expected the keys \['epoch', 'step'\], got {got}; pass the saved"):
            dataloader.load_state_dict(state)
    with pytest.raises(StateError, match="pass seed=5"):
        make_dataloader(seed=6).load_state_dict(make_dataloader().state_dict())


def test_a_loader_that_cannot_say_its_state_elsewhere_says_what_to_do():
    with pytest.raises(UsageError, match=r"expected a headrace\.Loader, got Numbers: .*register_for_checkpointing"):
        as_dataloader(Numbers()).dataset.state_dict()


def test_a_loader_without_length_is_refused():
    with pytest.raises(UsageError, match="expected a loader with a length, got generator: frameworks count"):
        as_dataloader(number for number in range(3))


def test_a_dataloader_takes_its_rank_from_the_environment(monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    dataloader = as_dataloader(Numbers())
    assert (dataloader.sampler.rank, dataloader.sampler.num_replicas, len(dataloader.batch_sampler)) == (1, 2, 8)
    assert numbers(rebuilt(dataloader, ranks=2, rank=1)) == [0, 1, 2, 3]


@loader_only
def test_seek_goes_anywhere(make, expected):
    loader = make()
    assert (loader.next_step, loader._positioned) == (0, False)
    loader.seek(2, 5)
    assert (loader.epoch, loader.next_step, loader._positioned) == (2, 5, True)
    assert loader.state_dict() == loader._state_at(2, 5)
    iterator = iter(loader)
    assert (loader.next_step, loader._positioned) == (5, False)
    battery.assert_equal(battery.kept(iterator), expected[2 * STEPS + 5 : 3 * STEPS], "rest of epoch 2")
    assert (loader.epoch, loader.next_step) == (3, 0)
    loader.seek(0, 1)
    battery.assert_equal(battery.kept(loader), expected[1:STEPS], "back again")


@loader_only
def test_seek_names_what_it_expects(make):
    for place, text in [
        ((-1, 0), r"epoch to be an int from 0 to \d+, got -1"),
        ((0, STEPS), "step to be an int from 0 to 6, got 7"),
        ((0, True), "step to be an int from 0 to 6, got True"),
    ]:
        with pytest.raises(UsageError, match=f"seek: expected {text}"):
            make().seek(*place)


def test_without_torch_it_says_what_to_install(tmp_path):
    said = run_python(
        """
        import sys
        from pathlib import Path
        sys.modules["torch"] = None
        import headrace as hr
        from headrace.errors import UsageError
        from loader_data import write_folder
        loader = hr.Loader(write_folder(Path(sys.argv[1]), 8), view=hr.Resize((8, 8)), batch_size=2, output="numpy")
        try:
            loader.as_dataloader()
        except UsageError as error:
            print(error)
        """,
        tmp_path / "photos",
    )
    assert said == (0, "as_dataloader() needs PyTorch: pip install torch\n", "")


# --- ThreadDataLoader ---


def threads_of(**options):
    return ThreadDataLoader(Samples(), num_workers=1, **options)


def test_threads_have_the_loaders_own_state_and_may_be_moved_from_outside():
    """As those of a `Loader`: there is one count, the loader's."""
    make = thread_maker(None)
    loader = make()
    dataloader = loader.as_dataloader()
    whole = battery.epochs(make(), 2)
    for way in (dataloader, rebuilt(dataloader)):
        battery.take(way, 2)
        state = loader.state_dict()
        assert dataloader.state_dict() == state
        battery.kept(loader)
        loader.load_state_dict(state)
        battery.assert_equal(battery.kept(way), whole[2:STEPS], "moved back")
        loader.set_epoch(0)


def test_threads_say_what_they_are_to_whoever_looks():
    def seen(**options):
        dataloader = threads_of(**options).as_dataloader()
        return len(dataloader), dataloader.batch_size, len(dataloader.dataset), dataloader.sampler.rank

    assert seen(batch_size=6) == (7, 6, 42, 0)
    assert seen(batch_sampler=ResumableBatchSampler(40, 6, rank=1, world_size=2)) == (4, 6, 40, 1)
    assert seen(batch_sampler=ResumableBatchSampler(40, 6, remainder="drop")) == (6, 6, 36, 0)
    assert seen(batch_sampler=ResumableBatchSampler(40, 6, remainder="wrap")) == (7, 6, 40, 0)
    assert seen(batch_size=4, sampler=DistributedSampler(range(40), 2, 1)) == (5, 4, 40, 1)
    assert seen(batch_size=6, sampler=ResumableSampler(40), drop_last=True) == (6, 6, 36, 0)
    assert seen(batch_size=None) == (40, 1, 40, 0)
    assert seen(batch_sampler=[[0, 1], [2, 3]]) == (2, 1, 2, 0)


@pytest.mark.parametrize("function", [as_dataloader, ThreadDataLoader.as_dataloader])
def test_threads_that_give_all_samples_to_every_rank_are_refused(monkeypatch, function):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    for shuffle, kind in [(True, "Random"), (False, "Sequential")]:
        with pytest.raises(UsageError, match=rf"part, got {kind}Sampler, which .* to each; pass batch_sampler=Resum"):
            function(threads_of(batch_size=4, shuffle=shuffle))
        with pytest.raises(UsageError, match="expected a sampler that gives each of 2 ranks a part"):
            function(threads_of(batch_size=None, shuffle=shuffle))
    dataloader = function(threads_of(batch_sampler=ResumableBatchSampler(40, 5)))
    whole = battery.kept(thread_maker(None)(batch_size=10, seed=0, rank=0, world_size=1))
    mine = battery.kept(rebuilt(dataloader, ranks=2, rank=1))
    assert [batch["text"] for batch in mine] == [batch["text"][5:] for batch in whole]


def test_threads_that_shuffle_by_a_generator_resume():
    """An order that does not follow from the epoch is restored by the state."""

    def make():
        torch.manual_seed(1)
        return threads_of(batch_size=6, shuffle=True, generator=torch.Generator().manual_seed(3)).as_dataloader()

    battery.check_resume_at_every_step(make)


def test_threads_without_length_are_refused():
    class Endless(IterableDataset):
        def __iter__(self):
            return itertools.repeat(0)

    with pytest.raises(UsageError, match="expected a loader with a length, got ThreadDataLoader"):
        ThreadDataLoader(Endless(), num_workers=1).as_dataloader()


def test_threads_cannot_say_their_state_elsewhere():
    with pytest.raises(UsageError, match=r"expected a headrace\.Loader, got a ThreadDataLoader: .*register_for_che"):
        threads_of().as_dataloader().dataset.state_dict()


class ClosedAfterOne(Numbers):
    """Each pass says when it ends."""

    def __init__(self):
        super().__init__()
        self.ended = 0

    def __iter__(self):
        try:
            yield from super().__iter__()
        finally:
            self.ended += 1


def test_batches_get_the_scripts_structure():
    def pairs(batches):
        for batch in batches:
            yield [batch, -batch]

    loader = ClosedAfterOne()
    dataloader = as_dataloader(loader, pairs)
    assert [(one.item(), other.item()) for one, other in dataloader] == [(k, -k) for k in range(4)]
    assert len(dataloader) == 4
    assert [one.item() for one, _ in rebuilt(dataloader)] == [10, 11, 12, 13], "the next epoch, as Accelerate takes it"
    passed = iter(dataloader)
    next(passed)
    assert loader.ended == 2
    passed.close()
    assert loader.ended == 3, "a pass that is left ends the loader's own"
