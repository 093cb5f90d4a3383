"""Worker processes of any start method: their start, and the reason of their end."""

from __future__ import annotations

import multiprocessing.process
import os
import pickle
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import wait
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from types import FrameType

from headrace.errors import MapWorkerError, UsageError
from headrace.loader.map_workers.worker import WorkerSetup, run
from headrace.system import THREAD_PREFIX, close_in_forks, kept_by_fork

_FORK_SAFE = {f"{THREAD_PREFIX}{name}" for name in ("cache", "feed", "fetch", "map", "share")}
"""Names of threads that hold no lock that a forked worker takes: they call none of the user's functions."""


def start_method(context: str | BaseContext | None) -> str:
    """Return "fork", "forkserver" or "spawn". None means the platform's default, unless the program has set another.

    Unlike multiprocessing's own function, it does not fix the method.
    """
    if isinstance(context, str):
        return context
    found = (multiprocessing if context is None else context).get_start_method(allow_none=True)
    return multiprocessing.get_all_start_methods()[0] if found is None else str(found)


class WorkerProcess:
    """One started process, with the parent's end of its connection."""

    def __init__(self, context: BaseContext, method: str, setup: WorkerSetup) -> None:
        """Start the process. Raises UsageError for a map that cannot be pickled if the start method pickles it."""
        self.index = setup.index
        self.connection, theirs = context.Pipe()
        close_in_forks(self.connection)
        close_in_forks(theirs)
        close_in_forks(self)
        kept = (theirs,) if setup.file is None else (theirs, setup.file)
        # Any of the user's processes may have its own daemons; these end with the pass.
        self._process: BaseProcess = context.Process(  # type: ignore[attr-defined]  # of every context but the base
            target=run, args=(setup, theirs), name=f"headrace-map-{setup.index}", daemon=True
        )
        self._method = method
        try:
            with kept_by_fork(*kept), _without_interrupts():
                self._process.start()
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            self.connection.close()
            raise UsageError(
                f"map: expected a function that can be pickled, since map workers start by {method!r}, got "
                f"{setup.function!r} ({error}); define it at the top level of a module, or pass "
                "multiprocessing_context='fork'"
            ) from error
        except BaseException:
            self.connection.close()
            raise
        finally:
            theirs.close()
        self.pid = self._process.pid

    def hang_up(self) -> None:
        """End the worker after its current row, also while it sends a result that nobody reads.

        Callable from any thread; it wakes a thread that sends to the worker.
        """
        with suppress(OSError), socket.socket(fileno=os.dup(self.connection.fileno())) as ours:
            ours.shutdown(socket.SHUT_RDWR)  # an OSError: it has ended, or was closed before

    def end(self, wait_s: float) -> None:
        """Wait for the process to end, and kill it after `wait_s`."""
        if not wait([self._process.sentinel], wait_s):
            self._process.kill()
        self._process.join()

    def give_back(self) -> None:
        """Close its descriptors, once it has ended and no thread reads from it."""
        self.connection.close()
        with suppress(ValueError):  # multiprocessing lost track: another thread has waited for the process
            self._process.close()

    def close(self) -> None:
        """Forget the process in a fork, which is not its parent: multiprocessing would end it at the fork's exit.

        CPython's `_exit_function` checks the parent only after that.
        """
        multiprocessing.process._children.discard(self._process)  # type: ignore[attr-defined]

    def ended(self, at: str | None) -> MapWorkerError:
        """Return the error for a broken connection; `at` names the worker's last sample."""
        self._process.join()
        code = self._process.exitcode
        how = f"ended with exit code {code}"
        if code is not None and code < 0:
            try:
                how = f"was killed by {signal.Signals(-code).name}"
            except ValueError:  # a real-time signal
                how = f"was killed by signal {-code}"
        where = f"at {at}" if at is not None else "between two samples"
        return MapWorkerError(f"map worker {self.index} (process {self.pid}) {how} {where}. {self._advice(code, at)}")

    def _advice(self, code: int | None, at: str | None) -> str:
        if code == -signal.SIGKILL:
            return (
                "The kernel kills so where memory runs out (see dmesg): use fewer map_workers, or a smaller prefetch "
                "or batch_size"
            )
        if code in (-signal.SIGTERM, -signal.SIGHUP):
            return "Something asked it to end, as job managers do with all processes of a job"
        if code is not None and code < 0:
            return "Native code that map calls crashed: try that sample with map_workers=0 and python -X faulthandler"
        if at is None and self._method != "fork":
            return (
                f"What it printed says why. Under {self._method!r} it imports the script anew: keep what the script "
                "does under `if __name__ == '__main__':`, and map in a module that can be imported"
            )
        return "Something that map calls ended the process; what it printed may say why"


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """Hold back Ctrl-C while a worker starts. The worker inherits this thread's mask, and never receives one.

    Another thread may receive the signal, but its handler still runs in the main thread. KeyboardInterrupt is lost
    inside a fork's callbacks; inside multiprocessing it leaves an untracked process.
    """
    came: list[tuple[int, FrameType | None]] = []
    handler = signal.getsignal(signal.SIGINT)
    holds = callable(handler) and threading.current_thread() is threading.main_thread()
    if holds:
        signal.signal(signal.SIGINT, lambda *signalled: came.append(signalled))
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if holds:
            signal.signal(signal.SIGINT, handler)
        if came and callable(handler):
            handler(*came[-1])


def check_context(given: str | BaseContext | None) -> None:
    """Raise UsageError unless `given` is a start method of this platform, a context or None."""
    methods = multiprocessing.get_all_start_methods()
    if isinstance(given, BaseContext) or given is None or given in methods:
        return
    names = ", ".join(map(repr, methods))
    raise UsageError(f"multiprocessing_context: expected {names}, a context or None, got {given!r}")


def check_may_start(workers: int) -> None:
    """Raise UsageError in a daemonic process, which multiprocessing does not let start others."""
    if multiprocessing.current_process().daemon:
        raise UsageError(
            f"map_workers: expected a process that may start others, got a daemonic one (such as a DataLoader's "
            f"worker) and map_workers={workers}; use map_workers=0 there"
        )


def context_of(given: str | BaseContext | None, function: object) -> tuple[BaseContext, str]:
    """Return the context for a name, as given, or the program's own for None; and its start method.

    A function that cannot be pickled, such as a lambda, runs by "fork" if nobody has chosen a method (Python 3.14's
    default is "forkserver") and a fork is safe, also within an epoch of another Loader.

    The "forkserver" server starts here: if `_without_interrupts` started it, its children would inherit the mask.
    """
    method = start_method(given)
    # A default that other code has fixed, by calling get_start_method(), looks the same as a choice.
    is_chosen = given is not None or multiprocessing.get_start_method(allow_none=True) is not None
    if method == "forkserver" and not is_chosen and _may_fork() and not _is_pickled(function):
        method = "fork"
    if method == "forkserver":
        from multiprocessing import forkserver

        forkserver.ensure_running()
    return given if isinstance(given, BaseContext) else multiprocessing.get_context(method), method


def _may_fork() -> bool:
    """Return False if a thread that is not Headrace's may hold a lock, or if CUDA, which no fork can use, runs."""
    others = (thread.name for thread in threading.enumerate() if thread is not threading.current_thread())
    if not _FORK_SAFE.issuperset(others):
        return False
    torch = sys.modules.get("torch")
    return torch is None or not torch.cuda.is_initialized()


def _is_pickled(function: object) -> bool:
    try:
        pickle.dumps(function)
    except (pickle.PicklingError, AttributeError, TypeError):
        return False
    return True
