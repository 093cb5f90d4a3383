"""Which sample stands in for one that cannot be decoded."""

from __future__ import annotations

import numpy as np

from headrace import _core
from headrace.plan.order_old import epoch_key

_STREAM = 255 << 8
"""Dataset 0, stage 255, draw 0: above every stage of a view (core/rng/stream.hpp)."""

FIRST_REPLACEMENT_PASS = 0x8000_0000
"""Passes from here up are replacements, so a replacement never shares a view with a planned sample."""


def replacement(*, length: int, seed: int, epoch: int, position: int, attempt: int) -> tuple[int, int]:
    """The (dataset position, pass) that replaces the sample at this position of the epoch.

    The position is uniform over range(length) and may itself be bad: ask again with the next `attempt` (from 0).
    Every rank and every resume draws the same.
    """
    counter = np.array([position & 0xFFFF_FFFF, position >> 32, attempt, _STREAM], np.uint32)
    low, high, third, _ = (int(word) for word in _core.philox(epoch_key(seed, epoch), counter))
    sample = ((high << 32 | low) * length) >> 64
    return sample, FIRST_REPLACEMENT_PASS | (third & 0x7FFF_FFFF)
