"""ThreadDataLoader gives what torch's DataLoader gives, and its errors say whose sample it was."""

from __future__ import annotations

import copy
import inspect
import pickle
import re
import threading
import traceback
from collections import UserDict, UserList, deque, namedtuple
from collections.abc import Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import pytest
import torch
from processes import DEADLINE_S, own_threads
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    Subset,
    SubsetRandomSampler,
    WeightedRandomSampler,
    get_worker_info,
)

from headrace.dropins.thread_loader.fetching import pin
from headrace.dropins.thread_loader.thread_dataloader import ThreadDataLoader
from headrace.errors import UsageError

COUNT = 23
Pair = namedtuple("Pair", "image label")  # as users write them


class Numbers(Dataset):
    """What default_collate has branches for."""

    def __init__(self, count=COUNT):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return {
            "tensor": torch.full((2, 3), index),
            "pair": Pair(np.full(2, index, np.float32), index),
            "mapping": UserDict(text=f"sample {index}", scalar=np.float64(index)),
            "list": [float(index), (index, bytes([index]))],
        }


class Batches(Numbers):
    def __getitems__(self, indices):
        return [torch.tensor([index, len(indices)]) for index in indices]


class Stream(IterableDataset):
    def __init__(self, count=COUNT):
        self.count = count

    def __iter__(self):
        return (torch.tensor([number]) for number in range(self.count))


class SizedStream(Stream):
    def __len__(self):
        return self.count


def same(mine, theirs):
    """Bit for bit, types of containers included."""
    assert type(mine) is type(theirs)
    if isinstance(theirs, torch.Tensor):
        assert mine.dtype == theirs.dtype
        assert mine.stride() == theirs.stride()
        assert torch.equal(mine, theirs)
    elif isinstance(theirs, dict | UserDict):
        assert list(mine) == list(theirs)
        for name in theirs:
            same(mine[name], theirs[name])
    elif isinstance(theirs, list | tuple):
        assert len(mine) == len(theirs)
        for one, other in zip(mine, theirs, strict=True):
            same(one, other)
    else:
        assert mine == theirs


def both(workers, dataset, epochs=2, seed=3, torch_workers=0, **options):
    """Batches of both loaders, and what torch's default generator gives after each epoch."""
    options = {key: value() if key.endswith("sampler") else value for key, value in options.items()}
    runs = []
    for make, count in ((ThreadDataLoader, workers), (DataLoader, torch_workers)):
        torch.manual_seed(seed)
        loader = make(dataset, num_workers=count, **copy.deepcopy(options))
        runs.append([[list(loader), torch.rand(1)] for _ in range(epochs)])
    return runs


CASES = {
    "in order": {"batch_size": 4},
    "shuffled": {"batch_size": 4, "shuffle": True},
    "shuffled by a generator": {"batch_size": 4, "shuffle": True, "generator": torch.Generator().manual_seed(5)},
    "drop_last": {"batch_size": 4, "shuffle": True, "drop_last": True},
    "one batch": {"batch_size": 100},
    "no batching": {"batch_size": None, "shuffle": True},
    "sampler": {"batch_size": 5, "sampler": lambda: SubsetRandomSampler(range(3, 20))},
    "replacement": {"batch_size": 5, "sampler": lambda: RandomSampler(range(COUNT), replacement=True, num_samples=70)},
    "replacement by a generator": {
        "batch_size": 5,
        "sampler": lambda: RandomSampler(
            range(COUNT), replacement=True, num_samples=70, generator=torch.Generator().manual_seed(5)
        ),
    },
    "weighted": {"batch_size": 5, "sampler": lambda: WeightedRandomSampler([1.0] * COUNT, 40)},
    "rank 1 of 3": {"batch_size": 3, "sampler": lambda: DistributedSampler(range(COUNT), 3, 1)},
    "batch_sampler": {"batch_sampler": lambda: BatchSampler(SequentialSampler(range(COUNT)), 6, False)},
    "lists of lists": {"batch_sampler": lambda: [[3, 1], [4], [1, 5, 9]]},
    "sampler without batching": {"batch_size": None, "sampler": lambda: [2, 7, 1]},
    "collate_fn": {"batch_size": 4, "collate_fn": lambda samples: [sample["pair"].label for sample in samples]},
}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("workers", [0, 1, 3])
@pytest.mark.parametrize("options", CASES.values(), ids=CASES)
def test_the_same_batches_as_dataloader(workers, options):
    mine, theirs = both(workers, Numbers(), **options)
    same(mine, theirs)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("workers", [0, 1, 3])
