"""However a pass of any loader ends, it leaves no thread, process, descriptor or memory, and nothing hangs."""

from __future__ import annotations

import gc
import hashlib
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import battery
import map_functions
import mixture_data
import pytest
import torch
from loader_data import load_crops, write_tar
from processes import DEADLINE_S, eventually, in_fork, map_processes, nothing_left, nothing_runs, own_threads
from torch.utils.data import Dataset, IterableDataset

import headrace as hr
from headrace.errors import UsageError
from headrace.loader.batch_memory import SharedFile
from headrace.system.forks import forget_ended_forks

WORKERS = 2


class Case(NamedTuple):
    """Loader, what its passes use, and where a function of the user's runs in one of its threads."""

    load: Callable[..., Any]
    """Make a loader; `call`: function that batches, or samples, pass through."""
    threads: set[str]
    processes: int = 0
    by_pipes: bool = False
    ends: bool = True
    forks: bool = True
    """True if a fork can take over a pass."""


class Numbers(Dataset[Any]):
    def __len__(self) -> int:
        return 24

    def __getitem__(self, index: int) -> Any:
        return {"number": torch.tensor([index])}


class Endless(IterableDataset[Any]):
    def __iter__(self) -> Any:
        number = 0
        while True:
            yield {"number": torch.tensor([number])}
            number += 1


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """Of a tar, whose reader keeps a descriptor open, and of two sources to mix."""
    root = tmp_path_factory.mktemp("leaving")
    return {"photos": hr.open(write_tar(root / "photos.tar")), "mixed": mixture_data.write_places(root)}


def by_loader(hook: str | None, **always: Any) -> Callable[..., Any]:
    def load(places, call=None, **options):
        called = {} if call is None else {hook or "map": call}
        return load_crops(places["photos"], **({"view": hr.RandomResizedCrop(40)} | always | called | options))

    return load


def by_mixture(batches: str) -> Callable[..., Any]:
    def load(places, call=None, **options):
        called = {} if call is None else {"map": call}
        return mixture_data.factory(places["mixed"], batches, remainder="wrap", **called)(**options)

    return load


def by_threads(dataset: Any, **always: Any) -> Callable[..., Any]:
    def load(_, call=None):
        collate = torch.utils.data.default_collate
        called = {} if call is None else {"collate_fn": lambda samples: call(collate(samples), None)}
        return hr.ThreadDataLoader(dataset, batch_size=4, num_workers=2, **always, **called)

    return load


CORE = {"headrace-0", "headrace-1", "headrace-feed"}
OWN_WORKERS = {"map": map_functions.no_pid, "map_workers": WORKERS}
LOADER_THREADS = {"headrace-loader-0", "headrace-loader-1"}
ONE_THREAD = {"headrace-loader-0"}
CASES = {
    "core": Case(by_loader(None), CORE),
    "clips": Case(by_loader("batch_map", fields={"clips": hr.Images(count=2, source="imag[e]")}), CORE),
    "map": Case(by_loader("map", map=map_functions.unchanged), {*CORE, "headrace-python"}),
    "workers": Case(by_loader("batch_map", **OWN_WORKERS), {"headrace-feed", "headrace-map"}, WORKERS),
    "workers, pipes": Case(by_loader("batch_map", **OWN_WORKERS), {"headrace-feed", "headrace-map"}, WORKERS, True),
    "mixture, one source": Case(by_mixture("one-source"), {"headrace-feed"}),
    "mixture, mixed": Case(by_mixture("mixed"), {"headrace-feed"}),
    "threads": Case(by_threads(Numbers()), LOADER_THREADS, forks=False),
    "threads, persistent": Case(by_threads(Numbers(), persistent_workers=True), LOADER_THREADS, forks=False),
    "endless": Case(by_threads(Endless()), ONE_THREAD, ends=False, forks=False),
    "endless, persistent": Case(by_threads(Endless(), persistent_workers=True), ONE_THREAD, ends=False, forks=False),
}


@pytest.fixture(params=CASES)
def case(request, monkeypatch):
    chosen = CASES[request.param]
    if chosen.by_pipes:
        monkeypatch.setattr(SharedFile, "make", lambda: None)
    return chosen


@pytest.fixture
def make(case, places):
    """Make a loader of the case. After the test nothing of it is left."""
    with nothing_left():
        yield lambda call=None, **options: case.load(places, call, **options)
        assert eventually(lambda: map_processes() == [])
        forget_ended_forks()  # each has a descriptor, which is closed at the next fork


def first(loader):
    """The first batches of a pass, and its end if it has one."""
    return battery.kept(batch for batch, _ in zip(loader, range(50), strict=False))


def test_threads_and_processes_work_while_a_pass_goes_on(case, make):
    """What the other tests look for is there to be found."""
    iterator = iter(make())
    next(iterator)
    assert eventually(lambda: all(any(name.startswith(each) for name in own_threads()) for each in case.threads))
    assert len(map_processes()) == case.processes
    iterator.close()


