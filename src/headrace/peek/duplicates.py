"""Which of many pictures are nearly the same."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from headrace.peek.fingerprint import Fingerprint

MOST_BITS = 3
"""Bits in which the hashes of near-duplicates may differ. One of four bands of 16 bits is then the same in both."""
MOST_LEVELS = 6.0
"""By which their grey pictures may differ on average: hashes of plain gradients are alike whatever their brightness."""

_BANDS = 4
_ONES = np.array([value.bit_count() for value in range(1 << 16)], np.uint8)


class _Prints(NamedTuple):
    """Of N pictures."""

    hashes: npt.NDArray[np.uint64]
    greys: npt.NDArray[np.int16]
    """[N, pixels]."""
    totals: npt.NDArray[np.int64]
    """Of each grey picture. Two pictures differ by at least as much as their totals do."""


def near_duplicates(fingerprints: Sequence[Fingerprint]) -> list[list[int]]:
    """Groups of positions, each with another of its group that is nearly the same.

    The largest group first; each in rising order.
    """
    if not fingerprints:
        return []
    greys = np.stack([each.grey.reshape(-1) for each in fingerprints]).astype(np.int16)
    prints = _Prints(
        np.array([each.hash for each in fingerprints], np.uint64), greys, greys.sum(axis=1, dtype=np.int64)
    )
    leader = list(range(len(fingerprints)))
    for first, second in _close_pairs(prints):
        leader[_lead(leader, second)] = _lead(leader, first)
    groups: dict[int, list[int]] = {}
    for position in range(len(leader)):
        groups.setdefault(_lead(leader, position), []).append(position)
    return sorted((group for group in groups.values() if len(group) > 1), key=lambda group: (-len(group), group))


def _close_pairs(prints: _Prints) -> Iterator[tuple[int, int]]:
    """Enough of them to join all that are close, directly or through others."""
    for band in prints.hashes.view(np.uint16).reshape(-1, _BANDS).T:
        order = np.argsort(band, kind="stable")
        for bucket in np.split(order, np.flatnonzero(np.diff(band[order])) + 1):
            if len(bucket) > 1:
                yield from _close_within(bucket, prints)


def _close_within(bucket: npt.NDArray[np.int64], prints: _Prints) -> Iterator[tuple[int, int]]:
    """Each is compared with what no group has taken yet: of ten thousand blank pictures the first one takes all. Each
    compared with each would take minutes."""
    rest, taken = bucket, list[int]()
    while len(rest):
        if taken:
            first = taken.pop()
        else:
            first, rest = int(rest[0]), rest[1:]
        close = _are_close(first, rest, prints)
        found = rest[close].tolist()
        yield from ((first, other) for other in found)
        taken += found
        rest = rest[~close]


def _are_close(first: int, others: npt.NDArray[np.int64], prints: _Prints) -> npt.NDArray[np.bool_]:
    most = MOST_LEVELS * prints.greys.shape[1]
    close: npt.NDArray[np.bool_] = np.abs(prints.totals[others] - prints.totals[first]) <= most
    bits = _ONES[(prints.hashes[others[close]] ^ prints.hashes[first]).view(np.uint16).reshape(-1, _BANDS)]
    close[close] = bits.sum(axis=1, dtype=np.int64) <= MOST_BITS
    close[close] = np.abs(prints.greys[others[close]] - prints.greys[first]).mean(axis=1) <= MOST_LEVELS
    return close


def _lead(leader: list[int], member: int) -> int:
    while leader[member] != member:
        leader[member] = leader[leader[member]]
        member = leader[member]
    return member
