"""The step time that a setup would give."""

from __future__ import annotations

from dataclasses import dataclass

from .recorded import Recorded
from .setup import Setup


@dataclass(frozen=True)
class Prediction:
    """Of the mean step with a remedy, with an interval that covers the truth in at least 80 of 100 cases."""

    step_us: float
    low_us: float
    high_us: float
    speedup: float
    """Of the observed step."""


def predicted(recorded: Recorded, setup: Setup, *, seed: int = 0) -> Prediction:
    """The mean step time with `setup`, the same for the same seed. That of `recorded.setup` is the observed one."""
    raise NotImplementedError
