"""The fixture that watches every test must itself see what it watches for."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from leaks import inventory, leaks_of


@contextmanager
def thread() -> Iterator[None]:
    done = threading.Event()
    worker = threading.Thread(target=done.wait, name="left-alone")
    worker.start()
    yield
    done.set()
    worker.join()


@contextmanager
def child() -> Iterator[None]:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield
    process.communicate(b"\n")


@contextmanager
def zombie() -> Iterator[None]:
    process = subprocess.Popen([sys.executable, "-c", "print()"], stdout=subprocess.PIPE)
    with closing(process.stdout):
        process.stdout.read()
        yield
        process.wait()


@contextmanager
def file() -> Iterator[None]:
    with Path(__file__).open():
        yield


@contextmanager
def memory() -> Iterator[None]:
    name = f"/dev/shm/headrace-test-{os.getpid()}"
    with open(name, "wb"):
        pass
    yield
    os.unlink(name)


def asked_once(condition: Callable[[], bool]) -> bool:
    return condition()


@pytest.mark.parametrize(
    ("left", "words"),
    [
        (thread, "threads: left-alone"),
        (child, "processes: "),
        (zombie, "processes: "),
        (file, "test_leaks.py"),
        (memory, "shared memory: headrace-test-"),
    ],
)
def test_sees_what_is_left_behind(left: Callable[[], AbstractContextManager[None]], words: str) -> None:
    before = inventory()
    with left():
        assert words in "; ".join(leaks_of(before, settled=asked_once))
    assert leaks_of(before) == []


SEMAPHORE = """
import multiprocessing
semaphore = multiprocessing.get_context("spawn").Semaphore()
print(semaphore._semlock.name, flush=True)
input()
"""


def test_memory_of_a_program_beside_it_is_none_of_a_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", SEMAPHORE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        name = process.stdout.readline().strip().replace("/", "sem.")
        found = inventory()
        without = replace(
            found, shared_memory={other: inode for other, inode in found.shared_memory.items() if other != name}
        )
        assert found.beyond(without) == [f"shared memory: {name}"], "its own child's is"
        with monkeypatch.context() as patch:
            patch.setattr("leaks._own_children", list)
            assert found.beyond(without) == []
        process.communicate("\n")


class Holder:
    """Holds a file in a cycle, which only a garbage collection undoes."""

    def __init__(self) -> None:
        self.itself = self
        self.descriptor = os.open(__file__, os.O_RDONLY)

    def __del__(self) -> None:
        os.close(self.descriptor)


def test_collects_garbage_before_it_complains() -> None:
    before = inventory()
    Holder()
    assert leaks_of(before, settled=asked_once) == []


@pytest.mark.leaks(reason="shows that a marked test is let be")
def test_a_marked_test_may_leave_things() -> None:
    threading.Thread(target=threading.Event().wait, args=(0.2,), name="let-be", daemon=True).start()
