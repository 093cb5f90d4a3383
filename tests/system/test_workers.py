"""Threads that take work from one iterator: all of it is done once, and they end whatever comes."""

from __future__ import annotations

import threading

import pytest
from processes import own_threads

from headrace.system.threads import Stop, Stopped, work_through

THREADS = [1, 3]


@pytest.mark.parametrize("threads", THREADS)
def test_each_item_is_worked_on_once(threads):
    done: list[int] = []
    work_through(range(500), done.append, name="test", threads=threads)
    assert sorted(done) == list(range(500))


def test_they_work_side_by_side():
    meeting = threading.Barrier(3, timeout=20)
    work_through(range(3), lambda _: meeting.wait(), name="test", threads=3)


@pytest.mark.parametrize("threads", THREADS)
def test_an_error_ends_all(threads):
    def work(number: int) -> None:
        if number == 5:
            raise ValueError("five")

    items = iter(range(10**9))
    with pytest.raises(ValueError, match="five"):
        work_through(items, work, name="test", threads=threads)
    assert next(items) < 10**9 - 1
    assert not [name for name in own_threads() if "test" in name]


@pytest.mark.parametrize("threads", THREADS)
def test_an_error_of_the_iterator_is_one(threads):
    def items():
        yield 1
        raise ValueError("no more")

    with pytest.raises(ValueError, match="no more"):
        work_through(items(), lambda _: None, name="test", threads=threads)


@pytest.mark.parametrize("threads", THREADS)
def test_what_the_tick_raises_ends_all(threads):
    stop = Stop()

    def tick() -> None:
        raise KeyboardInterrupt

    def work(_: int) -> None:
        if threads > 1:
            wait_until_stopped(stop)

    with pytest.raises(KeyboardInterrupt):
        work_through(iter(int, 1), work, name="test", threads=threads, stop=stop, tick=tick)


def test_an_interrupt_while_they_start_ends_all(monkeypatch):
    start = threading.Thread.start

    def interrupted(thread: threading.Thread) -> None:
        start(thread)
        raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    stop = Stop()
    with pytest.raises(KeyboardInterrupt):
        work_through(iter(int, 1), lambda _: wait_until_stopped(stop), name="test", threads=3, stop=stop)
    assert not [name for name in own_threads() if "test" in name]


def test_one_long_item_in_a_thread_of_its_own_is_ticked_meanwhile():
    ticked = threading.Event()
    work_through([1], lambda _: _expect(ticked.wait(20)), name="test", threads=1, one_is_here=False, tick=ticked.set)


def test_threads_that_cannot_all_be_started_end(monkeypatch):
    start = threading.Thread.start
    begun: list[threading.Thread] = []

    def start_two(thread: threading.Thread) -> None:
        if len(begun) == 2:
            raise RuntimeError("can't start new thread")
        begun.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_two)
    with pytest.raises(RuntimeError, match="new thread"):
        work_through(iter(int, 1), lambda _: None, name="test", threads=3)
    assert not any(thread.is_alive() for thread in begun)


def _expect(truth: bool) -> None:
    assert truth


def wait_until_stopped(stop: Stop) -> None:
    """Ends as work does that looks whether it is still wanted."""
    pause = threading.Event()
    while True:
        stop.check()
        pause.wait(0.001)


def test_work_that_is_stopped_is_no_error():
    stop = Stop()
    stop.set()
    done: list[int] = []
    work_through(range(5), done.append, name="test", threads=2, stop=stop)
    assert done == []
    with pytest.raises(Stopped):
        work_through(range(5), done.append, name="test", threads=1, stop=stop)
