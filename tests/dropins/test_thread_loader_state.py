"""A ThreadDataLoader's state: the battery over every kind of sampler, and what else a resume has to keep."""

from __future__ import annotations

import json
import re

import battery
import numpy as np
import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    Sampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from headrace.dropins.random_sources import sample_random
from headrace.dropins.thread_loader.thread_dataloader import ThreadDataLoader
from headrace.errors import StateError

COUNT = 26
BATCH = 8


class Augmented(Dataset):
    """Samples that draw, each from another source."""

    def __init__(self, count=COUNT):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        source = sample_random()
        draws = [source.numpy.random(), source.python.random(), float(torch.rand((), generator=source.torch))]
        return {"index": index, "draws": torch.tensor(draws, dtype=torch.float64)}


class Stream(IterableDataset):
    def __len__(self):
        return COUNT

    def __iter__(self):
        return (Augmented().__getitem__(index) for index in range(COUNT))


class Counting(Sampler):
    """A sampler with state as torchdata has it: of what was drawn."""

    def __init__(self):
        self.epoch, self.drawn = 0, 0

    def __len__(self):
        return COUNT

    def __iter__(self):
        order = torch.randperm(COUNT, generator=torch.Generator().manual_seed(self.epoch)).tolist()
        while self.drawn < COUNT:
            self.drawn += 1
            yield order[self.drawn - 1]
        self.epoch, self.drawn = self.epoch + 1, 0

    def state_dict(self):
        return {"epoch": self.epoch, "drawn": self.drawn}

    def load_state_dict(self, state):
        self.epoch, self.drawn = state["epoch"], state["drawn"]


def generator():
    return torch.Generator().manual_seed(11)


ORDERS = {
    "in order": dict,
    "shuffled by a generator": lambda: {"shuffle": True, "generator": generator()},
    "drop_last": lambda: {"shuffle": True, "generator": generator(), "drop_last": True},
    "sampler with a generator": lambda: {"sampler": WeightedRandomSampler([1.0] * COUNT, 50, generator=generator())},
    "replacement": lambda: {"sampler": RandomSampler(range(COUNT), replacement=True, generator=generator())},
    "rank 1 of 2": lambda: {"sampler": DistributedSampler(range(COUNT), 2, 1)},
    "sampler with state": lambda: {"sampler": Counting()},
    "batch sampler": lambda: {
        "batch_sampler": BatchSampler(SubsetRandomSampler(range(5, COUNT), generator=generator()), 3, False),
        "batch_size": 1,
    },
    "no batching": lambda: {"shuffle": True, "generator": generator(), "batch_size": None},
    "stream": lambda: {"dataset": Stream()},
}


class Dicts(ThreadDataLoader):
    """One whose base seed does not depend on the order of the tests."""

    def __iter__(self):
        torch.manual_seed(2)
        return super().__iter__()


def maker(order, **given):
    def make(*, threads=2, batch_size=BATCH, **options):
        arguments = {"dataset": Augmented(), "batch_size": batch_size} | ORDERS[order]() | given | options
        return Dicts(num_workers=threads, **arguments)

    return make


every_order = pytest.mark.parametrize("order", [order for order in ORDERS if order != "no batching"])


@pytest.fixture
def samples_are_batches(monkeypatch):
    """The battery asks for dicts of arrays or lists."""
    monkeypatch.setattr(battery, "plain", lambda value: torch.as_tensor(value).numpy().copy())


@pytest.mark.one_in(3)
@every_order
def test_threads(order):
    battery.check_threads(maker(order))
    battery.assert_equal(
        battery.epochs(maker(order)(threads=0)), battery.epochs(maker(order)(threads=2)), "in the calling thread"
    )


@pytest.mark.one_in(5)
@every_order
@pytest.mark.parametrize("persistent", [False, True])
def test_resume_at_every_step(order, persistent):
    battery.check_resume_at_every_step(maker(order, persistent_workers=persistent))


@every_order
@pytest.mark.one_in(9)
def test_resume_on_other_threads(order):
    for threads in (0, 1, 8):
        battery.check_resume_at_every_step(maker(order), threads=threads)


def test_resume_in_the_calling_thread():
    for order in ("shuffled by a generator", "sampler with state", "stream"):
        battery.check_resume_at_every_step(lambda order=order, **options: maker(order)(threads=0, **options))


@pytest.mark.long
def test_samples_without_batching(samples_are_batches):
    battery.check_resume_at_every_step(maker("no batching"))


@pytest.mark.one_in(4)
@every_order
def test_resume_twice(order):
    battery.check_resume_twice(maker(order))


@pytest.mark.one_in(2)
@every_order
def test_restored_state_is_the_same(order):
    battery.check_restored_state_is_the_same(maker(order))