@pytest.mark.parametrize("options", [{"batch_size": 4}, {"batch_size": None}, {"batch_size": 4, "drop_last": True}])
@pytest.mark.parametrize("dataset", [Stream(), SizedStream(), Stream(0)], ids=["stream", "with length", "empty"])
def test_iterable_datasets_are_read_once(workers, options, dataset):
    same(*both(workers, dataset, **options))


@pytest.mark.parametrize("workers", [0, 3])
@pytest.mark.parametrize("dataset", [Batches(), Subset(Numbers(), range(7, 18)), Subset(Batches(), range(7, 18))])
def test_datasets_that_load_batches(workers, dataset):
    same(*both(workers, dataset, batch_size=4, shuffle=True))


@pytest.mark.parametrize("workers", [0, 2])
def test_an_empty_dataset(workers):
    same(*both(workers, Numbers(0), batch_size=4))


def test_the_same_batches_as_dataloaders_processes():
    """Persistent ones too, whose seed is drawn once."""
    for persistent in (False, True):
        options = {"batch_size": 4, "shuffle": True, "persistent_workers": persistent}
        same(*both(2, Numbers(), epochs=3, torch_workers=2, **options))


@pytest.mark.long
def test_large_batches_are_the_same():
    """Those whose memory is used again."""
    images = torch.randint(0, 256, (12, 3, 300, 200), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    arrays = images.numpy().astype(np.float32)
    dataset = [(images[i], {"array": arrays[i], "sideways": images[i].permute(1, 2, 0)}, i) for i in range(12)]
    mine, theirs = both(2, dataset, batch_size=8, shuffle=True)
    same(mine, theirs)


@pytest.mark.parametrize(
    "sample",
    [
        torch.eye(3).to_sparse(),
        torch.nested.nested_tensor([torch.ones(2)], layout=torch.jagged),
        torch.ones(2, device="meta"),
    ],
    ids=["sparse", "jagged", "meta"],
)
def test_tensors_that_lie_elsewhere_are_left_to_torch(sample):
    """Batches, or torch's own words for why there are none."""
    outcomes = []
    for make in (ThreadDataLoader, DataLoader):
        try:
            outcomes.append(next(iter(make([sample, sample], 2, num_workers=0))).device)
        except RuntimeError as error:
            outcomes.append(str(error))
    assert outcomes[0] == outcomes[1]


def test_a_batch_belongs_to_whoever_holds_it():
    dataset = [torch.full((1 << 20,), i, dtype=torch.uint8) for i in range(8)]
    loader = ThreadDataLoader(dataset, batch_size=1, num_workers=2)
    held = [batch for _ in range(3) for batch in loader]
    assert [int(batch.max()) for batch in held] == list(range(8)) * 3
    assert len({batch.data_ptr() for batch in held}) == 24
    addresses = set()
    for _ in range(3):
        for batch in loader:
            addresses.add(batch.data_ptr())
            del batch
    assert len(addresses) <= 2 * 2 + 2 + 2, "memory is not used again"


def test_len_attributes_and_class():
    loader = ThreadDataLoader(Numbers(), 4, num_workers=2, drop_last=True, timeout=9, prefetch_factor=3)
    assert isinstance(loader, DataLoader)
    assert len(loader) == len(iter(loader)) == 5
    assert (loader.batch_size, loader.num_workers, loader.drop_last, loader.timeout) == (4, 2, True, 9)
    assert (loader.prefetch_factor, loader.persistent_workers, loader.pin_memory) == (3, False, False)
    assert type(loader.sampler) is SequentialSampler
    assert type(loader.batch_sampler) is BatchSampler
    assert loader.collate_fn is torch.utils.data.default_collate
    assert loader.generator is None
    assert loader.multiprocessing_context is None


def test_the_signature_is_dataloaders():
    mine, theirs = (list(inspect.signature(one).parameters.values()) for one in (ThreadDataLoader, DataLoader))
    mine = [
        one for one in mine if one.name in {other.name for other in theirs} or one.name != "in_order"
    ]  # from 2.6 on
    assert [(one.name, one.kind) for one in mine] == [(one.name, one.kind) for one in theirs]
    differing = [one.name for one, other in zip(mine, theirs, strict=True) if one.default != other.default]
    assert differing == ["num_workers"]


def test_frameworks_can_make_it_again():
    """As Accelerate and Lightning do, from its class and attributes, with a sampler of their own."""
    loader = ThreadDataLoader(Numbers(), 4, shuffle=True, num_workers=2, generator=torch.Generator())
    names = inspect.signature(type(loader)).parameters.keys() - {"shuffle", "sampler", "batch_sampler"}
    given = {name: getattr(loader, name) for name in names}
    again = type(loader)(**given, sampler=DistributedSampler(loader.dataset, 2, 0))
    assert (again.num_workers, again.batch_size, again.generator) == (2, 4, loader.generator)
    assert [len(batch["tensor"]) for batch in again] == [4, 4, 4]


def test_the_default_is_the_cores_available(monkeypatch):
    monkeypatch.setattr("headrace.dropins.thread_loader.thread_dataloader.default_threads", lambda: 7)
    loader = ThreadDataLoader(Numbers())
    assert (loader.num_workers, loader.prefetch_factor) == (7, 2)


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda loader: pickle.loads(pickle.dumps(loader))])
def test_copies(again):
    loader = ThreadDataLoader(Numbers(), 4, num_workers=2, persistent_workers=True)
    expected = list(loader)
    iterator = iter(loader)
    next(iterator)
    same(list(again(loader)), expected)
    del loader, iterator


