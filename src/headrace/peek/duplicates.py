"""Which of many pictures are nearly the same."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from headrace.peek.fingerprint import Fingerprint

MOST_BITS = 3
"""Bits in which the hashes of near-duplicates may differ. One of four bands of 16 bits is then the same in both."""
MOST_LEVELS = 6.0
"""By which their grey pictures may differ on average: hashes of plain gradients are alike whatever their brightness."""

_BANDS = 4
_ONES = np.array([value.bit_count() for value in range(1 << 16)], np.uint8)


def near_duplicates(fingerprints: Sequence[Fingerprint]) -> list[list[int]]:
    """Groups of positions, each with another of its group that is nearly the same.

    The largest group first; each in rising order.
    """
    if not fingerprints:
        return []
    hashes = np.array([each.hash for each in fingerprints], np.uint64)
    greys = np.stack([each.grey.reshape(-1) for each in fingerprints]).astype(np.int16)
    leader = list(range(len(fingerprints)))
    for first, second in _close_pairs(hashes, greys):
        leader[_lead(leader, second)] = _lead(leader, first)
    groups: dict[int, list[int]] = {}
    for position in range(len(leader)):
        groups.setdefault(_lead(leader, position), []).append(position)
    return sorted((group for group in groups.values() if len(group) > 1), key=lambda group: (-len(group), group))


def _close_pairs(hashes: npt.NDArray[np.uint64], greys: npt.NDArray[np.int16]) -> Iterator[tuple[int, int]]:
    for band in hashes.view(np.uint16).reshape(-1, _BANDS).T:
        order = np.argsort(band, kind="stable")
        for bucket in np.split(order, np.flatnonzero(np.diff(band[order])) + 1):
            yield from _close_within(bucket, hashes, greys)


def _close_within(
    bucket: npt.NDArray[np.int64], hashes: npt.NDArray[np.uint64], greys: npt.NDArray[np.int16]
) -> Iterator[tuple[int, int]]:
    """One is compared with the rest at a time, so that a large bucket takes time and no memory."""
    for at, first in enumerate(bucket[:-1].tolist()):
        rest = bucket[at + 1 :]
        bits = _ONES[(hashes[rest] ^ hashes[first]).view(np.uint16).reshape(-1, _BANDS)].sum(axis=1, dtype=np.int64)
        rest = rest[bits <= MOST_BITS]
        rest = rest[np.abs(greys[rest] - greys[first]).mean(axis=1) <= MOST_LEVELS]
        yield from ((first, other) for other in rest.tolist())


def _lead(leader: list[int], member: int) -> int:
    while leader[member] != member:
        leader[member] = leader[leader[member]]
        member = leader[member]
    return member