@pytest.mark.one_in(2)
@every_order
def test_seek_at_every_step(order):
    """The indices of a pass from there on; and its state holds what is drawn for them."""
    whole = [batch["index"].tolist() for batch in battery.kept(maker(order)())]
    for step in range(len(whole)):
        sought, resumed = maker(order)(), maker(order)()
        sought.seek(0, step)
        assert (sought.epoch, sought.next_step) == (0, step)
        resumed.load_state_dict(json.loads(json.dumps(sought.state_dict())))
        got = battery.kept(sought)
        assert [batch["index"].tolist() for batch in got] == whole[step:]
        battery.assert_equal(battery.kept(resumed), got if step else battery.kept(maker(order)()), f"from {step}")


def test_seek_in_a_later_epoch_of_a_distributed_sampler():
    make = maker("rank 1 of 2")
    fresh, sought = make(), make()
    fresh.set_epoch(3)
    sought.seek(3, 1)
    expected = [batch["index"].tolist() for batch in battery.kept(fresh)]
    assert [batch["index"].tolist() for batch in battery.kept(sought)] == expected[1:]
    assert (sought.epoch, sought.next_step) == (4, 0)


def test_world_sizes():
    """The part of rank r of n by DistributedSampler: joined, they are the samples of world size 1."""
    whole = Dicts(Augmented(24), 8, num_workers=2, sampler=DistributedSampler(range(24), 1, 0))
    expected = [set(batch["index"]) for batch in battery.kept(whole)]
    for world_size in (2, 4):
        ranks = [
            Dicts(
                Augmented(24), 8 // world_size, num_workers=2, sampler=DistributedSampler(range(24), world_size, rank)
            )
            for rank in range(world_size)
        ]
        parts = zip(*map(battery.kept, ranks), strict=True)
        assert [set().union(*(part["index"] for part in step)) for step in parts] == expected


def test_a_shuffled_epoch_without_a_generator_goes_on_in_another_process():
    """The order's seed is in the state, though it came from torch's default generator."""
    for taken in range(1, 4):
        torch.manual_seed(1)
        loader = ThreadDataLoader(Augmented(), BATCH, shuffle=True, num_workers=2)
        expected = battery.kept(loader)
        torch.manual_seed(1)
        state = battery.state_after(ThreadDataLoader(Augmented(), BATCH, shuffle=True, num_workers=2), taken)
        torch.manual_seed(999)
        resumed = ThreadDataLoader(Augmented(), BATCH, shuffle=True, num_workers=3)
        resumed.load_state_dict(state)
        battery.assert_equal(battery.kept(resumed), expected[taken:], f"resumed after {taken}")
        assert len(json.dumps(state)) < 400


def test_skipped_samples_are_not_loaded():
    loaded = []

    class Counts(Augmented):
        def __getitem__(self, index):
            loaded.append(index)
            return {"index": index}

    make = maker("in order", dataset=Counts())
    state = battery.state_after(make(), 2)
    loaded.clear()
    resumed = make()
    resumed.load_state_dict(state)
    list(resumed)
    assert sorted(loaded) == list(range(2 * BATCH, COUNT))


def test_set_epoch_keeps_a_restored_position_of_its_epoch_only():
    def make():
        loader = Dicts(Augmented(), BATCH, num_workers=2, sampler=DistributedSampler(range(COUNT), 2, 0))
        loader.set_epoch(3)
        return loader

    state, whole = battery.state_after(make(), 1), battery.kept(make())
    resumed = make()
    resumed.load_state_dict(state)
    resumed.set_epoch(3)
    assert resumed.epoch == 3
    battery.assert_equal(battery.kept(resumed), whole[1:], "the same epoch")
    resumed.load_state_dict(state)
    resumed.set_epoch(4)
    assert len(list(resumed)) == len(whole)
    fresh = Dicts(Augmented(), BATCH, num_workers=2, sampler=DistributedSampler(range(COUNT), 2, 0))
    fresh.load_state_dict(state)
    assert fresh.sampler.epoch == 3


def test_a_loop_over_epochs_goes_on_where_it_stopped():
    """The loop that resumes begins at `loader.epoch`, also when the state was saved at an epoch's end."""

    def make():
        return Dicts(Augmented(), BATCH, num_workers=2, sampler=DistributedSampler(range(COUNT), 2, 0))

    def train(loader, taken):
        """Stops after so many batches."""
        got = []
        for epoch in range(loader.epoch, 3):
            loader.set_epoch(epoch)
            for batch in loader:
                got += battery.kept([batch])
                if len(got) == taken:
                    return got, json.loads(json.dumps(loader.state_dict()))
        return got, None

    expected, _ = train(make(), None)
    assert len(expected) == 3 * len(make())
    for taken in range(1, len(expected)):
        _, state = train(make(), taken)
        resumed = make()
        resumed.load_state_dict(state)
        battery.assert_equal(train(resumed, None)[0], expected[taken:], f"resumed after {taken}")


