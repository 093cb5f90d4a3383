"""`forks`: what a fork lets go of, and what its parent keeps for it."""

from __future__ import annotations

import os
import resource
import signal
import sys
import threading
import weakref

import pytest
from processes import DEADLINE_S, eventually, in_fork, open_files

from headrace.system import forks


class Thing:
    def __init__(self):
        self.closed = False

    def close(self):
        self.closed = True


class Memory:
    """Kept for forks from the start."""

    def __init__(self):
        forks.keep_for_forks(self)


def is_kept(alive):
    forks.forget_ended_forks()
    return alive() is not None


@pytest.fixture
def pipe():
    read, write = os.pipe()
    yield read, write
    os.close(read), os.close(write)


def test_a_fork_lets_go_of_what_is_this_processs_own():
    mine, other = Thing(), Thing()
    forks.close_in_forks(mine)
    assert in_fork(lambda: bytes([mine.closed, other.closed]))() == bytes([True, False])
    assert not mine.closed


def test_a_fork_keeps_what_it_is_given():
    things = [Thing(), Thing()]
    for thing in things:
        forks.close_in_forks(thing)

    def work():
        below = in_fork(lambda: bytes([things[1].closed]))
        return bytes(thing.closed for thing in things) + below()

    with forks.kept_by_fork(things[1]):
        child = in_fork(work)
    assert child() == bytes([True, False, True]), "its own forks do not"


def test_a_fork_by_another_thread_keeps_nothing():
    thing, said = Thing(), []
    forks.close_in_forks(thing)
    with forks.kept_by_fork(thing):
        thread = threading.Thread(target=lambda: said.append(in_fork(lambda: bytes([thing.closed]))()))
        thread.start()
        thread.join()
    assert said == [b"\x01"]


# --- memory that is shared ---


def test_memory_is_kept_until_the_fork_ends(pipe):
    memory = Memory()
    child, alive = in_fork(lambda: os.read(pipe[0], 1)), weakref.ref(memory)
    del memory
    assert is_kept(alive)
    os.write(pipe[1], b".")
    child()
    assert not is_kept(alive)


def test_until_the_forks_own_fork_ends(pipe):
    memory = Memory()
    read, write = os.pipe()

    def work():
        fork = os.getpid()
        if os.fork():
            os._exit(0)
        signal.alarm(int(DEADLINE_S))  # which is not inherited
        assert eventually(lambda: os.getppid() != fork)
        os.write(write, b".")
        return os.read(pipe[0], 1)

    child, alive = in_fork(work), weakref.ref(memory)
    del memory
    os.read(read, 1)
    assert is_kept(alive)
    os.write(pipe[1], b".")
    child()
    assert eventually(lambda: not is_kept(alive))
    os.close(read), os.close(write)


def test_until_the_fork_runs_another_program(pipe):
    memory = Memory()

    def work():
        os.dup2(pipe[0], 0)
        os.execv(sys.executable, [sys.executable, "-c", "import sys; sys.stdin.read(1)"])

    child, alive = in_fork(work), weakref.ref(memory)
    del memory
    assert eventually(lambda: not is_kept(alive))
    os.write(pipe[1], b".")
    child()


def test_each_fork_keeps_what_there_was_when_it_was_made(pipe):
    """One that lives on must not keep what came later."""
    first = Memory()
    child, kept = in_fork(lambda: os.read(pipe[0], 1)), weakref.ref(first)
    second = Memory()
    in_fork(lambda: b"")()
    later = weakref.ref(second)
    del first, second
    assert is_kept(kept)
    assert not is_kept(later)
    os.write(pipe[1], b".")
    child()
    assert not is_kept(kept)


def test_a_fork_keeps_nothing_for_forks_of_its_own(pipe):
    """Its parent does."""
    memory = Memory()

    def work():
        nonlocal memory
        below, alive = in_fork(lambda: os.read(pipe[0], 1)), weakref.ref(memory)
        del memory
        freed = alive() is None
        os.write(pipe[1], b".")
        below()
        return bytes([freed])

    assert in_fork(work)() == b"\x01"


def test_a_fork_of_ours_looks_at_nothing(pipe):
    memory = Memory()
    with forks.kept_by_fork():
        child = in_fork(lambda: os.read(pipe[0], 1))
    alive = weakref.ref(memory)
    del memory
    assert alive() is None
    os.write(pipe[1], b".")
    child()


def test_without_such_memory_forks_cost_nothing(monkeypatch):
    monkeypatch.setattr(forks, "_shared", weakref.WeakValueDictionary())  # other tests' batches may still be there
    before = open_files()
    child = in_fork(lambda: b"")
    assert open_files() == before + 2, "those of in_fork itself"
    child()


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to become a user with no right to processes")
def test_a_fork_that_fails_keeps_nothing():
    """The system refuses it, and its parent alone comes back from the call."""

    def work():
        memory = Memory()
        alive = weakref.ref(memory)
        resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
        os.setuid(65534)
        try:
            os.fork()
        except BlockingIOError:
            del memory
            return bytes([is_kept(alive)])
        return b"was forked"

    assert in_fork(work)() == b"\0"
