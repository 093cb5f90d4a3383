"""Hill climbing over settings: which move to try next, whether it paid off, and why."""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import Enum

from headrace.loader.autotuning.observation import KNOBS, Knob, Observation, Setting, TuningBounds

STARVED = 0.02
"""Share of waiting from which more threads may pay off."""
WAITS = 0.01
"""Share of waiting from which more prefetching may pay off. Below it, the feed may need less."""
MOSTLY_WAITING = 0.2
"""Share of waiting from which fewer threads cannot pay off: training computes too little."""
TRAINS = 0.25
"""Cores in use besides the feed's from which training counts as computing on the CPU."""
MOST_BUSY = 0.6
"""Busy share up to which fewer threads are tried if nothing else needs the core. Above it, fewer threads gain little,
and larger images will come sooner or later."""
ENOUGH_STEPS = 200
"""Steps after which the lowest number of ready batches shows how many are needed."""
SPARE = 1.25
"""Threads per busy thread."""
SATURATED = 0.98
"""Busy share of the threads from which more prefetching cannot raise their output."""
LEAST_AHEAD = 2
"""Lowest prefetch: one batch to deliver and one in the making. Only a lack of memory allows fewer."""


@dataclass(frozen=True)
class Move:
    knob: Knob
    value: int
    up: bool


