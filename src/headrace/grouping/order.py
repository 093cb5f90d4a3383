"""`Order`: what every plan is told."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.plan.order import Remainder


@dataclass(frozen=True, kw_only=True)
class Order:
    """A loader's arguments that every plan has."""

    world_size: int
    rank: int
    shuffle: bool
    seed: int
    remainder: Remainder
