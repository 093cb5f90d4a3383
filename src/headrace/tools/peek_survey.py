"""Reads samples of a data set one by one and says what each image file is, or what is wrong with it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from headrace._core import Limits
from headrace.data import Dataset
from headrace.data.pillow_images import open_picture
from headrace.dropins.image_reader import ImageReader
from headrace.errors import HeadraceError, SampleError
from headrace.loader import default_threads
from headrace.peek.fingerprint import COLUMNS, ROWS, Fingerprint
from headrace.threads import THREAD_PREFIX
from headrace.views.views import Resize

_WINDOW = 64
"""Samples under way at once for each thread: enough to keep it busy, few enough to be stopped soon."""


@dataclass(frozen=True)
class Look:
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


@dataclass(frozen=True)
class Survey:
    """What was looked at, in the data set's order."""

    samples: int
    """Of the data set; `looks` may be fewer."""
    looks: list[Look] = field(default_factory=list)

    @property
    def failures(self) -> list[Look]:
        return [look for look in self.looks if look.error is not None]


def survey(dataset: Dataset, column: str, positions: Sequence[int]) -> Iterator[Look]:
    """A look at the image in `column` of each of the samples, in order, made by as many threads as there are cores.

    A sample that cannot be read or decoded is a look with an `error`, not an exception.
    """
    reader = ImageReader(view=Resize((ROWS, COLUMNS)), mode="L", output="numpy")
    threads = default_threads()
    with ThreadPoolExecutor(threads, thread_name_prefix=f"{THREAD_PREFIX}peek") as pool:
        for start in range(0, len(positions), window := threads * _WINDOW):
            part = positions[start : start + window]
            yield from pool.map(lambda position: _look(dataset, column, position, reader), part)


def spread(samples: int, most: int, *, seed: int) -> npt.NDArray[np.int64]:
    """All positions, or `most` of them drawn at random, in rising order."""
    if samples <= most:
        return np.arange(samples)
    return np.sort(np.random.default_rng(seed).choice(samples, most, replace=False))


def _look(dataset: Dataset, column: str, position: int, reader: ImageReader) -> Look:
    key = dataset.key(position)
    try:
        data = dataset.read(column, position)
    except (HeadraceError, KeyError) as error:
        return Look(position, key, error=str(error.args[0]) if isinstance(error, KeyError) else str(error))
    kind, size = _header(data)
    seen = Look(position, key, len(data), kind, size)
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