def test_a_failed_batch_is_loaded_again_unless_one_after_it_was_received():
    class Fails(Augmented):
        def __getitem__(self, index):
            if index == BATCH:
                raise OSError("gone")
            return {"index": index}

    loader = maker("in order", dataset=Fails())()
    iterator = iter(loader)
    next(iterator)
    with pytest.raises(OSError, match="gone"):
        next(iterator)
    assert loader.state_dict()["batches"] == 1
    next(iterator)
    assert loader.state_dict()["batches"] == 3
    resumed = maker("in order", dataset=Fails())()
    resumed.load_state_dict(loader.state_dict())
    assert len(list(resumed)) == 1
    iterator.close()


def test_an_epoch_that_ended_in_errors_is_over():
    class Fails(Augmented):
        def __getitem__(self, index):
            raise OSError("gone")

    loader = maker("in order", dataset=Fails())()
    iterator = iter(loader)
    for _ in range(len(loader)):
        with pytest.raises(OSError, match="gone"):
            next(iterator)
    assert loader.state_dict()["epoch"] == 0
    assert list(iterator) == []
    assert (loader.state_dict()["epoch"], loader.state_dict()["batches"]) == (1, 0)


def test_a_sampler_that_fails_does_not_end_the_epoch():
    def indices():
        yield from range(BATCH)
        raise OSError("gone")

    class Fails(Sampler):
        def __iter__(self):
            return indices()

    loader = maker("in order", sampler=Fails())()
    iterator = iter(loader)
    next(iterator)
    with pytest.raises(OSError, match="gone"):
        next(iterator)
    assert list(iterator) == []
    assert (loader.state_dict()["epoch"], loader.state_dict()["batches"]) == (0, 1)


def test_another_order_is_noticed():
    class Unseeded(Sampler):
        def __len__(self):
            return COUNT

        def __iter__(self):
            return iter(torch.randperm(COUNT).tolist())

    make = maker("in order", sampler=Unseeded())
    state = battery.state_after(make(), 2)
    resumed = ThreadDataLoader(Augmented(), BATCH, sampler=Unseeded(), num_workers=1)
    resumed.load_state_dict(state)
    with pytest.raises(StateError, match=r"expected a sampler that draws the same 2 batches .*Generator"):
        iter(resumed)


@pytest.mark.parametrize(
    "kind", [int, np.int64, np.float32, str, torch.tensor, lambda at: (at, 7), lambda at: [np.int32(at)]]
)
def test_another_order_is_noticed_whatever_indices_are_made_of(kind):
    class Sampled(Augmented):
        def __getitem__(self, index):
            return {"index": 0}

    def resume(order):
        loader = ThreadDataLoader(Sampled(), BATCH, sampler=[kind(at) for at in order], num_workers=1)
        loader.load_state_dict(state)
        return list(loader)

    first = ThreadDataLoader(Sampled(), BATCH, sampler=[kind(at) for at in range(COUNT)], num_workers=1)
    state = battery.state_after(first, 2)
    assert len(resume(range(COUNT))) == len(first) - 2
    with pytest.raises(StateError, match="got others"):
        resume(range(COUNT)[::-1])


@pytest.mark.parametrize("whole", [np.array, torch.tensor])
def test_another_order_of_whole_batches_of_indices_is_noticed(whole):
    batches = [[0, 1], [2, 3], [4, 5]]
    loader = ThreadDataLoader(Augmented(), batch_sampler=[whole(batch) for batch in batches], num_workers=1)
    state = battery.state_after(loader, 2)
    resumed = ThreadDataLoader(Augmented(), batch_sampler=[whole(batch) for batch in batches[::-1]], num_workers=1)
    resumed.load_state_dict(state)
    with pytest.raises(StateError, match="got others"):
        iter(resumed)


class FailsOnce:
    """An iterator that goes on after a failure, as a reader of records may."""

    def __init__(self, count, failing, error):
        self.left, self.failing, self.error = iter(range(count)), failing, error

    def __iter__(self):
        return self

    def __next__(self):
        number = next(self.left)
        if number == self.failing:
            raise self.error
        return {"number": number}


class Records(IterableDataset):
    def __init__(self, count=COUNT, failing=None, error=None):
        self.args = (count, failing, error)

    def __iter__(self):
        return FailsOnce(*self.args)


