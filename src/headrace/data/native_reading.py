"""Read or probe the bytes of all samples with native threads, a block at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import numpy as np
import numpy.typing as npt

from headrace import _core
from headrace.data.array_files import array_size, holds_array
from headrace.data.columns import Location, native_paths
from headrace.data.dataset import Dataset
from headrace.data.pillow_images import picture_size
from headrace.data.sample_arrays import mapped_zeros, position_blocks
from headrace.data.storage.strings import Ints, StringColumn

ImageSizes = npt.NDArray[np.int32]

_PROBED_AT_ONCE = 4096
"""Images a job: enough that Python costs nothing, few enough that locating them takes no memory."""
_AHEAD = 2
"""Jobs under way, so that the engine has work while the outcome of one is used."""
_CORRUPT, _LIMIT, _UNSUPPORTED = 2, 3, 4  # core/common/fault.hpp
_NO_OPS = np.zeros((0, 10))  # a view of no operations (core/view/program.hpp)


def probe_sizes(dataset: Dataset, column: str, *, exif: bool, threads: int, limits: _core.Limits) -> ImageSizes:
    """Return int32 [N, 2]: height and width of each sample's image by its header, (0, 0) for a bad sample.

    Nothing is decoded, and little is read. Raises what `Dataset.read` raises where reading fails, or data has changed.
    """
    sizes = mapped_zeros((len(dataset), 2), np.int32)
    with _jobs(dataset, column, _PROBED_AT_ONCE, threads, limits, partial(_probe_job, exif=exif)) as jobs:
        for positions, job in jobs:
            part = sizes[positions[0] : positions[-1] + 1]
            part[:] = job.sizes[:, ::-1]
            for row, _, code, _, _ in job.failures():
                if code not in (_CORRUPT, _LIMIT, _UNSUPPORTED):
                    part[row] = _size_by_library(dataset.read(column, int(positions[row])), exif, limits)
    return sizes


def read_members(
    dataset: Dataset, column: str, *, block: int, threads: int, most_bytes: int
) -> Iterator[tuple[Ints, list[bytes | None]]]:
    """Yield positions and their members' bytes; None where a sample has none, more bytes, or damaged ones.

    Raises what `Dataset.read` raises where reading fails, or data has changed.
    """

    def raw_job(at: Location, paths: _core.Paths | None) -> _core.Job:
        job = _blank_job(at)
        job.add_raw(at.native(paths))
        return job

    with _jobs(dataset, column, block, threads, _core.Limits(max_file_bytes=most_bytes), raw_job) as jobs:
        for positions, job in jobs:
            found: list[bytes | None] = list(job.raw(0))
            for row, _, code, _, _ in job.failures():
                found[row] = None if code in (_CORRUPT, _LIMIT) else dataset.read(column, int(positions[row]))
            yield positions, found


@contextmanager
def _jobs(
    dataset: Dataset,
    column: str,
    block: int,
    threads: int,
    limits: _core.Limits,
    make: Callable[[Location, _core.Paths | None], _core.Job],
) -> Iterator[Iterator[tuple[Ints, _core.Job]]]:
    """Yield the finished jobs of an engine of their own, each with its positions; `make` makes a job."""
    engine = _core.Engine(threads, limits=limits)

    def submitted() -> Iterator[tuple[Ints, _core.Job]]:
        files = dataset.files(column)
        paths = native_paths(files) if isinstance(files.names, StringColumn) else None
        for positions in position_blocks(len(dataset), block):
            at = dataset.locate(column, positions)
            job = make(at, paths)
            engine.submit(job)
            yield positions, job

    def finished() -> Iterator[tuple[Ints, _core.Job]]:
        under_way: deque[tuple[Ints, _core.Job]] = deque()
        for each in submitted():
            under_way.append(each)
            if len(under_way) > _AHEAD:
                under_way[0][1].wait()
                yield under_way.popleft()
        for positions, job in under_way:
            job.wait()
            yield positions, job

    try:
        yield finished()
    finally:
        engine.cancel()
        engine.close()


def _probe_job(at: Location, paths: _core.Paths | None, exif: bool) -> _core.Job:
    job = _blank_job(at)
    job.probe_only()
    job.add_image(at.native(paths), _core.ImageOptions(orient=exif), out=np.empty(0, np.uint8), height=0, width=0)
    return job


def _blank_job(at: Location) -> _core.Job:
    count = len(at.path_id)
    return _core.Job(np.zeros(count, np.int64), np.zeros(count, np.uint32), key=0, program=_NO_OPS)


def _size_by_library(data: bytes, exif: bool, limits: _core.Limits) -> tuple[int, int]:
    """Return (height, width) of what the core declines; (0, 0) beyond `limits`, as in the core."""
    width, height = array_size(data) if holds_array(data) else picture_size(data, exif=exif, limits=limits)
    return (height, width) if width * height <= limits.max_pixels else (0, 0)
