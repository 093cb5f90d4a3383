"""Axes that begin at zero and have round figures on them."""

from __future__ import annotations

import math
from dataclasses import dataclass

ROUND = (1.0, 2.0, 2.5, 5.0, 10.0)
UNITS = (("s", 1e6), ("ms", 1e3), ("µs", 1.0))


@dataclass(frozen=True)
class Axis:
    """From 0 to `top`. `ticks` are values and their texts."""

    top: float
    ticks: list[tuple[float, str]]
    unit: str = ""


def time_axis(most_us: float, *, lines: int = 5) -> Axis:
    """In the largest unit that the longest time is at least one of."""
    unit, us = next(((unit, us) for unit, us in UNITS if most_us >= us), UNITS[-1])
    axis = plain_axis(most_us / us, lines=lines)
    return Axis(axis.top * us, [(value * us, text) for value, text in axis.ticks], unit)


def plain_axis(most: float, *, lines: int = 4, whole: bool = False) -> Axis:
    """Of counts where `whole`: no tick lies between two of them."""
    step = _step(most, lines, whole=whole)
    count = max(math.ceil(most / step - 1e-9), 1)
    return Axis(count * step, [(place * step, f"{place * step:.6g}") for place in range(count + 1)])


def round_step(count: int, *, most: int) -> int:
    """A round number of things, so that `count` of them hold at most about `most` times as many."""
    return round(_step(count, most, whole=True))


def _step(most: float, lines: int, *, whole: bool) -> float:
    least = max(most, 1e-9) / lines
    power = 10.0 ** math.floor(math.log10(least))
    step = next(power * digit for digit in ROUND if power * digit >= least * (1 - 1e-9))
    return max(math.ceil(step), 1) if whole else step
