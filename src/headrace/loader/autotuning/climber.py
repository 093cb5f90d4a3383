"""`Climber`: hill climbing on measured steps. No clock and no thread: time is what the observations say."""

from __future__ import annotations

import functools
import math
import sys
from dataclasses import dataclass, replace

from headrace.feed.tuning.judging import SURE, Verdict, judge
from headrace.feed.tuning.moves import ENOUGH_STEPS, Move, moves
from headrace.feed.tuning.observation import Observation
from headrace.feed.tuning.setting import Bounds, Knob, Setting
from headrace.feed.tuning.words import Reasons

FIRST_REST_S, MOST_REST_UP_S, MOST_REST_DOWN_S = 4.0, 16.0, 64.0
"""A direction that did not pay is tried again after the first, then after twice as long, up to the most. What a try
with less costs (half the rate for half a second, on two cores) stays below 1 % of the time; more costs little."""
OTHER_STEP, OTHER_WAIT, OTHER_CORES = 0.10, 0.05, 0.4
"""How far a step's time, its share of waiting and the cores that are used have to go from what they were, twice in a
row, to be another phase of the run: one window may be a neighbour's doing."""
RECENT_S, RECENT_STEPS = 3.0, 16
"""How far back goes what a try is proposed from and measured against, at least: what changes slowly shows."""
MEMORY_SHARE = 1 / 8
"""Of the memory that is there, the part that prefetched batches may take."""


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

    def begin(self, now_s: float) -> None:
        self.until_s = now_s + self.length_s
        self.length_s = min(2 * self.length_s, self.most_s)


class Climber:
    """Give it what was seen at `setting`; it may change `setting`. Each change is a trial, kept if it paid."""

    def __init__(self, start: Setting, bounds: Bounds) -> None:
        self.setting = start
        self.bounds = bounds
        self._reasons = Reasons()
        self._elapsed_s = 0.0
        self._standing: list[Observation] = []  # the latest windows at the setting, that of its trial included
        self._odd: Observation | None = None  # the latest window, if it was unlike those
        self._trial: _Trial | None = None
        self._rests: dict[tuple[Knob, bool], _Rest] = {}

    @property
    def reasons(self) -> dict[str, str]:
        """For each knob that is tuned, why it is what it is; a value that is on trial is so by its trial."""
        trial = self._trial  # looked up once: whoever asks may be another thread
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
        """The system gives no more than so many."""
        self.bounds = replace(self.bounds, threads=(min(self.bounds.threads[0], most), most))
        self._reasons.refused_threads()
        self._trial, self._standing = None, []
        self.setting = self.setting.turned("threads", most)

    def _stand(self, seen: Observation) -> None:
        """A window outside of a trial: one more of the same, or the first sign of another phase."""
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
        if verdict is Verdict.LONGER:
            return
        self._trial = None
        knob, up = trial.move.direction
        if verdict is Verdict.KEEP:
            self._reasons.kept(trial.move, trial.came_from.of(knob), trial.before, now)
            self._standing = [now]
            self._rest(knob, not up)  # or two settings that are alike would take turns for ever
        else:
            self._reasons.went_back(trial.move, trial.before, now)
            self.setting = trial.came_from
            self._rest(knob, up)

    def _rest(self, knob: Knob, up: bool) -> None:
        rest = self._rests.setdefault((knob, up), _Rest(MOST_REST_UP_S if up else MOST_REST_DOWN_S))
        rest.begin(self._elapsed_s)

    def _try_next(self, standing: Observation, seen: Observation) -> None:
        for move in moves(self.setting, standing, _joined(self._standing), self.bounds):
            rest = self._rests.get(move.direction)
            rests = rest is not None and self._elapsed_s < rest.until_s
            if not rests and not (move.knob == "prefetch" and move.up and move.value > _affordable(self.setting, seen)):
                self._trial = _Trial(move, standing, self.setting)
                self.setting = self.setting.turned(move.knob, move.value)
                return

    def _fit_memory(self, seen: Observation) -> None:
        """Down to what memory bears, without a trial."""
        affordable = max(self.bounds.prefetch[0], _affordable(self.setting, seen))
        if self.bounds.is_given("prefetch") or self.setting.prefetch <= affordable:
            return
        self._reasons.lacked_memory(seen)
        self._trial, self._odd, self._standing = None, None, []
        self.setting = self.setting.turned("prefetch", affordable)


def _affordable(setting: Setting, seen: Observation) -> int:
    """Batches, those included that are there by now."""
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
    """The fewest that have so many steps and last so long together; all where these do not."""
    for first in range(len(windows) - 1, 0, -1):
        later = windows[first:]
        if sum(each.steps for each in later) >= steps and sum(each.wall_s for each in later) >= seconds:
            return later
    return windows
