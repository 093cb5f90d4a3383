"""What to try next: one knob, up or down, from what a window showed. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from headrace.feed.tuning.observation import Observation
from headrace.feed.tuning.setting import Bounds, Knob, Setting

STARVED = 0.02
"""The consumer's share of waiting from which on more threads may pay."""
WAITS = 0.01
"""From which on more batches ahead may pay. Below it, all is well and the feed may need less."""
MOSTLY_WAITING = 0.2
"""From which on fewer threads cannot pay: what the training process computes is too small a part."""
TRAINS = 0.25
"""Cores that this process takes beside the feed, from which on it is training that computes on them."""
MOST_BUSY = 0.6
"""The share of their time in which fewer threads may be busy where nothing needs the core: less gains little there, and
a run of larger images comes sooner or later."""
ENOUGH_STEPS = 200
"""After so many, the fewest batches that lay ready say how many are needed."""
SPARE = 1.25
"""Threads kept for each that is busy."""
SATURATED = 0.98
"""The share of their time that threads work, from which on more batches ahead cannot make them do more."""
LEAST_AHEAD = 2
"""Batches: one to hand out while the next is made. Only want of memory takes one more away."""


@dataclass(frozen=True)
class Move:
    knob: Knob
    value: int
    up: bool

    @property
    def direction(self) -> tuple[Knob, bool]:
        return self.knob, self.up


def moves(setting: Setting, seen: Observation, all_seen: Observation, bounds: Bounds) -> Iterator[Move]:
    """Those that what was seen at `setting` of late gives a reason for; the likeliest first. `all_seen` goes back
    further."""
    wait, busy = seen.wait_share, seen.busy_threads(setting.threads) / setting.threads
    threads = _more_threads(setting, seen, bounds) if wait >= STARVED and busy >= 0.5 else None
    prefetch = _more_prefetch(setting, bounds) if wait >= WAITS and busy < SATURATED else None
    more = (threads, prefetch) if busy >= 0.75 else (prefetch, threads)
    yield from (move for move in more if move is not None)
    if (move := _fewer_threads(setting, seen, bounds)) is not None:
        yield move
    if wait < WAITS and (move := _less_prefetch(setting, all_seen, bounds)) is not None:
        yield move


def _more_threads(setting: Setting, seen: Observation, bounds: Bounds) -> Move | None:
    """As many as would make a batch in the time that the consumer works on one; of few waits, one more."""
    wanted = setting.threads + 1
    if seen.wait_share >= MOSTLY_WAITING:
        work_s = max(seen.wall_s - seen.wait_s, seen.wall_s / bounds.most.threads)
        wanted = max(wanted, math.ceil(seen.busy_threads(setting.threads) * seen.wall_s / work_s))
    return _move(setting, bounds, "threads", wanted)


def _more_prefetch(setting: Setting, bounds: Bounds) -> Move | None:
    return _move(setting, bounds, "prefetch", setting.prefetch + max(1, setting.prefetch // 2))


def _fewer_threads(setting: Setting, seen: Observation, bounds: Bounds) -> Move | None:
    """Where training computes on cores that the feed's threads take too, some of those that are busy only wait for a
    core: up to one in each set of as many as there are and one more."""
    threads = setting.threads
    busy = seen.busy_threads(threads)
    training = max(seen.cores - busy, seen.consumer_cpu_s / seen.wall_s)  # cores, at least
    contended = training >= TRAINS and threads + training > bounds.most.threads
    if contended:
        busy = min(busy, max(0.0, seen.cores - training))
    fewer = min(threads - 1, max(math.ceil(busy * SPARE), threads // 2, 1))
    most_busy, most_wait = (1 + 1 / threads, MOSTLY_WAITING) if contended else (MOST_BUSY, WAITS)
    if fewer < 1 or busy / fewer > most_busy or seen.wait_share >= most_wait:
        return None
    return _move(setting, bounds, "threads", fewer)


def _less_prefetch(setting: Setting, seen: Observation, bounds: Bounds) -> Move | None:
    if seen.steps < ENOUGH_STEPS or seen.lowest_ready < 2 or setting.prefetch <= LEAST_AHEAD:
        return None
    return _move(setting, bounds, "prefetch", setting.prefetch - 1)


def _move(setting: Setting, bounds: Bounds, knob: Knob, wanted: int) -> Move | None:
    """As far as the bounds allow; None where it cannot move at all."""
    least, most = bounds.of(knob)
    now, value = setting.of(knob), max(least, min(most, wanted))
    return None if value == now or (value > now) != (wanted > now) else Move(knob, value, value > now)
