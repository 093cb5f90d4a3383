"""Other processes and this one's own threads, files and memory, for tests of what a loader leaves behind."""

from __future__ import annotations

import gc
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import textwrap
import time
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import headrace

DEADLINE_S = 45.0
"""Longer than anything here takes on a machine that others use too: what has not ended by then hangs."""
LIMIT_S = 90.0
"""For a wait that states none: below the tests' own timeout, so that the test fails and the next one runs."""
PAUSE_S = 0.001

started: weakref.WeakSet[LimitedProcess] = weakref.WeakSet()
"""Every process that was started here and that somebody still holds."""
_PATHS = [str(Path(headrace.__file__).parents[1]), str(Path(__file__).parent)]


class LimitedProcess(subprocess.Popen):
    """Process that is killed where a wait for it would have no end."""

    def __init__(self, *args: object, **options: object) -> None:
        super().__init__(*args, **options)
        started.add(self)

    def wait(self, timeout: float | None = None) -> int:
        with self._limit(timeout):
            return super().wait(LIMIT_S if timeout is None else timeout)

    def communicate(self, input: str | bytes | None = None, timeout: float | None = None) -> tuple[object, object]:
        with self._limit(timeout):
            return super().communicate(input, LIMIT_S if timeout is None else timeout)

    @contextmanager
    def _limit(self, timeout: float | None) -> Iterator[None]:
        try:
            yield
        except subprocess.TimeoutExpired:
            if timeout is None:
                self.kill()
            raise


def end_processes(processes: Iterable[LimitedProcess]) -> None:
    """Kill those that still run."""
    for process in processes:
        if process.poll() is None:
            process.kill()
            process.wait()


def source_paths() -> list[str]:
    """PYTHONPATH of a process that imports headrace and the tests' modules as this one does."""
    return [*_PATHS, os.environ.get("PYTHONPATH", "")]


def start_python(
    source: str, *args: object, warnings: str = "error", stdin: int | None = None
) -> subprocess.Popen[str]:
    """Runs `source` in a fresh interpreter that imports headrace and the tests' modules as this one does."""
    return subprocess.Popen(
        [sys.executable, "-X", "faulthandler", "-W", warnings, "-c", textwrap.dedent(source), *map(str, args)],
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(source_paths())},
    )


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Exit code, standard output and error. A process that hangs fails the test, with the stacks of its threads."""
    try:
        out, error = process.communicate(timeout=DEADLINE_S)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGABRT)  # on which faulthandler tells the stacks
        out, error = process.communicate()
        raise AssertionError(f"hangs; it said:\n{out}\n{error}") from None
    return process.returncode, out, error


def run_python(source: str, *args: object, warnings: str = "error") -> tuple[int, str, str]:
    return finish(start_python(source, *args, warnings=warnings))


def interrupt_when_ready(source: str, *args: object) -> tuple[int, str, str]:
    """Sends SIGINT once the process has printed a line.

    It may arrive just before a wait that begins then, which it does not end: Python looks for signals before, and the
    system's call comes after. What waits there must wake up now and then.
    """
    process = start_python(source, *args)
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, finish(process)
    process.send_signal(signal.SIGINT)
    return finish(process)


def in_fork(work: Callable[[], bytes]) -> Callable[[], bytes]:
    """Starts `work` in a fork of this process; call the result for what it returned. A child that hangs is killed."""
    read, write = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 on: threads beside a fork, which is the point
        child = os.fork()
    if child == 0:
        try:
            signal.alarm(int(DEADLINE_S))
            os.write(write, work())
            os._exit(0)
        except BaseException as error:  # nothing of the test run may go on in the child
            os.write(2, repr(error).encode())
            os._exit(1)

    def result() -> bytes:
        os.close(write)
        with os.fdopen(read, "rb") as file:
            said = file.read()
        _, status = os.waitpid(child, 0)
        assert status == 0, f"the forked child ended with {status}"
        return said

    return result


def own_threads() -> list[str]:
    """Names of a feed's threads in this process, native ones included, as the kernel has them."""
    names = []
    for task in os.listdir("/proc/self/task"):
        try:
            with open(f"/proc/self/task/{task}/comm", "rb") as comm:
                names.append(comm.read().decode().strip())
        except OSError:  # ended meanwhile
            continue
    names += [thread.name for thread in _python_threads()]
    return sorted(name for name in names if name.startswith("headrace"))


@contextmanager
def nothing_left() -> Iterator[None]:
    """Whatever runs inside leaves no thread of a feed, and no open file."""
    gc.collect()  # what ran before and is left to the collector is none of this, whenever it goes
    files = open_files()
    yield
    gc.collect()
    assert eventually(lambda: own_threads() == []), own_threads()
    assert eventually(lambda: open_files() <= files), "files are left open"


def map_processes() -> list[multiprocessing.process.BaseProcess]:
    """Workers of `map` that this process started and that have not ended."""
    return [child for child in multiprocessing.active_children() if child.name.startswith("headrace-map")]


def nothing_runs() -> bool:
    """Whether no thread of a feed and no worker of `map` is left."""
    return own_threads() == [] and map_processes() == []


def _python_threads() -> list[object]:
    import threading

    return list(threading.enumerate())


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def eventually(condition: Callable[[], bool]) -> bool:
    """Whether it comes true. For what the kernel takes down after a thread was joined, of which it tells nobody.

    Asked again and again, but with pauses that leave the core, and the interpreter's lock, to what is waited for.
    """
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(PAUSE_S)
    return True
