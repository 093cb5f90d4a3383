"""A thread that looks, now and then, at where the thread that makes a batch stands."""

from __future__ import annotations

import random
import threading
import time
from typing import Callable, Protocol

from .stack import Stack, frame_of, stack_of, text_of

PERIOD_NS = 10_000_000
"""Between two looks, on average."""
MOST_SHARE = 0.004
"""Of the time in which batches are made, that looking may take of a core. What others wait for the GIL meanwhile is
about as much again."""
IDLE_S = 1.0
"""How long it sleeps where nothing wakes it: a batch that hangs is noticed as much later."""
HUNG_NS = 10_000_000_000
"""No batch that is done within this hangs."""
HUNG_TIMES = 20
"""Nor one that is done within as many times the usual."""

_STACK_CHARS = 8000


class Making(Protocol):
    """One batch, as far as the sampler knows it: the thread that makes it, and since when (time.monotonic_ns())."""

    thread: int
    start: int


class Sampler:
    """Looks only while a batch is being made, about every PERIOD_NS *of such time*: batches shorter than that are hit
    in their turn, and a process that trains in between is left alone. Each look stands for the time since the last.

    The thread starts with the first batch, never lives through a fork (`stop` before it; a fork beside threads is what
    Python 3.12 warns about), and starts again with the next batch.
    """

    def __init__(
        self,
        look: Callable[[Stack, int], None],
        hung: Callable[[Making, int, str], None],
        failed: Callable[[Exception], None],
    ) -> None:
        """`look(stack, ns)` is called for each look, `hung(batch, ns, stack)` once for a batch that takes too long, and
        `failed(error)` once, where no look can be taken any more."""
        self._look = look
        self._hung = hung
        self._failed = failed
        self._is_off = False
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()  # several threads may each begin their first batch
        self._gate = threading.Event()
        self._halt = threading.Event()
        self._batch: Making | None = None
        self._last_ns = 0
        self._usual_ns = 0
        self._busy_ns = 0
        self._looked_ns = 0
        self._due_ns = round(PERIOD_NS * random.Random(time.monotonic_ns()).random())
        self._random = random.Random(self._due_ns)  # the user's draws stay theirs
        self._told: Making | None = None
        self.cost_ns = 0

    def begin(self, batch: Making) -> None:
        """A batch is begun; of several at once, the one begun last is looked at."""
        self._batch = batch
        if self._thread is None:
            if not self._is_off and self._starting.acquire(blocking=False):
                try:
                    if self._thread is None:
                        self._start()
                finally:
                    self._starting.release()
        elif not self._gate.is_set() and self._busy_ns + self._last_ns >= self._due_ns:
            self._gate.set()

    def end(self, batch: Making, wall_ns: int) -> None:
        if self._batch is batch:
            self._batch = None
        self._last_ns = wall_ns
        self._usual_ns = (
            wall_ns if self._usual_ns == 0 else (7 * self._usual_ns + min(wall_ns, 8 * self._usual_ns)) // 8
        )
        self._busy_ns += wall_ns

    def stop(self) -> None:
        """Until the next batch begins."""
        thread, self._thread = self._thread, None
        if thread is not None and thread is not threading.current_thread():
            self._halt.set()
            self._gate.set()
            thread.join(IDLE_S)

    def _start(self) -> None:
        self._gate, self._halt = threading.Event(), threading.Event()
        thread = threading.Thread(
            target=self._run, args=(self._gate, self._halt), name="headrace-doctor-lines", daemon=True
        )
        try:
            thread.start()
            self._thread = thread
        except RuntimeError as error:  # a limit is reached, or the interpreter ends
            self._give_up(error)

    def _run(self, gate: threading.Event, halt: threading.Event) -> None:
        try:
            self._loop(gate, halt)
        except Exception as error:
            self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        self._is_off = True
        self._failed(error)

    def _loop(self, gate: threading.Event, halt: threading.Event) -> None:
        while not halt.is_set():
            batch = self._batch
            if batch is None:
                gate.clear()
                if self._batch is None:
                    gate.wait(IDLE_S)
                continue
            busy = self._busy_ns + time.monotonic_ns() - batch.start
            if self._batch is not batch:  # then `busy` may count it twice
                continue
            if busy < self._due_ns:
                halt.wait((self._due_ns - busy) / 1e9)
            else:
                self._take_look(batch, busy)

    def _take_look(self, batch: Making, busy_ns: int) -> None:
        started = time.thread_time_ns()
        stack = stack_of(frame_of(batch.thread))
        if stack and self._batch is batch:
            self._look(stack, max(0, busy_ns - self._looked_ns))
            self._watch(batch, stack)
        self._looked_ns = busy_ns
        cost = time.thread_time_ns() - started
        self.cost_ns += cost
        self._due_ns = busy_ns + round(self._pause_ns(batch, cost) * self._random.uniform(0.5, 1.5))

    def _pause_ns(self, batch: Making, cost_ns: int) -> float:
        """Longer where looking costs more than its share, and where the batch takes so long that fewer looks do."""
        return max(PERIOD_NS, cost_ns / MOST_SHARE, (time.monotonic_ns() - batch.start) / 1000)

    def _watch(self, batch: Making, stack: Stack) -> None:
        taken = time.monotonic_ns() - batch.start
        if batch is not self._told and taken > max(HUNG_NS, HUNG_TIMES * self._usual_ns):
            self._told = batch
            self._hung(batch, taken, text_of(stack)[-_STACK_CHARS:])
