"""Read or probe the bytes of all samples with native threads, a block at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from headrace import _core
from headrace.data.array_files import array_size, holds_array
from headrace.data.columns import Location, native_paths
from headrace.data.dataset import Dataset
from headrace.data.pillow_images import picture_size
from headrace.data.sample_arrays import mapped_zeros
from headrace.data.storage.strings import StringColumn

# -- from data/probing.py: Asks images' headers for their sizes, by an engine of its own: nothing is decoded, and
# little is read.


ImageSizes = npt.NDArray[np.int32]

_BLOCK = 4096
"""Images a job: enough that Python costs nothing, few enough that what locates them takes no memory."""
_AHEAD = 2
"""Jobs under way, so that the engine has work while the outcome of one is looked at."""
_CORRUPT, _LIMIT, _UNSUPPORTED = 2, 3, 4  # core/common/fault.hpp
_NO_OPS = np.zeros((0, 10))  # a view of no operations (core/view/program.hpp)


def probe_sizes(dataset: Dataset, column: str, *, exif: bool, threads: int, limits: _core.Limits) -> ImageSizes:
    """int32 [N, 2]: height and width of each sample's image, (0, 0) for a bad sample.

    Where reading itself fails, or the data has changed, raises what `Dataset.read` raises.
    """
    sizes = mapped_zeros((len(dataset), 2), np.int32)
    engine = _core.Engine(threads, limits=limits)
    try:
        for start, job in _probe_jobs(dataset, column, exif=exif, engine=engine):
            job.wait()
            part = sizes[start : start + _BLOCK]
            part[:] = job.sizes[:, ::-1]
            for row, _, code, _, _ in job.failures():
                if code not in (_CORRUPT, _LIMIT, _UNSUPPORTED):
                    part[row] = _size_by_library(dataset.read(column, start + row), exif, limits)
    finally:
        engine.cancel()
        engine.close()
    return sizes


def _probe_jobs(dataset: Dataset, column: str, *, exif: bool, engine: _core.Engine) -> Iterator[tuple[int, _core.Job]]:
    """Each job after it was submitted, with the position of its first image."""
    files = dataset.files(column)
    paths = native_paths(files) if isinstance(files.names, StringColumn) else None
    under_way: deque[tuple[int, _core.Job]] = deque()
    for start in range(0, len(dataset), _BLOCK):
        positions = np.arange(start, min(start + _BLOCK, len(dataset)))
        job = _probe_job(dataset.locate(column, positions), paths, exif)
        engine.submit(job)
        under_way.append((start, job))
        if len(under_way) > _AHEAD:
            yield under_way.popleft()
    yield from under_way


def _probe_job(at: Location, paths: _core.Paths | None, exif: bool) -> _core.Job:
    count = len(at.path_id)
    job = _core.Job(np.zeros(count, np.int64), np.zeros(count, np.uint32), key=0, program=_NO_OPS)
    job.probe_only()
    job.add_image(
        paths=paths if at.files is None else native_paths(at.files),
        path_id=at.path_id,
        offset=at.offset,
        length=at.length,
        check=at.check,
        zipped=at.zipped,
        out=np.empty(0, np.uint8),
        width=0,
        height=0,
        channels=3,
        dtype="uint8",
        planar=False,
        subtract=[0.0] * 3,
        divide=[1.0] * 3,
        fill=[0] * 3,
        filter="nearest",
        dct_scaling=False,
        orient=exif,
    )
    return job


def _size_by_library(data: bytes, exif: bool, limits: _core.Limits) -> tuple[int, int]:
    """(height, width) of what the core declines; (0, 0) beyond `limits`, as the core has it."""
    width, height = array_size(data) if holds_array(data) else picture_size(data, exif=exif, limits=limits)
    return (height, width) if width * height <= limits.max_pixels else (0, 0)


# -- from data/member_reading.py: Reads members of bytes of all samples, in native threads, some at a time.


Ints = npt.NDArray[np.int64]

_BLOCKS_AHEAD = 2
"""Blocks under way, so that there is something to read while the texts of one are encoded."""
_FAULT_CORRUPT, _FAULT_LIMIT = 2, 3  # core/common/fault.hpp
_NO_VIEW = np.zeros((0, 10))  # a view of no operations (core/view/program.hpp)


def read_members(
    dataset: Dataset, column: str, *, block: int, threads: int, most_bytes: int
) -> Iterator[tuple[Ints, list[bytes | None]]]:
    """Positions and what their members hold; None where a sample has none, one of more bytes, or one that is damaged.

    Where reading itself fails, or the data has changed, raises what `Dataset.read` raises.
    """
    engine = _core.Engine(threads, limits=_core.Limits(max_file_bytes=most_bytes))
    try:
        for positions, job in _read_jobs(dataset, column, block, engine):
            job.wait()
            found: list[bytes | None] = list(job.raw(0))
            for row, _, code, _, _ in job.failures():
                position = int(positions[row])
                found[row] = None if code in (_FAULT_CORRUPT, _FAULT_LIMIT) else dataset.read(column, position)
            yield positions, found
    finally:
        engine.cancel()
        engine.close()


def _read_jobs(dataset: Dataset, column: str, block: int, engine: _core.Engine) -> Iterator[tuple[Ints, _core.Job]]:
    files = dataset.files(column)
    paths = native_paths(files) if isinstance(files.names, StringColumn) else None
    under_way: deque[tuple[Ints, _core.Job]] = deque()
    for start in range(0, len(dataset), block):
        positions = np.arange(start, min(start + block, len(dataset)))
        at = dataset.locate(column, positions)._asdict()
        own = at.pop("files")
        job = _core.Job(
            np.zeros(len(positions), np.int64), np.zeros(len(positions), np.uint32), key=0, program=_NO_VIEW
        )
        job.add_raw(paths=paths if own is None else native_paths(own), **at)
        engine.submit(job)
        under_way.append((positions, job))
        if len(under_way) > _BLOCKS_AHEAD:
            yield under_way.popleft()
    yield from under_way
