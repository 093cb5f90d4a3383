"""`Tuner`: a loader's threads and prefetch from pass to pass, found by hill climbing."""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from headrace.system import default_threads

Knob: TypeAlias = Literal["threads", "prefetch"]
KNOBS: tuple[Knob, ...] = ("threads", "prefetch")

START_PREFETCH, LEAST_PREFETCH, MOST_PREFETCH, MEMORY_SHARE = 3, 2, 16, 1 / 8
"""Start and bounds of prefetch, and the share of the available memory that its batches may take. More batches only even
out variation; fewer, without a batch in the making while another is delivered, are for a lack of memory."""
WAITS, SATURATED = 0.01, 0.98
"""Share of waiting from which more may pay off, and busy share of threads from which more prefetch cannot."""
MOST_BUSY, TRAINS = 0.6, 0.25
"""Busy share up to which fewer threads are tried: above it they gain little, and larger images come sooner or later.
However busy they are, training that computes for this share of the time may want a core."""
GAIN, LOSS, SURE = 0.02, 0.01, 1.5
"""Share of a step that more must save, and that less may cost; and standard errors beyond which a difference counts."""
CALMER, SLACK = 0.7, 0.02
"""Remaining share of the waiting at which more prefetch has paid off, as the wait drops before the step gets shorter;
and share of time for which a feed that keeps up finds all places full."""
TRIAL_WINDOWS, STANDING_WINDOWS, OTHER = 2, 10, 0.1
"""Windows of a trial, and latest ones at a setting, against which it counts. Two in a row with a step that differs by
this share mark another phase of the run; a single one may be another process's doing."""
FIRST_REST_S, MOST_REST_S = 4.0, 32.0
"""Rest until a direction that did not pay off is tried again. It doubles up to the maximum. A try with less costs half
the rate for a second on two cores; a try with more costs little."""


@dataclass(frozen=True)
class Setting:
    """Setting of the knobs: the core's working `threads`, and `prefetch`, batches in flight or ready."""

    threads: int
    prefetch: int

    def of(self, knob: Knob) -> int:
        return self.threads if knob == "threads" else self.prefetch


@dataclass(frozen=True, kw_only=True)
class Observation:
    """Sums over steps at one setting. A step lasts from one batch's arrival to the next: work plus wait."""

    steps: int = 0
    wall_s: float = 0.0
    squares_s2: float = 0.0
    """Sum of the squared step times."""
    wait_s: float = 0.0
    """Consumer's wait for batches. High: the feed is too slow."""
    lowest_ready: int = sys.maxsize
    """Lowest number of ready batches at any request."""
    feed_wait_s: float = 0.0
    """Wait of the feed for a free place. High: the feed could do more."""
    idle_s: float = 0.0
    """Wait of the core's threads for work, summed over threads."""
    consumer_cpu_s: float = 0.0
    """CPU time of the thread that takes the batches. High: training computes on the CPU."""
    batch_bytes: int = 0
    available_bytes: int | None = None
    """Memory that this process could still take; None if unknown."""

    @property
    def step_s(self) -> float:
        return self.wall_s / self.steps

    @property
    def error_s(self) -> float:
        """Standard error of the mean step."""
        variance = max(0.0, self.squares_s2 / self.steps - self.step_s**2)
        return math.sqrt(variance / (self.steps - 1)) if self.steps > 1 else self.step_s

    def __add__(self, later: Observation) -> Observation:
        """Return the sum of two observations at the same setting."""
        names = ("steps", "wall_s", "squares_s2", "wait_s", "feed_wait_s", "idle_s", "consumer_cpu_s")
        sums = {name: getattr(self, name) + getattr(later, name) for name in names}
        return replace(later, **sums, lowest_ready=min(self.lowest_ready, later.lowest_ready))