def survive(iterator, batches):
    """That many batches; those that fail as None."""
    got = []
    while len(got) < batches:
        try:
            got.append(next(iterator)["number"].tolist())
        except OSError:
            got.append(None)
        except StopIteration:
            break
    return got


@pytest.mark.parametrize("workers", [0, 1])
def test_a_failure_that_was_survived_does_not_shift_a_resumed_stream(workers):
    def load():
        return ThreadDataLoader(Records(COUNT, 5, OSError("damaged")), 4, num_workers=workers)

    expected = survive(iter(load()), 100)
    assert expected[1] is None
    loader = load()
    iterator = iter(loader)
    survive(iterator, 3)
    resumed = load()
    resumed.load_state_dict(loader.state_dict())
    assert survive(iter(resumed), 100) == expected[3:]
    iterator.close()


def test_a_stream_that_is_shorter_than_its_state_is_noticed():
    state = battery.state_after(ThreadDataLoader(Records(), 4, num_workers=1), 3)
    resumed = ThreadDataLoader(Records(5), 4, num_workers=1)
    resumed.load_state_dict(state)
    with pytest.raises(StateError, match=r"expected an iterable dataset of at least the 3 batches .*, got 2"):
        list(resumed)


def test_a_stream_that_breaks_while_it_is_read_again_says_why():
    """A generator is over once it has raised."""

    class Breaks(IterableDataset):
        def __iter__(self):
            yield from ({"number": number} for number in range(6))
            raise OSError("gone")

    state = battery.state_after(ThreadDataLoader(Records(), 4, num_workers=1), 3)
    resumed = ThreadDataLoader(Breaks(), 4, num_workers=1)
    resumed.load_state_dict(state)
    with pytest.raises(OSError, match="gone"):
        next(iter(resumed))


@pytest.mark.parametrize("other", [{"batch_size": 4}, {"dataset": Augmented(9)}, {"sampler": range(COUNT)[::-1]}])
def test_another_loader_is_noticed(other):
    state = battery.state_after(maker("in order")(), 2)
    resumed = maker("in order")(**other)
    resumed.load_state_dict(state)
    with pytest.raises(StateError, match="got others"):
        iter(resumed)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda state: [], "state: expected the dict that state_dict() gave, got list"),
        (lambda state: state | {"version": 9}, "state: expected version 1 of a ThreadDataLoader's state, got 9"),
        (
            lambda state: state | {"extra": 1},
            "state: expected the keys that state_dict() gave, got missing [] and unknown ['extra']",
        ),
        (lambda state: state | {"batches": -1}, "state['batches']: expected an int from 0 to 2**64 - 1, got -1"),
        (
            lambda state: state | {"base_seed": "7"},
            "state['base_seed']: expected an int from 0 to 2**64 - 1 or None, got '7'",
        ),
        (lambda state: state | {"generators": [7]}, "state['generators']: expected a list of str, got [7]"),
        (lambda state: state | {"generators": []}, "state['generators']: expected the states of 1 generators, as"),
        (
            lambda state: state | {"generators": ["AAAA"]},
            "state['generators']: expected the states of 1 generators, as",
        ),
        (lambda state: state | {"sampler": {}}, "state['sampler']: expected the state of none, as in this loader"),
    ],
)
def test_what_is_no_state(change, message):
    make = maker("shuffled by a generator")
    with pytest.raises(StateError, match=re.escape(message)):
        make().load_state_dict(change(make().state_dict()))


def test_a_wrappers_marks_are_left_alone():
    """Accelerate adds this one."""
    loader = maker("in order")()
    loader.load_state_dict(loader.state_dict() | {"_iterator_finished": False})
    assert len(list(loader)) == len(loader)


def test_the_order_is_dataloaders_after_a_resume():
    state = battery.state_after(maker("shuffled by a generator")(), 1)
    resumed = maker("shuffled by a generator")()
    resumed.load_state_dict(state)
    got = [batch["index"].tolist() for _ in range(3) for batch in resumed]
    theirs = DataLoader(Augmented(), BATCH, shuffle=True, generator=generator())
    assert got == [batch["index"].tolist() for _ in range(3) for batch in theirs][1:]


def test_a_state_saved_before_the_first_batch_keeps_the_order():
    """Drawn from torch's default generator, which nobody restores; threads have begun to load in that order."""
    loader = ThreadDataLoader(list(range(60)), 4, shuffle=True, num_workers=2)
    iterator = iter(loader)
    state = json.loads(json.dumps(loader.state_dict()))
    whole = [batch.tolist() for batch in iterator]
    torch.manual_seed(17)
    loader.load_state_dict(state)
    assert [batch.tolist() for batch in loader] == whole
