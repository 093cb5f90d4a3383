"""Stack samples of the thread that produces a batch: time by line of user code."""

from __future__ import annotations

import gc
import os
import random
import sys
import sysconfig
import threading
import time
from functools import lru_cache
from traceback import FrameSummary, format_list
from types import CodeType, FrameType
from typing import Any, Callable, Protocol

PERIOD_NS = 10_000_000
"""Mean interval between two stack samples."""
MOST_SAMPLER_SHARE = 0.004
"""Share of a core that sampling may use in batch production; other threads' waits for the GIL double it."""
IDLE_S = 1.0
"""Sleep time of the sampler without a wake-up, which delays the detection of a hung batch."""
HUNG_NS = 10_000_000_000
"""Minimum duration of a hung batch."""
HUNG_TIMES = 20
"""Minimum duration of a hung batch, as a multiple of the usual duration."""
MOST_FRAMES = 200
MOST_PLACES = 2000
"""Maximum number of code places per process. Code generated for each sample has no limit."""
MOST_FILES = 10_000
"""Number of files with a cached kind."""
COLLECTS_ANYWHERE = sys.version_info < (3, 12)
"""True if any allocation may start a garbage collection. Later Pythons collect only between two instructions."""
_STACK_CHARS = 8000

Stack = list[tuple[CodeType, int]]
"""Code and line of each frame, innermost first, without references to frames."""

# Owner of a code file.
PACKAGES = tuple(f"{os.sep}{name}{os.sep}" for name in ("site-packages", "dist-packages"))
"""Path parts of installed packages in any environment: this environment may extend another."""
_OTHERS_FOLDERS = tuple(
    {
        os.path.realpath(path) + os.sep
        for path in (*map(sysconfig.get_path, ("stdlib", "platstdlib")), *map(os.path.dirname, (os.__file__, __file__)))
        if path
    }
)
"""Folders of the standard library and of this probe."""
_OWN, _OTHERS, _OUTSIDE = range(3)
_OUTSIDE_FILES = tuple(
    os.path.join("torch", "utils", "data", *file)
    for file in (("_utils", "fetch.py"), ("_utils", "worker.py"), ("dataloader.py",))
)
"""Callers of the dataset; frames outside of these produce no batch."""


@lru_cache(MOST_FILES)
def _kind_of(file: str) -> int:
    if file.endswith(_OUTSIDE_FILES):
        return _OUTSIDE
    if file.startswith("<frozen ") or any(folder in file for folder in PACKAGES):
        return _OTHERS
    return _OTHERS if os.path.realpath(file).startswith(_OTHERS_FOLDERS) else _OWN


def is_users(path: str) -> bool:
    """Return True for user code: not the standard library, an installed package, or this probe."""
    return _kind_of(path) == _OWN


def call_site() -> tuple[str | None, int | None]:
    """Return file and line of the innermost caller in user code, or of the outermost caller if there is none."""
    frame: FrameType | None = sys._getframe(1)
    place: tuple[str | None, int | None] = (None, None)
    while frame is not None:
        place = (frame.f_code.co_filename, frame.f_lineno)
        if is_users(frame.f_code.co_filename):
            return place
        frame = frame.f_back
    return place


def frame_of(thread: int) -> FrameType | None:
    """Return the current frame of a thread, or None if the thread has ended.

    Garbage collection is disabled meanwhile: sys._current_frames creates frames under an interpreter lock, and a
    collection that frees a threading.local requests this lock again and deadlocks (CPython gh-106883).
    """
    is_put_off = COLLECTS_ANYWHERE and gc.isenabled()
    if is_put_off:
        gc.disable()
    try:
        return sys._current_frames().get(thread)
    finally:
        if is_put_off:
            gc.enable()


def stack_of(frame: FrameType | None) -> Stack:
    """Copy a stack while no other Python runs: a reference to a frame would release variables in this thread."""
    stack: Stack = []
    while frame is not None and len(stack) < MOST_FRAMES:
        stack.append((frame.f_code, frame.f_lineno or frame.f_code.co_firstlineno))
        frame = frame.f_back
    return stack


def stack_text(stack: Stack) -> str:
    """Return the end of a stack as a traceback shows it, innermost last."""
    innermost_last = [FrameSummary(code.co_filename, line, code.co_name) for code, line in reversed(stack)]
    return "".join(format_list(innermost_last))[-_STACK_CHARS:]


