"""`Observation`: some steps in a row, measured where the consumer takes its batches."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Observation:
    """A step is from one batch's arrival to the next one's: the consumer's work, and its wait. Sums over `steps`.

    `wait_s` high: the feed is too slow. `feed_wait_s` high: all places are filled, and the feed could do more.
    `idle_s` is what the core's working threads waited for something to do, over all of them. `cpu_s` is the process's
    CPU time, and `consumer_cpu_s` that of the thread which takes the batches. `lowest_ready` is the least number of
    batches that lay ready when one was asked for.
    """

    steps: int
    wall_s: float
    squares_s2: float
    """The sum of each step's squared time."""
    wait_s: float
    feed_wait_s: float
    idle_s: float
    cpu_s: float
    consumer_cpu_s: float
    lowest_ready: int
    batch_bytes: int
    available_bytes: int | None
    """Memory that this process could still take; None: not known."""

    @property
    def step_s(self) -> float:
        return self.wall_s / self.steps

    @property
    def error_s(self) -> float:
        """Standard error of the mean step."""
        if self.steps < 2:
            return self.step_s
        variance = max(0.0, self.squares_s2 / self.steps - self.step_s**2)
        return math.sqrt(variance / (self.steps - 1))

    @property
    def wait_share(self) -> float:
        return self.wait_s / self.wall_s

    @property
    def feed_wait_share(self) -> float:
        return self.feed_wait_s / self.wall_s

    @property
    def cores(self) -> float:
        """How many the process used, on average."""
        return self.cpu_s / self.wall_s

    def busy_threads(self, threads: int) -> float:
        """How many of so many threads had something to do, on average."""
        return max(0.0, threads - self.idle_s / self.wall_s)

    def joined(self, later: Observation) -> Observation:
        """Of both, made at the same setting."""
        return Observation(
            steps=self.steps + later.steps,
            wall_s=self.wall_s + later.wall_s,
            squares_s2=self.squares_s2 + later.squares_s2,
            wait_s=self.wait_s + later.wait_s,
            feed_wait_s=self.feed_wait_s + later.feed_wait_s,
            idle_s=self.idle_s + later.idle_s,
            cpu_s=self.cpu_s + later.cpu_s,
            consumer_cpu_s=self.consumer_cpu_s + later.consumer_cpu_s,
            lowest_ready=min(self.lowest_ready, later.lowest_ready),
            batch_bytes=max(self.batch_bytes, later.batch_bytes),
            available_bytes=later.available_bytes,
        )