# --- threads ---


def test_samples_of_one_batch_are_loaded_side_by_side():
    together = threading.Barrier(3)

    class Waits(Numbers):
        def __getitem__(self, index):
            together.wait(DEADLINE_S)
            return index

    assert [batch.tolist() for batch in ThreadDataLoader(Waits(6), 3, num_workers=3)] == [[0, 1, 2], [3, 4, 5]]


def test_a_slow_sample_holds_up_one_thread():
    others, asked = threading.Event(), []

    class Slow(Numbers):
        def __getitem__(self, index):
            asked.append(index)
            if index == 0:
                assert others.wait(DEADLINE_S)
            if index == 7:
                others.set()
            return index

    assert next(iter(ThreadDataLoader(Slow(8), 2, num_workers=2))).tolist() == [0, 1]


def test_no_more_than_prefetch_factor_batches_are_under_way():
    loaded = []

    class Counts(Numbers):
        def __getitem__(self, index):
            loaded.append(index)
            return index

    loader = ThreadDataLoader(Counts(100), 2, num_workers=2, prefetch_factor=3, persistent_workers=True)
    iterator = iter(loader)
    for taken in range(3):
        assert len(loaded) <= 2 * (6 + taken)
        next(iterator)
    iterator.close()


def test_the_samples_see_their_worker_and_our_thread():
    class Asks(Numbers):
        def __getitem__(self, index):
            info = get_worker_info()
            return "nobody" if info is None else f"{info.id} of {info.num_workers}", threading.current_thread().name

    seen = [sample for batch in ThreadDataLoader(Asks(), 4, num_workers=2, collate_fn=list) for sample in batch]
    assert set(seen) <= {("0 of 2", "headrace-loader-0"), ("1 of 2", "headrace-loader-1")}
    assert {info for batch in ThreadDataLoader(Asks(), 4, num_workers=0) for info in batch[0]} == {"nobody"}
    here = threading.current_thread().name
    assert {name for batch in ThreadDataLoader(Asks(), 4, num_workers=0) for name in batch[1]} == {here}


