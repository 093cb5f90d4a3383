"""A feed, a training process and the cores that they share, simulated: what a tuner would see, without any clock.

Whoever has something to do shares the cores alike, none more than one. A batch is `feed_core_s` of work for the core's
threads, of which the last part is done by ever fewer of them (`tail`) unless another batch is under way; a step is
`step_core_s` of work for one training thread that takes a core, after `device_s` that take none.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from headrace.loader.autotuning.tuned_pass import TunedPass
from headrace.loader.autotuning.tuner import Observation, Setting, Tuner

MB = 1 << 20


@dataclass(frozen=True)
class Load:
    """What one batch and one step cost. `jitter` is the standard deviation of both, as a share."""

    feed_core_s: float
    step_core_s: float = 0.0
    device_s: float = 0.0
    jitter: float = 0.0
    tail: float = 0.15


class Machine:
    """`run` yields the length of each step, as the consumer sees it."""

    def __init__(self, tuner: Tuner, *, cores: int = 2, seed: int = 0, available_bytes: int = 1 << 40) -> None:
        self.tuner = tuner
        self.cores = cores
        self.available_bytes = available_bytes
        self.batch_bytes = 40 * MB
        self.setting = tuner.setting
        self.now_s = self.feed_wait_s = self.idle_s = self.consumer_cpu_s = 0.0
        self.changes: list[tuple[float, Setting]] = [(0.0, self.setting)]
        self._random = random.Random(seed)
        self._tuned = TunedPass(tuner, self.readings, self.set, lambda: self.available_bytes)
        self._ready = 0
        self._feed_left_s: float | None = None  # of the batch under way

    def run(self, load: Load, seconds: float) -> Iterator[float]:
        end_s, last_s = self.now_s + seconds, self.now_s
        while self.now_s < end_s:
            self._go(load, device_s=load.device_s * self._draw(load))
            self._go(load, core_s=load.step_core_s * self._draw(load))
            asked_s, ready = self.now_s, self._ready
            while self._ready == 0:
                self._go(load, until_ready=True)
            self._ready -= 1
            self._tuned.took(asked_s, self.now_s, ready)
            yield self.now_s - last_s
            last_s = self.now_s

    def rate(self, load: Load, seconds: float) -> float:
        """Steps a second over so long."""
        began_s, steps = self.now_s, sum(1 for _ in self.run(load, seconds))
        return steps / (self.now_s - began_s)

    def _draw(self, load: Load) -> float:
        return max(0.1, self._random.gauss(1.0, load.jitter))

    def _go(self, load: Load, *, device_s: float = 0.0, core_s: float = 0.0, until_ready: bool = False) -> None:
        """Until the device, or the training thread, or the feed is done; the others go on meanwhile."""
        while device_s > 1e-12 or core_s > 1e-12 or (until_ready and self._ready == 0):
            if self._feed_left_s is None and self._ready < self.setting.prefetch:
                self._feed_left_s = load.feed_core_s * self._draw(load)
            working = self._working(load) if self._feed_left_s is not None else 0.0
            trains = core_s > 1e-12
            share = min(1.0, self.cores / (working + trains)) if working + trains > 0 else 1.0
            steps = [device_s] if device_s > 1e-12 else []
            steps += [core_s / share] if trains else []
            steps += [self._feed_left_s / (working * share)] if self._feed_left_s is not None else []
            step_s = min(steps)
            self.now_s += step_s
            device_s, core_s = max(0.0, device_s - step_s), max(0.0, core_s - step_s * share)
            self.idle_s += step_s * (self.setting.threads - working)
            self.consumer_cpu_s += step_s * share * trains
            if self._feed_left_s is None:
                self.feed_wait_s += step_s
                continue
            self._feed_left_s -= step_s * working * share
            if self._feed_left_s <= 1e-12:
                self._feed_left_s, self._ready = None, self._ready + 1

    def _working(self, load: Load) -> float:
        """Threads that have something to do, on average: with one place, some wait for a batch's last image."""
        threads = self.setting.threads
        return threads if threads == 1 or self.setting.prefetch - self._ready > 1 else threads * (1 - load.tail)

    # What a tuned pass reads and sets.

    def readings(self) -> Observation:
        return Observation(
            feed_wait_s=self.feed_wait_s,
            idle_s=self.idle_s,
            consumer_cpu_s=self.consumer_cpu_s,
            batch_bytes=self.batch_bytes,
        )

    def set(self, setting: Setting) -> int:
        self.setting = setting
        self.changes.append((self.now_s, setting))
        return setting.threads
