"""Watches over the training loop: its work on batches, the limit of its steps, and a standstill.

Work begins with a received batch, and ends when the model is called or the next batch is requested: rebatching, casts,
normalisation, `get_batch` without a known loader. If a backward pass or an optimizer comes first, no model was seen,
and the time counts as part of the forward pass. In a standstill there is no step, no batch, and one line.
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Callable

from ..evidence_file import EvidenceFile, Record
from ..settings import ProbeSettings, SessionClock
from ..stack_sampler import CodeLines, Stack, StackSampler, frame_of, is_users, stack_of, stack_text
from ..stages import nothing
from .steps import WORK, OptimizerStep, StepTimeline

DEADLINE_S = 30.0
"""Time after which a rank counts as being elsewhere in its program, since ranks train in step."""
SETTLING_STEPS = 3
"""Warm-up steps beyond those that empty the prefetch queue, for kernel selection, compilation and caching."""
PLAINLY = 0.025
"""Share of the steps below which the data stall is clearly below the bound of an input-bound run."""
LONGEST_S = 30.0
FEWEST_LONG = 60
"""Seconds after which observation ends, and the minimum steps, since fewer would miss rare events."""

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
WORTH_SAMPLING_NS = 200_000
"""Minimum duration of sampled work. Lines of shorter work would explain nothing."""
_PAUSE_NS, _LONGEST_PAUSE_NS = 1_000_000_000, 60_000_000_000
"""First and maximum interval between two records of lines."""

now = time.monotonic_ns


@dataclass(eq=False)
class WorkInterval:
    """Work in progress: its start and thread, as `StackSampler` expects."""

    start: int
    thread: int


class LoopWork:
    """Work between batches and models, with sampled lines. The hook's `watch` and `ignore` frame a model call."""

    def __init__(self, name: Callable[[str], int], failed: Callable[[Exception], None]) -> None:
        """`name` returns a text's number in the evidence; `failed` is called once if sampling becomes impossible."""
        self.watch: Callable[[], None] = nothing
        self.ignore: Callable[[], None] = nothing
        self.is_hooked = False
        """True if model calls are observed."""
        self._lines = CodeLines(name)
        self._sampler = StackSampler(self._lines.add, nothing, failed)  # slow work in the loop is expected, no hang
        self._now: WorkInterval | None = None
        self._before: WorkInterval | None = None
        self._kind = ""
        self._last_ns = 0
        self._told_cost_ns = 0
        self._pause = _PAUSE_NS
        self._due: int | None = None

    @property
    def is_under_way(self) -> bool:
        return self._now is not None

    def starts(self, thread: int) -> None:
        """Sample the lines of the program's start, up to the first pass over a loader."""
        self._before = WorkInterval(time.monotonic_ns(), thread)
        self._sampler.begin(self._before)

    def started(self, now_us: int) -> list[Record]:
        """End the program's start, and return the record of its lines."""
        interval, self._before = self._before, None
        if interval is None:
            return []
        self._sampler.end(interval, time.monotonic_ns() - interval.start)
        return [("before", now_us, self._lines.take())]

    def begin(self, kind: str, start: int, thread: int) -> None:
        """Begin work: a batch has arrived, or, with kind UNSOURCED, a step without a known source has ended."""
        if not self.is_hooked:
            return
        is_new = self._now is None
        self._now, self._kind = WorkInterval(start, thread), kind
        if is_new:
            self.watch()
        if self._last_ns >= WORTH_SAMPLING_NS:
            self._sampler.begin(self._now)

    def end(self, end: int, steps: StepTimeline) -> None:
        """End the work: the model is called, or another batch is requested."""
        interval = self._now
        if interval is not None:
            self._last_ns = end - interval.start
            steps.worked(self._kind, interval.start, end)
            self.drop()

    def drop(self) -> None:
        """Discard the work in progress: no model was seen."""
        interval, self._now = self._now, None
        if interval is not None:
            self.ignore()
            self._sampler.end(interval, time.monotonic_ns() - interval.start)

    def restart(self, start: int) -> None:
        """Move the start of the work to now: the time before was the probe's own."""
        if self._now is not None:
            self._now.start = start

    def stop(self) -> None:
        """End the work and the sampling thread, which restarts with the next work worth sampling."""
        self.drop()
        self._sampler.stop()

    def forking(self) -> None:
        """Stop the sampling thread before a fork."""
        self._sampler.stop()

    def forked(self) -> None:
        self._before = None
        self.drop()
        self._lines.take()

    def cost_ns(self) -> int:
        before, self._told_cost_ns = self._told_cost_ns, self._sampler.cost_ns
        return self._told_cost_ns - before

    def records(self, now: int, now_us: int, is_over: bool) -> list[Record]:
        """Return the record of lines since the last one, once due."""
        if self._due is None:
            self._due = now + self._pause
        if now < self._due and not is_over:
            return []
        self._pause = min(2 * self._pause, _LONGEST_PAUSE_NS)
        self._due = now + self._pause
        lines = self._lines.take()
        return [("loop", now_us, lines)] if lines else []


