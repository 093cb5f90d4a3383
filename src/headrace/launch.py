"""Which rank this process is, as its launcher says."""

from __future__ import annotations

import os

from headrace.errors import UsageError


def rank_and_world_size(rank: int | None, world_size: int | None) -> tuple[int, int]:
    """Rank and world size as given, else as torchrun's environment has them (RANK, WORLD_SIZE), else 0 and 1."""
    if (rank is None) != (world_size is None):
        raise UsageError(f"expected rank and world_size together, got rank={rank!r}, world_size={world_size!r}")
    if rank is not None and world_size is not None:
        return rank, world_size
    given = os.environ.get("RANK"), os.environ.get("WORLD_SIZE")
    try:
        place = int(given[0] or 0), int(given[1] or 1)
    except ValueError:
        raise UsageError(
            f"expected RANK and WORLD_SIZE to be ints, got {given[0]!r} and {given[1]!r}; pass rank= and world_size="
        ) from None
    if place != (0, 1) and None in given:  # every process would take the part of one rank
        raise UsageError(
            f"expected RANK and WORLD_SIZE together in the environment, as torchrun sets them, got RANK={given[0]} and "
            f"WORLD_SIZE={given[1]}; set both, or pass rank= and world_size="
        )
    return place


def place_of_process(rank: int | None, world_size: int | None) -> tuple[int, int]:
    """Rank and world size as given; else of torch.distributed's default group, where it has begun; else as torchrun's
    environment has them; else 0 and 1."""
    import torch.distributed as group

    # The group before the environment: DistributedSampler asks it too, and gradients are averaged over it.
    if rank is None and world_size is None and group.is_available() and group.is_initialized():
        return group.get_rank(), group.get_world_size()
    return rank_and_world_size(rank, world_size)
