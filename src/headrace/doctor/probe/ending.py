"""When a run that is measured has shown enough, and how it is ended then."""

from __future__ import annotations

SETTLING_STEPS = 3
"""Warm-up steps beyond those that empty the prefetch queue: kernels are chosen, compiled and cached in them."""


class Finished(SystemExit):
    """Raised in the training thread once the steps asked for were measured: the command exits with status 0."""

    def __init__(self) -> None:
        super().__init__(0)


class Limit:
    """Counts warm-up and measured steps. Every rank that trains with the same settings comes to the same number, so
    that all of them end after the same step."""

    def __init__(self, warmup: int | None, steps: int | None) -> None:
        """`warmup` None: as many steps as empty the prefetch queue, and three more. `steps` None: no end."""
        self.warmup = warmup
        self._steps = steps
        self._prefetched = 0
        self.is_over = False

    def prefetches(self, batches: int) -> None:
        """A DataLoader was begun whose workers may make so many batches ahead."""
        self._prefetched = max(self._prefetched, batches)

    def settle(self, number: int, gets: int) -> bool:
        """A step was closed that got so many batches. True where that decided the warm-up: the second step tells, since
        the first one has also what a fetcher gets ahead."""
        if self.warmup is not None or number < 1:
            return False
        self.warmup = -(-self._prefetched // max(gets, 1)) + SETTLING_STEPS
        return True

    def extend(self, steps: int) -> None:
        """So many more are made before the end."""
        self._steps = (self._steps or 0) + steps

    def is_reached(self, steps: int) -> bool:
        """Whether so many steps are enough."""
        return self._steps is not None and self.warmup is not None and steps >= self.warmup + self._steps
