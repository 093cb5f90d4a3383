"""How a global batch is split over ranks, and which world sizes can split it."""

from __future__ import annotations

import math


def rank_part(count: int, *, batch_size: int, rank: int, world_size: int) -> tuple[int, int]:
    """The half-open part of a global batch of `count` samples that a rank takes.

    A whole batch (`count` is `batch_size` * `world_size`) gives rank r [r * batch_size, (r + 1) * batch_size). A short
    one of m samples gives [r * m // n, (r + 1) * m // n): parts differ by one sample at most, and the parts in rank
    order are the batch. With fewer samples than ranks some parts are empty, so that every rank takes every step.
    """
    if count == batch_size * world_size:
        return rank * batch_size, (rank + 1) * batch_size
    return rank * count // world_size, (rank + 1) * count // world_size


def world_sizes(global_batch: int) -> list[int]:
    """Every world size that splits the global batch evenly, ascending."""
    low = [n for n in range(1, math.isqrt(global_batch) + 1) if global_batch % n == 0]
    return sorted({*low, *(global_batch // n for n in low)})
