"""However a pass of a ThreadDataLoader ends, it leaves no thread, and nothing hangs."""

from __future__ import annotations

import gc
import signal
import threading
import weakref

import pytest
import torch
from processes import DEADLINE_S, eventually, in_fork, interrupt_when_ready, own_threads, run_python
from torch.utils.data import Dataset, IterableDataset

from headrace.dropins.thread_loader import iterator as thread_iterator
from headrace.dropins.thread_loader.thread_dataloader import ThreadDataLoader
from headrace.errors import UsageError

COUNT = 24


class Numbers(Dataset):
    def __len__(self):
        return COUNT

    def __getitem__(self, index):
        return torch.tensor([index])


class Endless(IterableDataset):
    def __iter__(self):
        number = 0
        while True:
            yield torch.tensor([number])
            number += 1


class Hangs(Numbers):
    """From sample 4 on, until told to go on."""

    def __init__(self):
        self.begun, self.go_on = threading.Event(), threading.Event()

    def __getitem__(self, index):
        if index >= 4:
            self.begun.set()
            assert self.go_on.wait(DEADLINE_S)
        return torch.tensor([index])


every_kind = pytest.mark.parametrize(
    "options",
    [{}, {"persistent_workers": True}, {"dataset": Endless()}, {"dataset": Endless(), "persistent_workers": True}],
    ids=["map", "map, persistent", "endless", "endless, persistent"],
)


def load(**options):
    return ThreadDataLoader(**({"dataset": Numbers(), "batch_size": 4, "num_workers": 2} | options))


def no_threads():
    return eventually(lambda: own_threads() == [])


def test_persistent_threads_end_with_the_loader():
    loader = load(persistent_workers=True)
    list(loader)
    threads = own_threads()
    list(loader)
    assert own_threads() == threads != []
    del loader
    assert no_threads()


def test_an_iterator_outlives_its_loader():
    iterator = iter(load(persistent_workers=True))
    gc.collect()
    assert len(list(iterator)) == COUNT / 4
    del iterator
    assert no_threads()


def test_passes_within_each_other():
    """Persistent threads serve both."""
    for persistent in (False, True):
        loader = load(persistent_workers=persistent)
        pairs = [(int(one[0]), int(other[0])) for one in loader for other in loader]
        assert pairs == [(i, j) for i in range(0, COUNT, 4) for j in range(0, COUNT, 4)]
        del loader


def test_closing_waits_for_samples_in_progress_and_begins_none():
    data = Hangs()
    iterator = iter(load(dataset=data))
    assert data.begun.wait(DEADLINE_S)
    closing = threading.Thread(target=iterator.close)
    closing.start()
    assert eventually(lambda: not iterator._open)
    assert closing.is_alive()
    data.go_on.set()
    closing.join(DEADLINE_S)
    assert not closing.is_alive()
    assert own_threads() == []


def ends_in_its_thread(iterator, close):
    """What the rest of a pass gives in a thread of its own, while `close` is called in this one."""
    got = []

    def consume():
        try:
            got.extend(iterator)
        except BaseException as error:
            got.append(error)

    consumer = threading.Thread(target=consume)
    consumer.start()
    close()
    consumer.join(DEADLINE_S)
    assert not consumer.is_alive()
    return got


@pytest.mark.parametrize("persistent", [False, True])
def test_closing_in_another_thread_ends_the_loop(persistent):
    """The state is that of the batches received, though the sampler has been drawn to its end."""
    data = Hangs()
    loader = load(dataset=data, prefetch_factor=COUNT, persistent_workers=persistent)
    iterator = iter(loader)
    next(iterator)
    closing = threading.Thread(target=iterator.close)

    def close():
        assert data.begun.wait(DEADLINE_S)
        closing.start()
        assert eventually(lambda: not iterator._open)
        data.go_on.set()
        closing.join(DEADLINE_S)

    assert ends_in_its_thread(iterator, close) == []
    assert loader.state_dict()["batches"] == 1


def test_closing_in_another_thread_while_the_consumer_loads():
    data = Hangs()
    iterator = iter(load(dataset=data, num_workers=0))
    next(iterator)

    def close():
        assert data.begun.wait(DEADLINE_S)
        iterator.close()
        data.go_on.set()

    assert ends_in_its_thread(iterator, close) == []


