"""Survey of a dataset's images: formats and sizes, failing samples, and near-duplicates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from headrace._core import Limits
from headrace.data import Dataset, open_picture
from headrace.dropins import ImageReader
from headrace.errors import HeadraceError, SampleError
from headrace.pack import sample_pool
from headrace.system import default_threads
from headrace.views import Resize

ROWS, COLUMNS = 8, 9
"""Size of the grey picture to hash: each row has 8 comparisons of neighbours."""

_STEP = 3
"""Minimum difference in levels that counts as darker: compression alone changes a flat area by one or two."""


@dataclass(frozen=True, eq=False)
class Fingerprint:
    """Perceptual fingerprint: the picture shrunk to grey uint8[8, 9]."""

    grey: npt.NDArray[np.uint8]

    @cached_property
    def hash(self) -> int:
        """Difference hash: one bit per pixel, set if the pixel is darker than its right neighbour.

        Source: N. Krawetz, "Kind of Like That" (2013).
        """
        levels = self.grey.astype(np.int16)
        return int.from_bytes(np.packbits(levels[:, :-1] + _STEP <= levels[:, 1:]).tobytes(), "big")


_WINDOW = 64
"""Samples in flight per core: enough to keep it busy, few enough to stop quickly."""


@dataclass(frozen=True)
class PeekedSample:
    """Survey result for one sample's image. Unknown values are None."""

    position: int
    key: str
    bytes: int | None = None
    format: str | None = None
    """Pillow's name of the format."""
    size: tuple[int, int] | None = None
    """Width and height in pixels, from the file's header."""
    fingerprint: Fingerprint | None = None
    error: str | None = None
    """Reason why a loader would reject this sample."""


def survey(dataset: Dataset, column: str, positions: Sequence[int]) -> Iterator[PeekedSample]:
    """Survey the image in `column` of each sample, in order, with one thread per core, or several for a store.

    A sample that cannot be read or decoded yields a result with an `error` instead of raising.
    """
    reader = ImageReader(view=Resize((ROWS, COLUMNS)), mode="L", output="numpy")
    with sample_pool(dataset, [column], None) as pool:
        for start in range(0, len(positions), window := default_threads() * _WINDOW):
            part = positions[start : start + window]
            yield from pool.map(lambda position: _look(dataset, column, position, reader), part)


def spread(samples: int, most: int, *, seed: int) -> npt.NDArray[np.int64]:
    """Return all positions, or a random subset of `most` positions, in ascending order."""
    if samples <= most:
        return np.arange(samples)
    return np.sort(np.random.default_rng(seed).choice(samples, most, replace=False))


def _look(dataset: Dataset, column: str, position: int, reader: ImageReader) -> PeekedSample:
    key = dataset.key(position)
    try:
        data = dataset.read(column, position)
    except (HeadraceError, KeyError) as error:
        return PeekedSample(position, key, error=str(error.args[0]) if isinstance(error, KeyError) else str(error))
    kind, size = _header(data)
    seen = PeekedSample(position, key, len(data), kind, size)
    try:
        return replace(seen, fingerprint=Fingerprint(reader(data)[:, :, 0]))
    except SampleError as error:
        return replace(seen, error=error.why)


def _header(data: bytes) -> tuple[str | None, tuple[int, int] | None]:
    try:
        with open_picture(data, Limits()) as image:
            return image.format, image.size
    except Exception:  # Pillow's plugins raise anything on corrupt bytes; the decoder reports the cause
        return None, None


MOST_BITS = 3
"""Maximum number of different hash bits in near-duplicates. At least one of four 16-bit bands is then equal."""
MOST_LEVELS = 6.0
"""Maximum mean difference of near-duplicates' grey pictures: gradients of any brightness have similar hashes."""

_BANDS = 4
_ONES = np.array([value.bit_count() for value in range(1 << 16)], np.uint8)


def near_duplicates(fingerprints: Sequence[Fingerprint]) -> list[list[int]]:
    """Group the positions of near-duplicates. Each member is a near-duplicate of another member of its group.

    Groups are sorted by size, largest first; positions in a group are ascending.
    """
    if not fingerprints:
        return []
    hashes = np.array([each.hash for each in fingerprints], np.uint64)
    greys = np.stack([each.grey.reshape(-1) for each in fingerprints]).astype(np.int16)
    # Positions with an equal band are adjacent in that band's order.
    bands = hashes.view(np.uint16).reshape(-1, _BANDS).T
    orders = [np.argsort(band, kind="stable") for band in bands]
    shared = [
        (np.searchsorted(band[order], band, "left"), np.searchsorted(band[order], band, "right"))
        for band, order in zip(bands, orders, strict=True)
    ]
    free = np.ones(len(hashes), bool)
    groups = []
    for first in range(len(hashes)):
        if not free[first]:
            continue
        free[first] = False
        group, members = [], [first]
        while members:  # compare each member with positions not yet in a group
            at = members.pop()
            group.append(at)
            others = [order[left[at] : right[at]] for order, (left, right) in zip(orders, shared, strict=True)]
            near = np.concatenate([each[free[each]] for each in others])
            bits = _ONES[(hashes[near] ^ hashes[at]).view(np.uint16).reshape(-1, _BANDS)].sum(axis=1, dtype=np.int64)
            near = near[bits <= MOST_BITS]
            near = np.unique(near[np.abs(greys[near] - greys[at]).mean(axis=1) <= MOST_LEVELS])
            free[near] = False
            members += near.tolist()
        groups.append(sorted(group))
    return sorted((group for group in groups if len(group) > 1), key=lambda group: (-len(group), group))
