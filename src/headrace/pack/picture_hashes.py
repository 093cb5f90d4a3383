"""`near_duplicates`: pictures that look alike, such as another size or quality of the same photograph.

Each picture has a difference hash (Krawetz, 2013): whether brightness rises from each of 9 × 8 cells to the next one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import chain
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from headrace.data import Dataset
from headrace.dropins import ImageReader
from headrace.errors import DatasetError, HeadraceError, ReadError
from headrace.pack.packing import sample_pool
from headrace.views import Resize

Hashes: TypeAlias = "NDArray[np.uint64]"

_MOST_BITS = 3
"""Bits of 64 in which the hashes of near duplicates may differ."""
_BANDS = np.arange(0, 64, 64 // (_MOST_BITS + 1), dtype=np.uint64)
"""First bits of the parts of a hash: at least one part is equal in two hashes with so few other bits."""
_BAND = np.uint64((1 << (64 // (_MOST_BITS + 1))) - 1)
_LEAST_RANGE = 8
"""Range of brightness from which a picture has structure to compare."""
_LUMA = (0.299, 0.587, 0.114)
_ONES = np.array([number.bit_count() for number in range(1 << 16)], np.uint8)
"""Set bits of each 16-bit number."""
_AT_ONCE = 256


def near_duplicates(dataset: Dataset, column: str, *, threads: int | None = None) -> list[list[int]]:
    """Return groups of at least two samples whose pictures look alike, by position, in the dataset's order.

    A group holds all samples that a chain of similar pictures connects. Pictures that are flat or cannot be decoded
    are in none. Crops, and pictures that are turned or mirrored, are not found. Raises ReadError, or DatasetError.
    """
    reader = ImageReader(view=Resize((8, 9)), output="numpy", exif=True)

    def hash_of(index: int) -> int | None:
        try:
            return difference_hash(reader(dataset.read(column, index)))
        except (ReadError, DatasetError):
            raise
        except (HeadraceError, KeyError):
            return None

    def hashes(first: int) -> list[int | None]:
        return [hash_of(index) for index in range(first, min(first + _AT_ONCE, len(dataset)))]

    alike: defaultdict[int, list[int]] = defaultdict(list)
    with sample_pool(dataset, [column], threads) as pool:
        found = chain.from_iterable(pool.map(hashes, range(0, len(dataset), _AT_ONCE)))
        for index, number in enumerate(found):
            if number is not None:
                alike[number].append(index)
    groups = {number: [number] for number in alike}
    for one, other in close_pairs(np.array(list(alike), np.uint64)):
        first, second = groups[one], groups[other]
        if first is not second:
            first += second
            groups.update(dict.fromkeys(second, first))
    samples = (
        sorted(index for number in group for index in alike[number])
        for group in {id(group): group for group in groups.values()}.values()
    )
    return sorted(group for group in samples if len(group) > 1)


def difference_hash(pixels: NDArray[np.uint8]) -> int | None:
    """Return the 64 bits of a picture of 9 × 8 pixels [8, 9, 3]; None if it is flat."""
    luma = pixels @ np.array(_LUMA)
    if np.ptp(luma) < _LEAST_RANGE:
        return None
    return int.from_bytes(np.packbits(luma[:, 1:] > luma[:, :-1]).tobytes(), "big")


def close_pairs(hashes: Hashes) -> Iterator[tuple[int, int]]:
    """Yield the pairs of different hashes that differ in at most 3 bits, some of them several times."""
    for shift in _BANDS:
        band = (hashes >> shift) & _BAND
        order = np.argsort(band)
        band, ordered = band[order], hashes[order]
        first, apart = np.arange(len(ordered) - 1), 1
        while len(first := first[first + apart < len(ordered)]):
            first = first[band[first + apart] == band[first]]
            one, other = ordered[first], ordered[first + apart]
            close = _ONES[(one ^ other).view(np.uint16).reshape(-1, 4)].sum(axis=1) <= _MOST_BITS
            yield from zip(one[close].tolist(), other[close].tolist(), strict=True)
            apart += 1