def test_an_iterable_dataset_is_read_by_worker_0_of_1():
    """As its documentation shards one: by `get_worker_info()`, which is not None where there are workers."""
    told = []

    class Sharded(IterableDataset):
        start, end = 0, 12

        def __iter__(self):
            info = get_worker_info()
            return iter(range(self.start + info.id, self.end, info.num_workers))

    def init(worker):
        info = get_worker_info()
        method = getattr(info, "worker_method", "thread")
        told.append((worker, info.id, info.num_workers, info.dataset is dataset, method))
        seeds.append(info.seed)

    dataset, seeds = Sharded(), []
    torch.manual_seed(5)
    loader = ThreadDataLoader(dataset, 4, num_workers=3, worker_init_fn=init)
    assert [batch.tolist() for batch in loader] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    assert told == [(0, 0, 1, True, "thread")]
    torch.manual_seed(5)
    assert seeds == [torch.empty((), dtype=torch.int64).random_().item()], "as DataLoader seeds its first worker"
    assert get_worker_info() is None, "nothing of it is seen in other threads"


def test_shards_cut_for_several_workers_are_not_lost_in_silence():
    """One thread reads, as worker 0: a list of shards for four workers would be read to a quarter."""

    class Shards(IterableDataset):
        def __iter__(self):
            return iter(range(100)[get_worker_info().id :: 4])

    with pytest.warns(UserWarning, match="shards that were cut for 4 workers were read in part; cut them"):
        list(ThreadDataLoader(Shards(), 5, num_workers=4))
    assert len(list(ThreadDataLoader(Shards(), 5, num_workers=1))) == 5, "nothing to say: it was asked for"


def test_processes_of_a_dataloader_keep_their_worker_info():
    """A ThreadDataLoader was used before, and may be inside."""
    list(ThreadDataLoader(Numbers(), 4, num_workers=1))
    told = [info for batch in DataLoader(_Told(), 1, num_workers=2, multiprocessing_context="fork") for info in batch]
    assert sorted(told) == ["0 of 2, multiprocessing", "1 of 2, multiprocessing"]


def collate_of_ones_own(samples):
    return torch.utils.data.default_collate(samples)


@pytest.mark.parametrize("collate", [None, collate_of_ones_own])
def test_no_batch_goes_through_shared_memory(collate):
    """default_collate makes shared tensors wherever get_worker_info() is not None."""
    for dataset in (_Plain(), Stream()):
        batches = list(ThreadDataLoader(dataset, 8, num_workers=2, collate_fn=collate))
        assert not any(batch.is_shared() for batch in batches)


class _Told(Dataset):
    def __len__(self):
        return 2

    def __getitem__(self, index):
        info = get_worker_info()
        return f"{info.id} of {info.num_workers}, {getattr(info, 'worker_method', 'multiprocessing')}"


class _Plain(Dataset):
    def __len__(self):
        return COUNT

    def __getitem__(self, index):
        return index


def test_it_is_generic():
    class Mine(ThreadDataLoader[torch.Tensor]):
        pass

    assert torch.cat(list(Mine(_Plain(), 8, num_workers=1))).tolist() == list(range(COUNT))


def test_collate_runs_in_a_worker():
    names = set()
    loader = ThreadDataLoader(Numbers(), 4, num_workers=2, collate_fn=lambda _: names.add(threading.current_thread()))
    list(loader)
    assert threading.main_thread() not in names