def test_dropping_does_not_wait_for_a_dataset_that_hangs(monkeypatch):
    monkeypatch.setattr(thread_iterator, "DROP_WAIT_S", 0.05)
    data = Hangs()
    iterator = iter(load(dataset=data))
    assert data.begun.wait(DEADLINE_S)
    del iterator
    assert own_threads() != []
    data.go_on.set()
    assert no_threads()


def test_a_batch_is_not_kept():
    """Neither by the threads, which wait, nor by an error's traceback."""

    class Large:
        pass

    class Fails(Numbers):
        def __getitem__(self, index):
            large = Large()
            seen.append(weakref.ref(large))
            if index == 5:
                raise ValueError
            return large

    seen = []
    gc.disable()
    try:
        iterator = iter(load(dataset=Fails(), collate_fn=list))
        for step in range(COUNT // 4):
            try:
                batch = next(iterator)
                del batch
            except ValueError:
                assert step == 1
        assert eventually(lambda: not any(ref() for ref in seen))
    finally:
        gc.enable()
    iterator.close()


# --- a fork ---


def numbers(iterator):
    return bytes(int(number) for batch in iterator for number in batch.flatten())


@pytest.mark.one_in(2)
@every_kind
def test_a_fork_in_mid_epoch(options):
    """The threads are in another process, and may be anywhere."""
    loader = load(**options)
    iterator = iter(loader)
    next(iterator)

    def work():
        with pytest.raises(UsageError, match=r"forked in mid-epoch .*; begin a pass of its own with iter\(loader\)"):
            next(iterator)
        assert next(iterator, "ended") == "ended"
        return numbers([next(iter(loader))])

    assert in_fork(work)() == bytes(range(4))
    assert numbers([next(iterator)]) == bytes(range(4, 8))
    iterator.close()


# --- other processes ---

SCRIPT = """
import sys, threading
import torch
from torch.utils.data import Dataset, IterableDataset
from headrace.dropins.thread_loader.thread_dataloader import ThreadDataLoader

class Numbers(Dataset):
    def __len__(self): return 400
    def __getitem__(self, index): return torch.full((9,), index)

class Endless(IterableDataset):
    def __iter__(self):
        while True: yield torch.zeros(9)
"""


@pytest.mark.long
def test_ctrl_c_in_next():
    code, out, error = interrupt_when_ready(
        SCRIPT
        + """
at_next = threading.Event()

class Hangs(Numbers):
    def __getitem__(self, index):
        if index == 4:
            at_next.wait()
            threading.Event().wait(0.2)  # in which the consumer goes from the event into next()
            print("ready", flush=True)
            threading.Event().wait(3)  # beyond the bounded wait
        return index

loader = ThreadDataLoader(Hangs(), 4, num_workers=1)
iterator = iter(loader)
try:
    next(iterator)
    at_next.set()
    next(iterator)
except KeyboardInterrupt:
    print("interrupted", loader.state_dict()["batches"], next(iterator, "ended"))
    raise
"""
    )
    assert code == -signal.SIGINT
    assert out.rstrip().endswith("interrupted 1 ended")
    assert error.rstrip().endswith("KeyboardInterrupt")


@pytest.mark.long
def test_the_interpreter_exits():
    """With passes of each kind in mid-epoch, and through sys.exit in a loop."""
    body = """
kept = [iter(ThreadDataLoader(data, 2, num_workers=2, persistent_workers=persistent))
        for data in (Numbers(), Endless()) for persistent in (False, True)]
batches = [next(iterator) for iterator in kept]
kept.append(kept)
for batch in ThreadDataLoader(Numbers(), 2, num_workers=2): sys.exit(0)
"""
    assert run_python(SCRIPT + body) == (0, "", "")


@pytest.mark.long
def test_the_interpreter_exits_though_the_dataset_hangs():
    body = """
import headrace.dropins.thread_loader.worker_threads as worker_threads
worker_threads.WorkerThreads.close.__defaults__ = (0.2,)

class Hangs(Numbers):
    def __getitem__(self, index): threading.Event().wait()

iterator = iter(ThreadDataLoader(Hangs(), 2, num_workers=2))
"""
    assert run_python(SCRIPT + body) == (0, "", "")
