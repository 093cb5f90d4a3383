"""Watch over the training thread: it stands still once no step ends, no batch arrives, and it stays at one line."""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from typing import Any

from ..evidence_file import EvidenceFile
from ..settings import ProbeSettings, SessionClock
from ..stack_sampler import Stack, frame_of, is_users, stack_of, stack_text

MARK = "stands-"
"""Prefix of the file, by pid in the session's folder, that tells the doctor that a training thread stands still.

It is empty unless the thread may wait for other ranks at full speed."""
TOLD = 1 / 3
"""Share of the settings' `standstill_s` without a step or a batch after which the stack is written."""
TIMES = 20
"""Least time without a step or a batch, as a multiple of the usual time between two of them."""
SAME = 1 / 6
"""Share of `standstill_s` at one line of user code."""
BUSY = 0.5
"""Share of a core above which a thread computes, unless several ranks may wait for each other on a device."""
PERIOD_S = 0.5
STANDS, MOVES = "stands", "moves"
"""Kinds of the stack record, which is empty once the thread moves again."""

now = time.monotonic_ns


class StandstillWatch:
    """Thread that looks at the training thread twice a second, from its first batch on."""

    def __init__(self, settings: ProbeSettings, evidence: EvidenceFile, clock: SessionClock) -> None:
        self._folder, self._evidence, self._clock = settings.folder, evidence, clock
        self._most_ns = round(settings.standstill_s * 1e9)
        self._halt: threading.Event | None = None
        self.forked()

    def forked(self) -> None:
        self._halt = None
        self._batches = self._steps = 0
        self._moved_ns = self._usual_ns = 0
        self._is_told = self._is_marked = False

    def batch_returned(self) -> None:
        self._batches += 1
        self._moved()

    def step_ended(self) -> None:
        self._steps += 1
        self._moved()

    def _moved(self) -> None:
        moved = now()
        if self._moved_ns:
            taken = moved - self._moved_ns
            self._usual_ns += (min(taken, 8 * self._usual_ns or taken) - self._usual_ns) // 8
        self._moved_ns = moved

    def follow(self, thread: int) -> None:
        """Watch a thread from now on, unless one is watched already."""
        if self._halt is not None:
            return
        self._halt = threading.Event()
        self._moved_ns = self._moved_ns or now()
        watch = threading.Thread(
            target=self._run, args=(thread, self._halt), name="headrace-doctor-standstill", daemon=True
        )
        with suppress(RuntimeError):  # a limit is reached, or the interpreter is shutting down
            watch.start()

    def stop(self) -> None:
        """End the watch until the next batch."""
        if self._halt is not None:
            self._halt.set()
            self._halt = None

    def _run(self, thread: int, halt: threading.Event) -> None:
        place: Any = None
        since = cpu = 0
        while not halt.wait(PERIOD_S):
            moved = self._moved_ns
            still_ns = now() - moved
            if still_ns < max(TOLD * self._most_ns, TIMES * self._usual_ns) - SAME * self._most_ns:
                place = None
                self._tell_moved()
                continue
            stack = stack_of(frame_of(thread))
            if not stack:  # it has ended
                return
            used = _cpu_ns(thread)
            at = next(((code, line) for code, line in stack if is_users(code.co_filename)), stack[:1])
            if place != at or (used - cpu > BUSY * (now() - since) and not _may_spin()):
                place, since, cpu = at, now(), used
            elif now() - since >= SAME * self._most_ns and self._moved_ns == moved:
                self._tell(stack, still_ns)

    def _tell(self, stack: Stack, still_ns: int) -> None:
        if not self._is_told:
            self._is_told = True
            text = f"{self._batches} batches, {self._steps} steps\n{stack_text(stack)}"
            self._evidence.write(("stack", self._clock.now_us(), STANDS, text))
        if not self._is_marked and still_ns >= max(self._most_ns, TIMES * self._usual_ns):
            self._is_marked = True
            with suppress(OSError), open(self._mark(), "w", encoding="utf-8") as file:
                file.write("spins" if _may_spin() else "")

    def _tell_moved(self) -> None:
        if self._is_told:
            self._evidence.write(("stack", self._clock.now_us(), MOVES, ""))
        if self._is_marked:
            with suppress(OSError):
                os.remove(self._mark())
        self._is_told = self._is_marked = False

    def _mark(self) -> str:
        return os.path.join(self._folder, f"{MARK}{os.getpid()}")


def _cpu_ns(thread: int) -> int:
    """Return the CPU time of a thread; 0 if it has ended."""
    try:
        return time.clock_gettime_ns(time.pthread_getcpuclockid(thread))
    except OSError:
        return 0


def _may_spin() -> bool:
    """Return True if a rank may wait for the others at full speed, as a CUDA stream does."""
    return int(os.environ.get("WORLD_SIZE") or 1) > 1
