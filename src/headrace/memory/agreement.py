"""What all ranks of a process group take, when each has found something of its own."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch.distributed as group


class Outcome(NamedTuple):
    """What one rank found: a cost, or None and why not."""

    cost: int | None
    why: str


def outcomes_of_all(own: Outcome) -> list[Outcome]:
    """One a rank, in their order; this one's alone without a process group."""
    if not (group.is_available() and group.is_initialized()):
        return [own]
    found: list[Any] = [None] * group.get_world_size()
    group.all_gather_object(found, tuple(own))
    return [Outcome(*one) for one in found]
