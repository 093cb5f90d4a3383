"""`forks`: what a fork lets go of, and how its parent knows whether it lives."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import threading

import pytest
from processes import eventually, in_fork

from headrace import forks


class Thing:
    def __init__(self):
        self.closed = False

    def close(self):
        self.closed = True


class Watcher:
    def __init__(self):
        self.forks = []
        forks.tell_of_forks(self)

    def forking(self, fork):
        self.forks.append(fork)


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


def test_a_fork_lives_until_it_ends(pipe):
    watcher = Watcher()
    child = in_fork(lambda: os.read(pipe[0], 1))
    (fork,) = watcher.forks
    assert fork.lives
    os.write(pipe[1], b".")
    child()
    assert not fork.lives


def test_a_fork_lives_until_it_runs_another_program(pipe):
    watcher = Watcher()

    def work():
        os.dup2(pipe[0], 0)
        os.execv(sys.executable, [sys.executable, "-c", "import sys; sys.stdin.read(1)"])

    child = in_fork(work)
    assert eventually(lambda: not watcher.forks[0].lives)
    os.write(pipe[1], b".")
    child()


def test_programs_that_are_started_are_no_forks():
    watcher = Watcher()
    subprocess.run([sys.executable, "-c", ""], check=True)
    assert watcher.forks == []


def test_forks_of_ours_are_not_told_of():
    watcher = Watcher()
    with forks.kept_by_fork():
        child = in_fork(lambda: b"")
    child()
    assert watcher.forks == []


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to become a user with no right to processes")
def test_a_fork_that_fails_does_not_live():
    """The system refuses it, and its parent alone comes back from the call."""

    def work():
        watcher = Watcher()
        resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
        os.setuid(65534)
        try:
            os.fork()
        except BlockingIOError:
            return bytes([watcher.forks[0].lives])
        return b"was forked"

    assert in_fork(work)() == b"\0"
