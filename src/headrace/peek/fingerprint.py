"""A picture's fingerprint: small, and nearly the same when it is scaled or compressed again."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

ROWS, COLUMNS = 8, 9
"""The grey picture that is hashed: each of its rows gives 8 comparisons of neighbours."""

_STEP = 3
"""Levels that count as darker: compression alone changes a flat area by one or two."""


@dataclass(frozen=True, eq=False)
class Fingerprint:
    """The picture shrunk to grey uint8[8, 9]."""

    grey: npt.NDArray[np.uint8]

    @cached_property
    def hash(self) -> int:
        """The difference hash: a bit for each pixel that is darker than the one right of it.

        Source: N. Krawetz, "Kind of Like That" (2013).
        """
        levels = self.grey.astype(np.int16)
        return int.from_bytes(np.packbits(levels[:, :-1] + _STEP <= levels[:, 1:]).tobytes(), "big")
