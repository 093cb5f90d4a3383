"""Slices of time on one track, made to nest: trace viewers drop what overlaps in part."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any


@dataclass(frozen=True)
class Slice:
    """What a track shows from `start` on, for `duration` µs."""

    name: str
    start: float
    duration: float
    args: dict[str, Any] = field(default_factory=dict)

    @property
    def end(self) -> float:
        return self.start + self.duration


def by_start(one: Slice) -> tuple[float, float]:
    """Sorts outer slices before inner ones."""
    return one.start, -one.duration


def nested(slices: Iterable[Slice]) -> Iterator[Slice]:
    """Takes and gives them in order (`by_start`). One that outlasts the slice it began in ends with it: what that cuts
    off is the clock's last microsecond, or a call that a thread of its own made."""
    open_: list[Slice] = []
    for one in slices:
        while open_ and open_[-1].end <= one.start:
            open_.pop()
        if open_ and one.end > open_[-1].end:
            one = replace(one, duration=open_[-1].end - one.start)
        if one.duration > 0:
            open_.append(one)
            yield one