@pytest.mark.parametrize("persistent", [False, True])
def test_worker_init_fn_runs_once_in_each_thread(persistent):
    local, begun = threading.local(), []

    def init(worker):
        local.worker = worker
        begun.append(worker)

    class Uses(Numbers):
        def __getitem__(self, index):
            return local.worker

    options = {"num_workers": 3, "worker_init_fn": init, "persistent_workers": persistent}
    loader = ThreadDataLoader(Uses(), 4, **options)
    for _ in range(2):
        assert {int(worker) for batch in loader for worker in batch} <= {0, 1, 2}
    assert sorted(begun) == [0, 1, 2] if persistent else sorted(begun) == [0, 0, 1, 1, 2, 2]
    assert (own_threads() != []) is persistent
    del loader


def in_thread(work):
    results = []
    thread = threading.Thread(target=lambda: results.append(work()))
    thread.start()
    thread.join()
    return results[0]


@pytest.mark.parametrize("consumer", [lambda work: work(), in_thread], ids=["main thread", "a new thread"])
def test_torchs_own_threads_are_as_before(consumer):
    """The workers use one each; nobody else loses any."""
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        loader = ThreadDataLoader(Numbers(), 4, num_workers=2, collate_fn=lambda _: torch.get_num_threads())
        assert set(consumer(lambda: list(loader))) == {1}
        assert (torch.get_num_threads(), in_thread(torch.get_num_threads)) == (3, 3)
    finally:
        torch.set_num_threads(before)


def test_no_thread_is_left_where_one_cannot_be_had(monkeypatch):
    start, started = threading.Thread.start, []

    def refuse_the_second(thread):
        if started:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    loader = ThreadDataLoader(Numbers(), 4, num_workers=2)
    monkeypatch.setattr(threading.Thread, "start", refuse_the_second)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        iter(loader)
    assert own_threads() == []


def test_set_epoch_reaches_the_sampler():
    sampler = DistributedSampler(range(COUNT), 2, 0)
    loader = ThreadDataLoader(Numbers(), 4, sampler=sampler, num_workers=1)
    loader.set_epoch(5)
    assert (sampler.epoch, loader.epoch) == (5, 5)
    plain = ThreadDataLoader(Numbers(), 4, num_workers=1)
    plain.set_epoch(3)
    list(plain)
    assert plain.epoch == 4
    with pytest.raises(UsageError, match=r"set_epoch: expected an int of at least 0, got -1"):
        plain.set_epoch(-1)


# --- errors ---


class Fails(Numbers):
    """Samples 5 and 6 fail; the later one first."""

    def __init__(self):
        super().__init__()
        self.six = threading.Event()

    def __getitem__(self, index):
        if index == 5:
            assert self.six.wait(DEADLINE_S)
            raise KeyError("five")
        if index == 6:
            self.six.set()
            raise ValueError("six")
        return index


def test_an_error_comes_at_its_batch_and_the_next_batch_after_it():
    iterator = iter(ThreadDataLoader(Fails(), 4, num_workers=3))
    assert next(iterator).tolist() == [0, 1, 2, 3]
    with pytest.raises(KeyError) as caught:
        next(iterator)
    assert caught.value.args == ("five",), "the first of the batch, as DataLoader has it"
    assert caught.value.__notes__ == ["in dataset[5], sample 1 of batch 1"]
    assert "__getitem__" in [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert next(iterator).tolist() == [8, 9, 10, 11]
    assert len(list(iterator)) == 3


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    ("where", "note"),
    [
        ("dataset", r"in dataset\[3\], sample 1 of batch 1"),
        ("__getitems__", r"in dataset\[\[2, 3\]\], batch 1"),
        ("stream", "in the iterable dataset, batch 1"),
        ("collate_fn", "in collate_fn, batch 1"),
        ("sampler", "in the sampler, batch 1"),
    ],
)
def test_errors_name_where_they_come_from(workers, where, note):
    def fail_at(name, value, at):
        if name == where and value == at:
            raise OSError("gone")
        return value

    class Whole(Numbers):
        def __getitem__(self, index):
            return fail_at("dataset", index, 3)

    class Parts(Whole):
        def __getitems__(self, indices):
            return fail_at("__getitems__", indices, [2, 3])

    class Streamed(Stream):
        def __iter__(self):
            return (fail_at("stream", number, 3) for number in range(6))

    dataset = {"__getitems__": Parts, "stream": Streamed}.get(where, Whole)(6)
    order = {} if where == "stream" else {"sampler": (fail_at("sampler", index, 2) for index in range(6))}
    loader = ThreadDataLoader(
        dataset, 2, num_workers=workers, collate_fn=lambda samples: fail_at("collate_fn", samples, [2, 3]), **order
    )
    iterator = iter(loader)
    assert next(iterator) == [0, 1]
    with pytest.raises(OSError, match="gone") as caught:
        next(iterator)
    assert len(caught.value.__notes__) == 1
    assert re.search(note, caught.value.__notes__[0])