def moves(setting: Setting, seen: Observation, all_seen: Observation, bounds: TuningBounds) -> Iterator[Move]:
    """Yield the moves that the latest steps at `setting` justify, the most promising first.

    `all_seen` covers more steps than `seen`.
    """
    wait, busy = seen.wait_share, seen.busy_threads(setting.threads) / setting.threads
    threads = _more_threads(setting, seen, bounds) if wait >= STARVED and busy >= 0.5 else None
    wanted = setting.prefetch + max(1, setting.prefetch // 2)
    prefetch = _move(setting, bounds, "prefetch", wanted) if wait >= WAITS and busy < SATURATED else None
    more = (threads, prefetch) if busy >= 0.75 else (prefetch, threads)
    yield from (move for move in more if move is not None)
    if (move := _fewer_threads(setting, seen, bounds)) is not None:
        yield move
    spare = all_seen.steps >= ENOUGH_STEPS and all_seen.lowest_ready >= 2 and setting.prefetch > LEAST_AHEAD
    if wait < WAITS and spare and (move := _move(setting, bounds, "prefetch", setting.prefetch - 1)) is not None:
        yield move


def _more_threads(setting: Setting, seen: Observation, bounds: TuningBounds) -> Move | None:
    """Propose enough threads to make a batch in the time the consumer works on one; one more if waits are short."""
    wanted = setting.threads + 1
    if seen.wait_share >= MOSTLY_WAITING:
        work_s = max(seen.wall_s - seen.wait_s, seen.wall_s / bounds.most.threads)
        wanted = max(wanted, math.ceil(seen.busy_threads(setting.threads) * seen.wall_s / work_s))
    return _move(setting, bounds, "threads", wanted)


def _fewer_threads(setting: Setting, seen: Observation, bounds: TuningBounds) -> Move | None:
    """Propose fewer threads if some of them idle.

    Where training computes on the cores of the feed's threads, some busy threads only wait for a core. There is up to
    one waiting thread per group of `threads` + 1.
    """
    threads = setting.threads
    busy = seen.busy_threads(threads)
    training = max(seen.cores - busy, seen.consumer_cpu_s / seen.wall_s)  # lower bound, in cores
    contended = training >= TRAINS and threads + training > bounds.most.threads
    if contended:
        busy = min(busy, max(0.0, seen.cores - training))
    fewer = min(threads - 1, max(math.ceil(busy * SPARE), threads // 2, 1))
    most_busy, most_wait = (1 + 1 / threads, MOSTLY_WAITING) if contended else (MOST_BUSY, WAITS)
    if fewer < 1 or busy / fewer > most_busy or seen.wait_share >= most_wait:
        return None
    return _move(setting, bounds, "threads", fewer)


def _move(setting: Setting, bounds: TuningBounds, knob: Knob, wanted: int) -> Move | None:
    """Return the move to `wanted`, limited by the bounds; None if the knob cannot move."""
    least, most = bounds.of(knob)
    now, value = setting.of(knob), max(least, min(most, wanted))
    return None if value == now or (value > now) != (wanted > now) else Move(knob, value, value > now)


GAIN = 0.02
"""Share of a step that a move up must save."""
LOSS = 0.01
"""Share of a step that a move down may cost."""
SLACK = 0.02
"""Share of time for which a feed that keeps up finds all places full."""
CALMER = 0.7
"""Remaining share of the waiting at which more prefetching has paid off, whatever the step's jitter."""
SURE = 1.5
"""Standard errors beyond which a difference counts."""
MOST_WINDOWS = 3
"""Windows after which a difference hidden by noise counts as none."""


class MoveVerdict(Enum):
    KEEP = "keep"
    BACK = "back"
    LONGER = "look longer"


def judge(move: Move, before: Observation, now: Observation, windows: int) -> MoveVerdict:
    """Judge a move by `now`, the sum of the `windows` windows since the move."""
    noise_s = SURE * math.hypot(before.error_s, now.error_s)
    saved_s = before.step_s - now.step_s
    if saved_s > max(GAIN * before.step_s, noise_s):
        return MoveVerdict.KEEP
    if move.up and move.knob == "prefetch" and _is_calmer(before, now, noise_s):
        return MoveVerdict.KEEP
    if -saved_s > max(LOSS * before.step_s, noise_s):
        return MoveVerdict.BACK
    if move.up and before.wait_share >= MOSTLY_WAITING and (move.knob == "threads" or move.value <= LEAST_AHEAD):
        return MoveVerdict.KEEP  # noise hides any gain; seconds of waiting would cost the most
    if noise_s > (GAIN if move.up else LOSS) * before.step_s and windows < MOST_WINDOWS:
        return MoveVerdict.LONGER
    # Check that batches still come in time after the batches that were ready at the move are used up.
    keeps_up = now.wait_share < WAITS and (move.knob == "prefetch" or now.feed_wait_share >= SLACK)
    return MoveVerdict.BACK if move.up or not keeps_up else MoveVerdict.KEEP


def _is_calmer(before: Observation, now: Observation, noise_s: float) -> bool:
    """Return True if the consumer waits less. The wait drops before the step gets shorter."""
    was_s, is_s = before.wait_s / before.steps, now.wait_s / now.steps
    saved_s = was_s - is_s
    return is_s < CALMER * was_s and saved_s > LOSS / 2 * before.step_s and now.step_s < before.step_s + noise_s


@dataclass
class Reasons:
    """Findings about the values below and above each knob's current value."""

    _below: dict[Knob, str] = field(default_factory=dict)
    _above: dict[Knob, str] = field(default_factory=dict)

    def kept(self, move: Move, was: int, before: Observation, now: Observation) -> None:
        """Record a move that paid off; `was` is the knob's value before the move."""
        knob = move.knob
        if move.up:
            self._above.pop(knob, None)
            self._below[knob] = f"{was} left the consumer waiting {before.wait_share:.0%}"
        else:
            self._below.pop(knob, None)
            self._above[knob] = f"{was} {_compared(before.step_s / now.step_s - 1)}"

    def went_back(self, move: Move, before: Observation, now: Observation) -> None:
        longer = now.step_s / before.step_s - 1
        if move.up:
            self._above[move.knob] = f"{move.value} {_compared(longer)}"
        elif longer > LOSS:
            self._below[move.knob] = f"{move.value} {_compared(longer)}"
        else:
            self._below[move.knob] = f"{move.value} could not keep up"

    def lacked_memory(self, seen: Observation) -> None:
        assert seen.available_bytes is not None
        self._below.pop("prefetch", None)
        self._above["prefetch"] = (
            f"more batches of {seen.batch_bytes / 1e6:,.0f} MB are too much for {seen.available_bytes / 1e9:,.1f} GB "
            "of memory"
        )

    def refused_threads(self) -> None:
        self._above["threads"] = "the system refused more"

    def of(self, setting: Setting, bounds: TuningBounds) -> dict[str, str]:
        """Return the reason for each knob that is tuned, or would be if there were a choice."""
        told = (knob for knob in KNOBS if not bounds.is_given(knob) or knob in bounds.left_out)
        return {knob: self._of(knob, setting, bounds) for knob in told}

    def _of(self, knob: Knob, setting: Setting, bounds: TuningBounds) -> str:
        # Each is looked up once: the caller may be on another thread than the tuner.
        below, above = self._below.get(knob), self._above.get(knob)
        found = [text for text in (below, above) if text is not None]
        if above is None and setting.of(knob) == bounds.of(knob)[1]:
            found.append("there are no more cores" if knob == "threads" else "no more is tried")
        return "; ".join(found) or "as it began"


def _compared(longer: float) -> str:
    """Describe the effect of another value by how much longer it made a step."""
    return f"made a step {longer:.0%} longer" if longer > LOSS else "were no faster"


FIRST_REST_S, MOST_REST_UP_S, MOST_REST_DOWN_S = 4.0, 16.0, 64.0
"""Rest until a direction that did not pay off is tried again. It doubles up to the maximum. A try with less costs half
the rate for half a second on two cores, below 1 % of the time; a try with more costs little."""
OTHER_STEP, OTHER_WAIT, OTHER_CORES = 0.10, 0.05, 0.4
"""Changes of step time, share of waiting and cores in use that mark another phase of the run if seen twice in a row. A
single window may be another process's doing."""
RECENT_S, RECENT_STEPS = 3.0, 16
"""Minimum of latest time and steps that a trial is proposed from and measured against."""
MEMORY_SHARE = 1 / 8
"""Share of the available memory that prefetched batches may take."""


@dataclass
class _Trial:
    move: Move
    before: Observation
    came_from: Setting
    seen: Observation | None = None
    windows: int = 0


@dataclass
class _Rest:
    most_s: float
    until_s: float = 0.0
    length_s: float = FIRST_REST_S


class Climber:
    """Hill climbing on observations: each change of `setting` is a trial, and stays if it pays off."""

    def __init__(self, start: Setting, bounds: TuningBounds) -> None:
        self.setting = start
        self.bounds = bounds
        self._reasons = Reasons()
        self._elapsed_s = 0.0
        self._standing: list[Observation] = []  # latest windows at the setting, its trial included
        self._odd: Observation | None = None  # latest window, if it differs from `_standing`
        self._trial: _Trial | None = None
        self._rests: dict[tuple[Knob, bool], _Rest] = {}

    @property
    def reasons(self) -> dict[str, str]:
        """Reason for the value of each tuned knob; a value on trial has the reason of the previous value."""
        trial = self._trial  # read once: the caller may be on another thread
        return self._reasons.of(self.setting if trial is None else trial.came_from, self.bounds)

    def observe(self, seen: Observation) -> None:
        self._elapsed_s += seen.wall_s
        if self._trial is not None:
            self._weigh(self._trial, seen)
        else:
            self._stand(seen)
        self._fit_memory(seen)
        if self._trial is None and self._standing and self._odd is None:
            self._try_next(_joined(_latest(self._standing, RECENT_STEPS, RECENT_S)), seen)

    def refuse_threads(self, most: int) -> None:
        """Lower the upper bound to `most`, because the system grants no more threads."""
        self.bounds = replace(self.bounds, threads=(min(self.bounds.threads[0], most), most))
        self._reasons.refused_threads()
        self._trial, self._standing = None, []
        self.setting = replace(self.setting, threads=most)

    def _stand(self, seen: Observation) -> None:
        """Take a window outside of a trial: more of the same, or the first sign of another phase of the run."""
        before = _latest(self._standing, RECENT_STEPS, RECENT_S)
        if not before or not _is_other(_joined(before), seen):
            self._standing, self._odd = _latest([*self._standing, seen], ENOUGH_STEPS, 0.0), None
        elif self._odd is None:
            self._odd = seen
        else:
            self._standing, self._odd = [self._odd, seen], None
            for rest in self._rests.values():
                rest.until_s, rest.length_s = self._elapsed_s, max(FIRST_REST_S, rest.length_s / 2)

    def _weigh(self, trial: _Trial, seen: Observation) -> None:
        now = trial.seen = seen if trial.seen is None else trial.seen.joined(seen)
        trial.windows += 1
        verdict = judge(trial.move, trial.before, now, trial.windows)
        if verdict is MoveVerdict.LONGER:
            return
        self._trial = None
        knob, up = trial.move.knob, trial.move.up
        if verdict is MoveVerdict.KEEP:
            self._reasons.kept(trial.move, trial.came_from.of(knob), trial.before, now)
            self._standing = [now]
            self._rest(knob, not up)  # otherwise two equal settings would alternate forever
        else:
            self._reasons.went_back(trial.move, trial.before, now)
            self.setting = trial.came_from
            self._rest(knob, up)

    def _rest(self, knob: Knob, up: bool) -> None:
        rest = self._rests.setdefault((knob, up), _Rest(MOST_REST_UP_S if up else MOST_REST_DOWN_S))
        rest.until_s = self._elapsed_s + rest.length_s
        rest.length_s = min(2 * rest.length_s, rest.most_s)

    def _try_next(self, standing: Observation, seen: Observation) -> None:
        for move in moves(self.setting, standing, _joined(self._standing), self.bounds):
            rest = self._rests.get((move.knob, move.up))
            rests = rest is not None and self._elapsed_s < rest.until_s
            if not rests and not (move.knob == "prefetch" and move.up and move.value > _affordable(self.setting, seen)):
                self._trial = _Trial(move, standing, self.setting)
                self.setting = replace(self.setting, **{move.knob: move.value})
                return

    def _fit_memory(self, seen: Observation) -> None:
        """Lower prefetch to what memory allows, without a trial."""
        affordable = max(self.bounds.prefetch[0], _affordable(self.setting, seen))
        if self.bounds.is_given("prefetch") or self.setting.prefetch <= affordable:
            return
        self._reasons.lacked_memory(seen)
        self._trial, self._odd, self._standing = None, None, []
        self.setting = replace(self.setting, prefetch=affordable)


def _affordable(setting: Setting, seen: Observation) -> int:
    """Return how many batches memory allows, including the batches that it holds now."""
    if seen.available_bytes is None or seen.batch_bytes == 0:
        return sys.maxsize
    return math.floor(MEMORY_SHARE * (seen.available_bytes / seen.batch_bytes + setting.prefetch))


def _is_other(before: Observation, now: Observation) -> bool:
    noise_s = 2 * SURE * math.hypot(before.error_s, now.error_s)
    if abs(now.step_s - before.step_s) > OTHER_STEP * before.step_s + noise_s:
        return True
    noise = noise_s / max(before.step_s, now.step_s)
    if abs(now.cores - before.cores) > OTHER_CORES + noise * before.cores:
        return True
    return abs(now.wait_share - before.wait_share) > OTHER_WAIT + noise


def _joined(windows: list[Observation]) -> Observation:
    return functools.reduce(Observation.joined, windows)


def _latest(windows: list[Observation], steps: int, seconds: float) -> list[Observation]:
    """Return the fewest latest windows with at least `steps` and `seconds`; all windows if they have fewer."""
    for first in range(len(windows) - 1, 0, -1):
        later = windows[first:]
        if sum(each.steps for each in later) >= steps and sum(each.wall_s for each in later) >= seconds:
            return later
    return windows
