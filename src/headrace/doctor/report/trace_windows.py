"""The windows of a measured run, as slices above its training loop."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from headrace.doctor.report.slices import Slice
from headrace.doctor.session.model import Window


def window_slices(windows: Sequence[Window]) -> Iterator[Slice]:
    """In order. The arguments say which steps lie in each, and how many of them count for nothing."""
    for one in windows:
        args = {"first_step": one.first, "steps": one.steps, "settling_steps": one.settling} if one.steps else {}
        yield Slice(one.name, one.start, one.end - one.start, args)


def window_of(number: int, windows: Sequence[Window]) -> str | None:
    """Which the step of that number lies in: `replay, settling` where it counts for nothing. None outside of all, as
    while a run warms up."""
    for one in windows:
        if one.first <= number < one.first + one.steps:
            return f"{one.name}, settling" if number < one.first + one.settling else one.name
    return None
