"""Which sample stands where in an epoch: a function of (seed, epoch), without a list of the order."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headrace import _core


def epoch_key(seed: int, epoch: int) -> int:
    """The 64-bit key of everything random in one epoch: its order, its views and its replacements."""
    return _core.hash64(seed, epoch)


def samples_at(positions: NDArray[np.int64], *, length: int, shuffle: bool, seed: int, epoch: int) -> NDArray[np.int64]:
    """The dataset positions (int64[N]) that stand at these positions (int64[N], below `length`) of the epoch."""
    if not shuffle:
        return positions
    return _core.permute(length, epoch_key(seed, epoch), positions)