class StepLimit:
    """Count of warm-up and measured steps, which is the same for all ranks, so that they end after the same step."""

    def __init__(self, warmup: int | None, steps: int | None, enough: int = 0) -> None:
        """`warmup` None: steps that empty the prefetch queue, and three more. `steps` None: no end.

        `enough`: measured steps after which a run that hardly waits for data may end; 0: never.
        """
        self.warmup = warmup
        self._steps = steps
        self._prefetched = 0
        self.is_over = False
        self._enough, self.is_enough = enough, False
        self.is_late = False
        """True if time ended the observation."""
        self._lengths: list[int | None] = []
        self._batches = self._waited_ns = self._lasted_ns = self._observed = 0

    def prefetches(self, batches: int) -> None:
        """Count a new DataLoader that may prefetch `batches` batches."""
        self._prefetched = max(self._prefetched, batches)

    def settle(self, number: int, gets: int) -> bool:
        """Count a step with `gets` batches. Return True if it settles the warm-up: the second; the first gets more."""
        if self.warmup is not None or number < 1:
            return False
        self.warmup = -(-self._prefetched // max(gets, 1)) + SETTLING_STEPS
        return True

    def lasts(self, batches: int | None) -> None:
        """Count a pass of `batches` batches over a DataLoader; None if unknown."""
        self._lengths.append(batches)

    def observed(self, step: OptimizerStep) -> None:
        """Count a measured, closed step. End the run with it if the run clearly hardly waits for data.

        The run does not end early if a pass ends before the requested steps: the cost of its end is not measured yet.
        Observation of long steps ends once its time is up, but not within an epoch that ends before the requested
        steps.
        """
        self._observed += 1
        self._batches += len(step.gets)
        self._waited_ns += sum(one.end - one.start for one in step.gets)
        self._waited_ns += sum(end - start for kind, start, end in step.spans if kind == WORK)
        self._lasted_ns += (step.end or step.start) - step.start
        if not self._enough or self._steps is None or not self._batches:
            return
        wanted = self._steps * self._batches / self._observed
        lengths = [0 if length is None else length for length in self._lengths]
        is_long = all(length >= wanted for length in lengths)
        if self._observed == self._enough and is_long and self._waited_ns < PLAINLY * self._lasted_ns:
            self._steps, self.is_enough = self._observed, True
        elif self._observed >= FEWEST_LONG and self._lasted_ns >= LONGEST_S * 1e9:
            known = [length for length in self._lengths if length is not None]
            a_step = self._batches / self._observed
            if all(length >= wanted or (length > 0 and self._batches % length < a_step) for length in known):
                self._steps, self._enough, self.is_late = self._observed, 0, True

    def end_after(self, steps: int) -> None:
        """Set the end of the run to `steps` steps in total."""
        self._steps = steps - (self.warmup or 0)

    def is_reached(self, steps: int) -> bool:
        return self._steps is not None and self.warmup is not None and steps >= self.warmup + self._steps


class StandstillWatch:
    """Thread that looks at the training thread twice a second, from its first batch on."""

    def __init__(
        self, settings: ProbeSettings, evidence: EvidenceFile, clock: SessionClock, is_fetching: Callable[[], bool]
    ) -> None:
        """`is_fetching`: returns True while the training thread waits for a batch."""
        self._folder, self._evidence, self._clock = settings.folder, evidence, clock
        self._most_ns = round(settings.standstill_s * 1e9)
        self._is_fetching = is_fetching
        self.has_peers = int(os.environ.get("WORLD_SIZE") or 1) > 1
        """True if other ranks train with this one."""
        self.forked()

    def forked(self) -> None:
        self._halt: threading.Event | None = None
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
            if place != at or (used - cpu > BUSY * (now() - since) and not self._may_spin()):
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
                file.write("spins" if self._may_spin() else "")

    def _tell_moved(self) -> None:
        if self._is_told:
            self._evidence.write(("stack", self._clock.now_us(), MOVES, ""))
        if self._is_marked:
            with suppress(OSError):
                os.remove(self._mark())
        self._is_told = self._is_marked = False

    def _may_spin(self) -> bool:
        """Return True if the thread may wait for other ranks at full speed, as a CUDA stream does."""
        return self.has_peers and not self._is_fetching()

    def _mark(self) -> str:
        return os.path.join(self._folder, f"{MARK}{os.getpid()}")


def _cpu_ns(thread: int) -> int:
    """Return the CPU time of a thread; 0 if it has ended."""
    try:
        return time.clock_gettime_ns(time.pthread_getcpuclockid(thread))
    except OSError:
        return 0