@pytest.mark.parametrize("workers", [0, 2])
def test_stop_iteration_does_not_end_the_epoch(workers):
    class Stops(Numbers):
        def __getitem__(self, index):
            return next(iter([])) if index == 5 else index

    iterator = iter(ThreadDataLoader(Stops(), 4, num_workers=workers))
    next(iterator)
    with pytest.raises(RuntimeError, match=r"^StopIteration raised in dataset\[5\], sample 1 of batch 1$") as caught:
        next(iterator)
    assert isinstance(caught.value.__cause__, StopIteration)
    assert len(list(iterator)) == 4


@pytest.mark.parametrize("kind", [LookupError, TimeoutError, UsageError])
def test_worker_init_fn_that_fails(kind):
    """Before the first batch, though another thread could load it."""
    threads = torch.get_num_threads()

    def init(worker):
        if worker == 1:
            raise kind("no licence")

    loader = ThreadDataLoader(Numbers(), 4, num_workers=2, worker_init_fn=init, persistent_workers=True)
    for at in range(1, 3):
        with pytest.raises(kind, match="no licence") as caught:
            iter(loader)
        assert caught.value.__notes__ == ["in worker_init_fn(1)"]
        assert own_threads() == []
        assert torch.get_num_threads() == threads, f"failure {at}"


def test_worker_init_fn_that_stops():
    loader = ThreadDataLoader(Numbers(), 4, num_workers=1, worker_init_fn=lambda _: next(iter([])))
    with pytest.raises(RuntimeError, match=r"^StopIteration raised in worker_init_fn\(0\)$"):
        iter(loader)


def test_timeout():
    go_on = threading.Event()

    class Hangs(Numbers):
        def __getitem__(self, index):
            if index in (5, 6):
                assert go_on.wait(DEADLINE_S)
            return index

    loader = ThreadDataLoader(Hangs(), 4, num_workers=3, timeout=DEADLINE_S)
    iterator = iter(loader)
    next(iterator)
    loader.timeout = 0.05
    waits = r"it waits for dataset\[5\], sample 1 of batch 1; dataset\[6\], sample 2 of batch 1\. Raise timeout=, or"
    for _ in range(2):
        with pytest.raises(RuntimeError, match=r"^DataLoader timed out after 0\.05 seconds; " + waits):
            next(iterator)
    go_on.set()
    loader.timeout = DEADLINE_S
    assert next(iterator).tolist() == [4, 5, 6, 7]
    iterator.close()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_workers": -1}, r"num_workers option should be non-negative"),
        ({"num_workers": 2, "prefetch_factor": -1}, r"prefetch_factor option should be non-negative"),
        ({"timeout": -1}, "timeout option should be non-negative"),
        ({"num_workers": 2, "multiprocessing_context": "bad"}, "multiprocessing_context option should specify a valid"),
        ({"num_workers": 0, "multiprocessing_context": "fork"}, r"multi-process loading \(num_workers > 0\), but got"),
        ({"sampler": [1], "shuffle": True}, "sampler option is mutually exclusive with shuffle"),
    ],
)
def test_arguments_that_do_not_fit(options, message):
    with pytest.raises(ValueError, match=message):
        ThreadDataLoader(Numbers(), **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"multiprocessing_context": "fork"}, "^multiprocessing_context: the workers are threads, .*; leave it out"),
        ({"pin_memory_device": "cuda:1", "in_order": False}, "^pin_memory_device, in_order=False: .*; leave it out"),
    ],
)
def test_what_means_nothing_to_threads_is_ignored_with_a_warning(options, message):
    with pytest.warns(UserWarning, match=message) as told:
        loader = ThreadDataLoader(_Plain(), 8, num_workers=2, **options)
    assert told[0].filename == __file__
    assert torch.cat(list(loader)).tolist() == list(range(COUNT))


