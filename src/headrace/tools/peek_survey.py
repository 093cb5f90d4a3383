"""Survey of a dataset's images: what each file is, which cannot be loaded, which look nearly alike."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from headrace._core import Limits
from headrace.data import Dataset, open_picture
from headrace.dropins import ImageReader
from headrace.errors import HeadraceError, SampleError
from headrace.system import THREAD_PREFIX, default_threads
from headrace.views import Resize

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


_WINDOW = 64
"""Samples under way at once for each thread: enough to keep it busy, few enough to be stopped soon."""


@dataclass(frozen=True)
class PeekedSample:
    """One sample's image. What could not be told is None."""

    position: int
    key: str
    bytes: int | None = None
    format: str | None = None
    """As Pillow calls it."""
    size: tuple[int, int] | None = None
    """Width and height in pixels, as the file's header has them."""
    fingerprint: Fingerprint | None = None
    error: str | None = None
    """Why a loader would not take this sample."""


def survey(dataset: Dataset, column: str, positions: Sequence[int]) -> Iterator[PeekedSample]:
    """Look at the image in `column` of each of the samples, in order, on as many threads as there are cores.

    A sample that cannot be read or decoded is a look with an `error`, not an exception.
    """
    reader = ImageReader(view=Resize((ROWS, COLUMNS)), mode="L", output="numpy")
    threads = default_threads()
    with ThreadPoolExecutor(threads, thread_name_prefix=f"{THREAD_PREFIX}peek") as pool:
        for start in range(0, len(positions), window := threads * _WINDOW):
            part = positions[start : start + window]
            yield from pool.map(lambda position: _look(dataset, column, position, reader), part)


def spread(samples: int, most: int, *, seed: int) -> npt.NDArray[np.int64]:
    """Return all positions, or `most` of them drawn at random, in rising order."""
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
    except Exception:  # Pillow's plugins raise anything at damaged bytes; the decoder says what is wrong
        return None, None


MOST_BITS = 3
"""Bits in which the hashes of near-duplicates may differ. One of four bands of 16 bits is then the same in both."""
MOST_LEVELS = 6.0
"""By which their grey pictures may differ on average: hashes of plain gradients are alike whatever their brightness."""

_BANDS = 4
_ONES = np.array([value.bit_count() for value in range(1 << 16)], np.uint8)


def near_duplicates(fingerprints: Sequence[Fingerprint]) -> list[list[int]]:
    """Group positions, each with another of its group that is nearly the same.

    The largest group first; each in rising order.
    """
    if not fingerprints:
        return []
    hashes = np.array([each.hash for each in fingerprints], np.uint64)
    greys = np.stack([each.grey.reshape(-1) for each in fingerprints]).astype(np.int16)
    # Those that share a band lie side by side in its order.
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
        while members:  # each compares itself with what no group has taken yet
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
