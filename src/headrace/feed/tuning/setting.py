"""What may be set, and between which bounds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

Knob: TypeAlias = Literal["threads", "prefetch"]
KNOBS: tuple[Knob, ...] = ("threads", "prefetch")


@dataclass(frozen=True)
class Setting:
    """`threads` of the core that work; `prefetch` batches under way or ready beyond the consumer's."""

    threads: int
    prefetch: int

    def of(self, knob: Knob) -> int:
        return self.threads if knob == "threads" else self.prefetch

    def turned(self, knob: Knob, value: int) -> Setting:
        return replace(self, threads=value) if knob == "threads" else replace(self, prefetch=value)


@dataclass(frozen=True)
class Bounds:
    """Least and most of each, both included. Where they are equal, the value is given, or all that there is, and is
    never changed."""

    threads: tuple[int, int]
    prefetch: tuple[int, int]
    left_out: tuple[Knob, ...] = ()
    """By the user, whatever the bounds: on one core nobody has given that there is one thread."""

    def of(self, knob: Knob) -> tuple[int, int]:
        return self.threads if knob == "threads" else self.prefetch

    def is_given(self, knob: Knob) -> bool:
        least, most = self.of(knob)
        return least == most

    @property
    def most(self) -> Setting:
        return Setting(self.threads[1], self.prefetch[1])