@dataclass(frozen=True)
class Move:
    """Value of a knob to try instead of its value in `start`."""

    knob: Knob
    value: int
    start: Setting

    @property
    def up(self) -> bool:
        return self.value > self.start.of(self.knob)

    def pays(self, before: Observation, now: Observation) -> bool:
        """Return True if steps are better after the move than before."""
        saved_s, noise_s = before.step_s - now.step_s, SURE * math.hypot(before.error_s, now.error_s)
        if abs(saved_s) > max((GAIN if saved_s > 0 else LOSS) * before.step_s, noise_s):
            return saved_s > 0
        if self.up:
            was_s, is_s = before.wait_s / before.steps, now.wait_s / now.steps
            return self.knob == "prefetch" and is_s < CALMER * was_s and was_s - is_s > LOSS / 2 * before.step_s
        # Check that batches still come in time after the batches that were ready before are used up.
        slack = self.knob == "prefetch" or now.feed_wait_s >= SLACK * now.wall_s
        return slack and now.wait_s < WAITS * now.wall_s


def moves(setting: Setting, seen: Observation) -> Iterator[Move]:
    """Yield the moves that the latest steps at `setting` suggest, the most promising first."""
    threads, prefetch = setting.threads, setting.prefetch
    busy = max(0.0, threads - seen.idle_s / seen.wall_s)  # threads that had work
    waits, trains = seen.wait_s >= WAITS * seen.wall_s, seen.consumer_cpu_s >= TRAINS * seen.wall_s
    more = []
    if waits and busy < SATURATED * threads:
        more.append(Move("prefetch", prefetch + max(1, prefetch // 2), setting))
    if waits and 2 * busy >= threads:
        more.insert(0 if busy >= 0.75 * threads else 1, Move("threads", threads + max(1, threads // 2), setting))
    yield from more
    fewer = threads - max(1, threads // 4)
    if trains or (not waits and busy <= MOST_BUSY * fewer):
        yield Move("threads", fewer, setting)
    if not waits and seen.lowest_ready >= 2 and prefetch > LEAST_PREFETCH:
        yield Move("prefetch", prefetch - 1, setting)


class Tuner:
    """Setting of one loader. Each change is a trial, and stays if it pays. The next pass begins where the last ended.

    Two passes may report at once from two threads, as passes to a device do; one of the two reports is then dropped. No
    thread waits for the lock, so that a fork in between cannot leave a thread waiting forever.
    """

    def __init__(self, start: Setting, most: Setting, tuned: Collection[Knob] = KNOBS) -> None:
        """Start at a setting, with upper bounds. A knob that is not `tuned` never changes."""
        self.setting, self.most, self.tuned = start, most, tuned
        self._lock = threading.Lock()
        self._reasons: dict[tuple[Knob, bool], str] = {}  # findings about the values below and above a knob's value
        self._elapsed_s = 0.0
        self._standing: list[Observation] = []  # latest windows at the setting, its trial included
        self._odd: Observation | None = None  # latest window, if it differs from `_standing`
        self._trial: tuple[Move, Observation, list[Observation]] | None = None  # a move, steps before, windows since
        self._rests: dict[tuple[Knob, bool], tuple[float, float]] = {}  # end of a direction's rest, and the next length

    @property
    def reasons(self) -> dict[str, str]:
        """Reason for the value of each tuned knob; a value on trial has the reason of the previous value."""
        trial = self._trial  # read once: the caller may be on another thread
        setting = self.setting if trial is None else trial[0].start
        reasons: dict[str, str] = {}
        for knob in self.tuned:
            below, above = self._reasons.get((knob, False)), self._reasons.get((knob, True))
            if above is None and setting.of(knob) == self.most.of(knob):
                above = "there are no more cores" if knob == "threads" else "no more is tried"
            reasons[knob] = "; ".join(text for text in (below, above) if text is not None) or "as it began"
        return reasons

    def observe(self, seen: Observation) -> None:
        """Take the observation of a pass at `setting`."""
        self._unless_busy(lambda: self._climb(seen))

    def refuse_threads(self, most: int) -> None:
        """Lower the upper bound to `most`, because the system grants no more threads."""
        self._unless_busy(lambda: self._limit("threads", most, "the system refused more"))

    def _unless_busy(self, change: Callable[[], None]) -> None:
        if self._lock.acquire(blocking=False):
            try:
                change()
            finally:
                self._lock.release()

    def _limit(self, knob: Knob, value: int, reason: str) -> None:
        """Adopt a limit of the system, without a trial."""
        self._trial, self._odd, self._standing = None, None, []
        self.setting = replace(self.setting, **{knob: value})
        if knob == "threads":
            self.most = replace(self.most, threads=value)
        self._reasons.pop((knob, False), None)
        self._reasons[knob, True] = reason

    def _climb(self, seen: Observation) -> None:
        self._elapsed_s += seen.wall_s
        if self._trial is None:
            self._stand(seen)
        else:
            self._weigh(*self._trial, seen)
        most, free = self.most, seen.available_bytes
        if free is not None and seen.batch_bytes and "prefetch" in self.tuned:
            batches = free / seen.batch_bytes + self.setting.prefetch  # its own batches take memory already
            most = replace(most, prefetch=max(1, min(most.prefetch, math.floor(MEMORY_SHARE * batches))))
        if free is not None and self.setting.prefetch > most.prefetch:
            sizes = f"{seen.batch_bytes / 1e6:,.0f} MB are too much for {free / 1e9:,.1f} GB of memory"
            self._limit("prefetch", most.prefetch, f"more batches of {sizes}")
        elif self._trial is None and self._odd is None:
            self._try_next(sum(self._standing, Observation()), most)

    def _stand(self, seen: Observation) -> None:
        """Take a window outside of a trial: more of the same, or the first sign of another phase of the run."""
        before = sum(self._standing, Observation()) if self._standing else seen
        noise_s = 2 * SURE * math.hypot(before.error_s, seen.error_s)
        if abs(seen.step_s - before.step_s) <= OTHER * before.step_s + noise_s:
            self._standing, self._odd = [*self._standing, seen][-STANDING_WINDOWS:], None
        elif self._odd is None:
            self._odd = seen
        else:
            self._standing, self._odd = [self._odd, seen], None
            self._rests.clear()

    def _try_next(self, standing: Observation, most: Setting) -> None:
        for move in moves(self.setting, standing):
            value = min(move.value, most.of(move.knob))
            until_s, _ = self._rests.get((move.knob, move.up), (0.0, 0.0))
            if move.knob in self.tuned and 1 <= value != self.setting.of(move.knob) and self._elapsed_s >= until_s:
                self._trial = replace(move, value=value), standing, []
                self.setting = replace(self.setting, **{move.knob: value})
                return

    def _weigh(self, move: Move, before: Observation, windows: list[Observation], seen: Observation) -> None:
        windows.append(seen)
        if len(windows) < TRIAL_WINDOWS:
            return
        self._trial, now = None, sum(windows, Observation())
        pays, knob, up, was = move.pays(before, now), move.knob, move.up, move.start.of(move.knob)
        if pays:
            self._standing = [now]
            self._reasons.pop((knob, up), None)
            waited = f"{was} left the consumer waiting {before.wait_s / before.wall_s:.0%}"
            self._reasons[knob, not up] = waited if up else _compared(was, before.step_s / now.step_s - 1)
        else:
            self.setting, longer = move.start, now.step_s / before.step_s - 1
            too_slow = f"{move.value} could not keep up"
            self._reasons[knob, up] = _compared(move.value, longer) if up or longer > LOSS else too_slow
        back = knob, up != pays  # also from a value that paid: otherwise two equal settings would alternate forever
        _, length_s = self._rests.get(back, (0.0, FIRST_REST_S))
        self._rests[back] = self._elapsed_s + length_s, min(2 * length_s, MOST_REST_S)


def _compared(value: int, longer: float) -> str:
    """Describe the effect of another value by how much longer it made a step."""
    return f"{value} made a step {longer:.0%} longer" if longer > LOSS else f"{value} were no faster"


def tuner_of(threads: int | None, prefetch: int | None) -> Tuner:
    """Return the tuner for a loader's arguments; None means tuned. Threads start at the maximum, for short runs."""
    most = default_threads() if threads is None else threads  # reading the control groups takes a millisecond
    given: dict[Knob, int | None] = {"threads": threads, "prefetch": prefetch}
    return Tuner(
        Setting(most, START_PREFETCH if prefetch is None else prefetch),
        Setting(most, MOST_PREFETCH if prefetch is None else prefetch),
        tuned=[knob for knob, value in given.items() if value is None],
    )
