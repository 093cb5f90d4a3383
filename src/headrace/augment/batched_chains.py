"""Chains of augmentation operations that travel with a batch and run on the device.

Chains are grouped so that each step runs one kind of operation on some of the images.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain as chained
from typing import Any, TypeAlias

import numpy as np

from headrace import _core
from headrace.augment.program import ERASE, GAUSSIAN_BLUR

DrawnChain: TypeAlias = Sequence[tuple[int, Sequence[float]]]
"""Operations of one image from `_core.draw_chain`: pairs of a kind and its numbers."""

CHAINS, PAIRS = "\0chains\0", "\0pairs\0"
"""Prefixes of the batch keys that hold an image field's chains and mixed pairs."""

_NUMBERS = 14
_TAP_ONE = 1 << 15


@dataclass(frozen=True, eq=False)
class BatchedChains:
    """Ordered steps of a batch: (kind, start, stop, index of its first taps), for the images rows[start:stop].

    Arrays or tensors: `rows` int64 [M], `numbers` float32 [M, 14], `taps` int32 [B, 2, T] for a blur's rows and
    columns, centre first, in 1/32768. `erasures` float32 [E, 8] run after conversion to the final dtype: row, left,
    top, width, height, and a value for each channel. The `rounds[0]` first erasures of the images come first, then the
    second erasures of the images that have two, and so on.
    """

    steps: tuple[tuple[int, int, int, int], ...]
    rows: Any
    numbers: Any
    taps: Any
    erasures: Any
    rounds: tuple[int, ...] = ()
    compiled: bool = False
    """True if torch.compile fuses each operation into one kernel."""

    @classmethod
    def of(cls, chains: Sequence[DrawnChain], *, compiled: bool = False) -> BatchedChains:
        """Group operations by position in the chain, then by kind."""
        pixels = [[op for op in chain if op[0] != ERASE] for chain in chains]
        steps: list[tuple[int, int, int, int]] = []
        rows: list[int] = []
        numbers: list[Sequence[float]] = []
        taps: list[tuple[list[int], list[int]]] = []
        for position in range(max(map(len, pixels), default=0)):
            by_kind: dict[int, list[int]] = {}
            for row, chain in enumerate(pixels):
                if position < len(chain):
                    by_kind.setdefault(chain[position][0], []).append(row)
            for kind, members in by_kind.items():
                found = [pixels[row][position][1] for row in members]
                steps.append((kind, len(rows), len(rows) + len(members), len(taps)))
                rows += members
                numbers += found
                if kind == GAUSSIAN_BLUR:
                    taps += [(gaussian_taps(int(op[1]), op[0]), gaussian_taps(int(op[2]), op[0])) for op in found]
        longest = max((len(each) for pair in taps for each in pair), default=1)
        filled = [[[*each, *[0] * (longest - len(each))] for each in pair] for pair in taps]
        erased = [[(row, *op[:7]) for kind, op in chain if kind == ERASE] for row, chain in enumerate(chains)]
        rounds = [
            [each[turn] for each in erased if turn < len(each)] for turn in range(max(map(len, erased), default=0))
        ]
        return cls(
            steps=tuple(steps),
            rows=np.array(rows, np.int64),
            numbers=np.array(numbers, np.float32).reshape(-1, _NUMBERS),
            taps=np.array(filled, np.int32).reshape(-1, 2, longest),
            erasures=np.array(list(chained(*rounds)), np.float32).reshape(-1, 8),
            rounds=tuple(map(len, rounds)),
            compiled=compiled,
        )


def gaussian_taps(size: int, sigma: float) -> list[int]:
    """Return half of a Gaussian kernel, centre first, equal to the core's (core/augment/augmenter.cpp)."""
    distances = [k / sigma for k in range(size // 2 + 1)]
    weights = [0.0 if x * x > 100 else _core.exact_exp(-0.5 * x * x) for x in distances]
    total = 0.0
    for k, weight in enumerate(weights):
        total += weight if k == 0 else 2 * weight
    sides: list[int] = []
    for weight in weights[1:]:
        tap = round(weight / total * _TAP_ONE)
        if tap == 0:
            break
        sides.append(tap)
    return [min(_TAP_ONE - 2 * sum(sides), _TAP_ONE - 1), *sides]
