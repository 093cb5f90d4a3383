"""Takes batches as fast as they come: what the loader could give at most."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from ..training.loader_sources import Source

if TYPE_CHECKING:
    from ..training.step_records import Received


class Share(NamedTuple):
    """A source, and how many of its batches a step takes."""

    source: Source
    per_step: float


def drain(shares: list[Share], steps: int, deadline_s: float) -> list[Received]:
    """Batches for so many steps, beyond those that lay ready; fewer where the first source ends, or time does. At most
    one batch's time longer than `deadline_s`."""
    batches: list[Received] = []
    taken = [0] * len(shares)
    most = sum(round(share.per_step * steps) + share.source.outstanding for share in shares)
    until = time.monotonic() + deadline_s
    while len(batches) < most and time.monotonic() < until:
        turn = min(range(len(shares)), key=lambda turn: taken[turn] / shares[turn].per_step)
        try:
            batches.append(shares[turn].source.take())
        except Exception:  # of the user's loader, whose end it is
            return batches
        taken[turn] += 1
    return batches