class CodeLines:
    """Nanoseconds by place in user code. One thread adds and any thread takes; additions during a take may be lost."""

    def __init__(self, name: Callable[[str], int]) -> None:
        """`name` returns a text's number in the evidence."""
        self._name = name
        # Keyed by text: code objects compare equal even if their files differ.
        self._places: dict[tuple[str, int, str], int] = {}
        self._counts: dict[int, int] = {}

    def add(self, stack: Stack, ns: int) -> None:
        """Charge the innermost line of user code; nothing if only libraries are on the stack."""
        for code, line in stack:
            kind = _kind_of(code.co_filename)
            if kind == _OTHERS:
                continue
            place = self._place(code, line) if kind == _OWN else None
            if place is not None:
                self._counts[place] = self._counts.get(place, 0) + ns
            return

    def take(self) -> list[tuple[int, int]]:
        """Return pairs of place and microseconds since the last call."""
        counts, self._counts = self._counts, {}
        return [(place, ns // 1000) for place, ns in list(counts.items())]

    def _place(self, code: CodeType, line: int) -> int | None:
        name: str = getattr(code, "co_qualname", code.co_name)
        key = (code.co_filename, line, name)
        number = self._places.get(key)
        if number is None and len(self._places) < MOST_PLACES:
            number = self._places[key] = self._name("{}:{}:{}".format(*key))
        return number


class SampledWork(Protocol):
    """Work of a thread since `start`, by time.monotonic_ns(): a batch, or the loop's own work."""

    thread: int
    start: int


class StackSampler:
    """Thread that samples the stack only during batch production, about once per PERIOD_NS *of production time*.

    Shorter batches are sampled now and then, and a process that trains in between is left alone. Each sample stands for
    the time since the last. The thread starts with the first batch, stops before a fork (Python 3.12 warns about a fork
    while threads run), and restarts with the next batch.
    """

    def __init__(
        self,
        look: Callable[[Stack, int], None],
        hung: Callable[[Any, int, str], None],
        failed: Callable[[Exception], None],
    ) -> None:
        """`look(stack, ns)` receives each sample, `hung(batch, ns, stack)` once a batch that takes too long.

        `failed(error)` is called once, when sampling is no longer possible.
        """
        self._look = look
        self._hung = hung
        self._failed = failed
        self._is_off = False
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()  # several threads may each begin their first batch
        self._gate = threading.Event()
        self._halt = threading.Event()
        self._batch: SampledWork | None = None
        self._last_ns = 0
        self._usual_ns = 0
        self._busy_ns = 0
        self._looked_ns = 0
        self._due_ns = round(PERIOD_NS * random.Random(time.monotonic_ns()).random())
        self._random = random.Random(self._due_ns)  # a private generator leaves the user's draws unchanged
        self._told: SampledWork | None = None
        self.cost_ns = 0

    def begin(self, batch: SampledWork) -> None:
        """Sample a batch from now on; of several at once, the last begun."""
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

    def end(self, batch: SampledWork, wall_ns: int) -> None:
        if self._batch is batch:
            self._batch = None
        self._last_ns = wall_ns
        self._usual_ns = (
            wall_ns if self._usual_ns == 0 else (7 * self._usual_ns + min(wall_ns, 8 * self._usual_ns)) // 8
        )
        self._busy_ns += wall_ns

    def stop(self) -> None:
        """End the thread until the next batch begins."""
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
        except RuntimeError as error:  # a limit is reached, or the interpreter is shutting down
            self._give_up(error)

    def _run(self, gate: threading.Event, halt: threading.Event) -> None:
        try:
            while not halt.is_set():
                self._wait_or_look(gate, halt)
        except Exception as error:
            self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        self._is_off = True
        self._failed(error)

    def _wait_or_look(self, gate: threading.Event, halt: threading.Event) -> None:
        batch = self._batch
        if batch is None:
            gate.clear()
            if self._batch is None:
                gate.wait(IDLE_S)
            return
        busy = self._busy_ns + time.monotonic_ns() - batch.start
        if self._batch is not batch:  # otherwise `busy` may count it twice
            return
        if busy < self._due_ns:
            halt.wait((self._due_ns - busy) / 1e9)
        else:
            self._take_look(batch, busy)

    def _take_look(self, batch: SampledWork, busy_ns: int) -> None:
        started = time.thread_time_ns()
        stack = stack_of(frame_of(batch.thread))
        if stack and self._batch is batch:
            self._look(stack, max(0, busy_ns - self._looked_ns))
            taken = time.monotonic_ns() - batch.start
            if batch is not self._told and taken > max(HUNG_NS, HUNG_TIMES * self._usual_ns):
                self._told = batch
                self._hung(batch, taken, stack_text(stack))
        self._looked_ns = busy_ns
        cost = time.thread_time_ns() - started
        self.cost_ns += cost
        # A pause is longer if sampling exceeds its share of a core or the batch takes long.
        pause_ns = max(PERIOD_NS, cost / MOST_SAMPLER_SHARE, (time.monotonic_ns() - batch.start) / 1000)
        self._due_ns = busy_ns + round(pause_ns * self._random.uniform(0.5, 1.5))