def test_the_end_of_an_epoch(case, make):
    loader = make()
    iterator = iter(loader)
    if case.ends:
        assert len(list(iterator)) == len(loader)
        assert next(iterator, "ended") == "ended"
    del loader, iterator
    assert eventually(nothing_runs)


def test_break(case, make):
    loader = make()
    for _ in loader:
        break
    if case.ends:
        assert len(list(loader)) == len(loader)
    del loader
    assert eventually(nothing_runs)


def test_an_exception_in_the_loop(make):
    def train():
        for batch in make():
            1 / len(next(iter(batch.values()))[:0])

    with pytest.raises(ZeroDivisionError):
        train()
    gc.collect()
    assert eventually(nothing_runs)


@pytest.mark.parametrize("begun", [False, True], ids=["at once", "after a batch"])
def test_closing_ends_a_pass_and_may_be_repeated(make, begun):
    iterator = iter(make())
    if begun:
        next(iterator)
    iterator.close()
    iterator.close()
    assert next(iterator, "ended") == "ended"


def test_the_garbage_collector_finds_a_loader(make):
    iterator = iter(make())
    next(iterator)
    cycle = {"iterator": iterator}
    cycle["self"] = cycle
    del iterator, cycle
    gc.collect()
    assert eventually(nothing_runs)


def test_the_garbage_collector_finds_a_loader_in_its_own_thread(make):
    """The thread that would have to be joined, and may wait for processes, is the one that collects."""
    holder, dropped, started = {}, threading.Event(), threading.Event()

    def let_go(value, rng):
        if started.wait(DEADLINE_S) and holder.pop("iterator", None) is not None:
            gc.collect()
            dropped.set()
        return value

    iterator = iter(make(let_go))
    holder["iterator"] = iterator
    iterator.cycle = iterator  # only the collector can find it
    del iterator
    started.set()
    assert dropped.wait(DEADLINE_S), "hangs"
    assert eventually(nothing_runs)


def test_closing_wakes_a_consumer_in_another_thread(make):
    begun, go_on = threading.Event(), threading.Event()

    def slow(value, rng):
        begun.set()
        assert go_on.wait(DEADLINE_S)
        return value

    iterator = iter(make(slow))
    ended = []
    consumer = threading.Thread(target=lambda: ended.append(list(iterator)))
    consumer.start()
    assert begun.wait(DEADLINE_S)
    closing = threading.Thread(target=iterator.close)
    closing.start()
    go_on.set()
    for thread in (closing, consumer):
        thread.join(DEADLINE_S)
        assert not thread.is_alive(), "hangs"
    assert ended == [[]]


@pytest.mark.one_in(2)
def test_two_iterators_at_once(make):
    expected = first(make())
    loader = make()
    pairs = [battery.kept(pair) for pair, _ in zip(zip(loader, loader, strict=False), range(50), strict=False)]
    battery.assert_equal([one for one, _ in pairs], expected, "the first of two iterators")
    battery.assert_equal([other for _, other in pairs], expected, "the second of two iterators")


def test_a_thread_that_cannot_be_started(make, monkeypatch):
    def refuse(self):
        raise RuntimeError("can't start new thread")

    loader = make()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            next(iter(loader))
    gc.collect()
    assert eventually(nothing_runs)
    assert next(iter(loader))


# --- a fork ---


def digest(batches):
    state = hashlib.sha256()
    for batch in battery.kept(batches):
        for name, value in batch.items():
            state.update(name.encode() + (repr(value).encode() if isinstance(value, list) else value.tobytes()))
    return state.hexdigest().encode()


def in_mid_epoch(make):
    """An iterator after its first batch, and the digest of what should follow."""
    expected = digest(list(make())[1:])
    iterator = iter(make())
    next(iterator)
    return iterator, expected


that_end = pytest.mark.parametrize("case", [name for name, case in CASES.items() if case.ends], indirect=True)


@that_end
@pytest.mark.one_in(2)
def test_a_fork_goes_on_as_its_parent_does(case, make):
    iterator, expected = in_mid_epoch(make)

    def go_on():
        if case.forks:
            return digest(iterator)
        with pytest.raises(UsageError, match=r"forked in mid-epoch .*; begin a pass of its own with iter\(loader\)"):
            next(iterator)
        return expected if next(iterator, "ended") == "ended" else b""

    children = [in_fork(go_on) for _ in range(2)]
    assert digest(iterator) == expected
    assert [child() for child in children] == [expected] * 2


@that_end
def test_a_fork_drops_the_pass(make):
    iterator, expected = in_mid_epoch(make)

    def work():
        nonlocal iterator
        iterator.close()
        del iterator
        gc.collect()
        return b"dropped"

    assert in_fork(work)() == b"dropped"
    assert digest(iterator) == expected
