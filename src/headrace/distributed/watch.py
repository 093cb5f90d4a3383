"""Watches for the failure of another rank, and gets the main thread out of whatever it waits in."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from types import FrameType

from torch.distributed import DistError

from headrace.distributed.failures import Board, Failure
from headrace.errors import RankError

PERIOD_S = 0.5
"""Between two looks at the store. Waiting in it instead would log a warning at each timeout (torch 2.13)."""


class Watch:
    """A thread that looks for the failure of another rank, from `begin` to `end`.

    It says in one line what it finds, so that it is said before a launcher ends this process, and sends the process
    SIGTERM, on which the main thread raises RankError; so it does on the launcher's own. A main thread that has not
    come to an end `patience_s` later, because it waits inside a library of the GPU, say, cannot be helped: the process
    ends with code 1. A handler for SIGTERM of the user's own stays, and is not called.
    """

    def __init__(self, board: Board, *, rank: int, patience_s: float, end_process: Callable[[], None]) -> None:
        self._board = board
        self._rank = rank
        self._patience_s = patience_s
        self._end_process = end_process
        self._found: Failure | None = None
        self._finding = threading.RLock()  # the main thread's handler may come upon the main thread inside
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="headrace-ranks", daemon=True)
        self._pid = os.getpid()
        self._handles = False
        self._ending = False

    def begin(self) -> None:
        in_main = threading.current_thread() is threading.main_thread()
        self._handles = in_main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        if self._handles:
            signal.signal(signal.SIGTERM, self._on_sigterm)
        self._thread.start()

    def let_end(self) -> None:
        """From here on nothing is raised in the main thread: it is on its way out."""
        self._ending = True

    def end(self) -> None:
        self._stop.set()
        self._thread.join()
        if self._handles:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def failure(self) -> Failure | None:
        """Another rank's, which this one ends by. Said when it is first found; from then on the store is not needed."""
        with self._finding:
            if self._found is None:
                found = _seen(self._board)
                if found is not None and found.rank != self._rank:
                    self._found = found
                    self._say(found)
            return self._found

    def _say(self, failure: Failure) -> None:
        print(f"headrace: rank {self._rank} ends because {failure}", file=sys.stderr, flush=True)
        with suppress(DistError):
            self._board.say_informed()

    def _on_sigterm(self, number: int, frame: FrameType | None) -> None:
        # A fork of this process has the handler, too, and must neither use the connection nor wait for the lock.
        if os.getpid() == self._pid:
            if self._ending:
                return
            failure = self.failure()
            if failure is not None:
                raise because_of(failure, self._rank)
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    def _run(self) -> None:
        while not self._stop.wait(PERIOD_S):
            if self.failure() is not None:
                self._get_out()
                return

    def _get_out(self) -> None:
        if self._handles:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)
        if not self._stop.wait(self._patience_s):
            self._end_process()


def because_of(failure: Failure, rank: int) -> RankError:
    return RankError(f"rank {rank} ends because {failure}")


def _seen(board: Board) -> Failure | None:
    """The run's failure as the store has it. A store that is gone is one, too: rank 0 or the launcher kept it."""
    try:
        return board.failure()
    except DistError as error:
        return Failure(None, f"the store that the ranks met at is gone, with rank 0 or the launcher ({error})")