# --- pinned memory ---


class Pinnable:
    def __init__(self, pinned=False):
        self.pinned = pinned

    def pin_memory(self):
        return Pinnable(True)

    def __eq__(self, other):
        return self.pinned == other.pinned


class Named(dict):
    """A mapping that holds more than its items."""


class Fixed(tuple):
    __slots__ = ()


class Unmakeable(Sequence):
    """Is not made from its items."""

    def __init__(self, first, second):
        self.items = [first, second]

    def __len__(self):
        return 2

    def __getitem__(self, at):
        return self.items[at]


class PinnableList(list):
    """A container that knows how to be pinned."""

    def pin_memory(self):
        return [*self, "pinned"]


class Output(dict):
    """As transformers' ModelOutput, which DataLoader cannot pin: it has no `update`."""

    def update(self, *_, **__):
        raise RuntimeError("no update")


@dataclass(frozen=True)
class Labelled:
    image: object
    label: str


@pytest.mark.parametrize(
    "batch",
    [
        Pinnable(),
        {"a": Pinnable(), "b": [Pinnable(), "text", b"bytes", 3]},
        Pair(Pinnable(), (Pinnable(), None)),
        UserDict(a=Pinnable()),
        MappingProxyType({"a": Pinnable()}),
        Fixed([Pinnable(), 1]),
        deque([Pinnable()]),
        UserList([Pinnable(), 2]),
        Unmakeable(Pinnable(), 1),
        PinnableList(["a"]),
    ],
    ids=lambda batch: type(batch).__name__,
)
def test_batches_are_pinned_as_dataloader_does(batch):
    its_pin = torch.utils.data._utils.pin_memory.pin_memory
    if type(its_pin((1,))) is list and isinstance(batch, (Pair, Fixed, PinnableList)):
        pytest.skip("this torch makes lists of tuples, and of lists that pin themselves")
    same(pin(batch), its_pin(batch))


def test_more_is_pinned_than_by_dataloader():
    """Dataclasses, and mappings without `update`; what holds nothing to pin stays what it is."""
    assert pin(Labelled(Pinnable(), "a")) == Labelled(Pinnable(True), "a")
    assert type(pin(Output(a=Pinnable()))) is Output
    assert pin(Output(a=Pinnable()))["a"].pinned
    numbers = range(3)
    assert pin(numbers) is numbers


def test_what_a_mapping_holds_beside_its_items_is_kept():
    batch = Named(a=Pinnable())
    batch.name = "left"
    assert (pin(batch).name, pin(batch)["a"].pinned, batch["a"].pinned) == ("left", True, False)


@pytest.mark.cuda
@pytest.mark.parametrize("workers", [0, 2])
def test_pin_memory(workers):
    loader = ThreadDataLoader(Numbers(), 4, num_workers=workers, pin_memory=True)
    batches = list(loader)
    assert all(batch["tensor"].is_pinned() and batch["pair"].image.is_pinned() for batch in batches)
    assert torch.cat([batch["pair"].label for batch in batches]).tolist() == list(range(COUNT))


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without CUDA")
def test_pin_memory_without_cuda():
    loader = ThreadDataLoader(Numbers(), 4, num_workers=1, pin_memory=True)
    with pytest.warns(UserWarning, match=r"pin_memory=True: no CUDA device is found, so batches are not pinned"):
        batches = list(loader)
    assert len(batches) == len(loader)
