"""Read or probe the bytes of all samples with native threads, in blocks."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from headrace import _core
from headrace._core import Code
from headrace.data.array_files import array_size, holds_array
from headrace.data.dataset import Dataset
from headrace.data.location import HeldParts, Location, native_paths
from headrace.data.pillow_images import picture_size
from headrace.data.remote.bulk_reads import BulkBlock, link_of, read_in_bulk
from headrace.data.sample_arrays import mapped_zeros, position_blocks
from headrace.data.storage.strings import Ints, StringColumn

ImageSizes = npt.NDArray[np.int32]

_PROBED_AT_ONCE = 4096
"""Images per job: many enough to hide Python's cost, few enough to locate with little memory."""
_AHEAD = 2
"""Jobs in flight, so that the engine has work while Python uses a result."""
_LOOKED_AT_BYTES = 8 << 10
"""Bytes of an image that the core reads first (core/batch/image_reader.cpp)."""
_UNREADABLE = (Code.CORRUPT, Code.LIMIT, Code.UNSUPPORTED)
_NO_OPS = np.zeros((0, 10))  # a view of no operations


def probe_sizes(dataset: Dataset, column: str, *, exif: bool, threads: int, limits: _core.Limits) -> ImageSizes:
    """Return int32 [N, 2]: height and width of each sample's image from its header, (0, 0) for a bad sample.

    It decodes nothing and reads little: the beginning of each image in a store, and the whole image only if the
    beginning is not enough. Raises as `Dataset.read` does if reading fails or data has changed.
    """
    beginnings = _beginning_bytes(dataset, column)
    probe = partial(_probe, column=column, exif=exif, threads=threads, limits=limits)
    sizes, unclear = probe(dataset, beginnings=beginnings)
    if unclear:
        sizes[unclear], _ = probe(dataset.select(unclear), beginnings=None)
    return sizes


def _probe(
    dataset: Dataset, column: str, *, exif: bool, threads: int, limits: _core.Limits, beginnings: int | None
) -> tuple[ImageSizes, list[int]]:
    """Return sizes, and the positions of images that need more than their first `beginnings` bytes."""
    sizes = mapped_zeros((len(dataset), 2), np.int32)
    unclear: list[int] = []
    make = partial(_probe_job, exif=exif)
    with _jobs(dataset, column, _PROBED_AT_ONCE, threads, limits, make, beginnings) as jobs:
        for each in jobs:
            part = sizes[each.positions[0] : each.positions[-1] + 1]
            part[:] = each.job.sizes[:, ::-1]
            for failure in each.job.failures():
                if beginnings is not None and failure.code not in (Code.LIMIT, Code.UNSUPPORTED):
                    unclear.append(int(each.positions[failure.row]))
                elif failure.code not in _UNREADABLE:
                    part[failure.row] = _size_by_library(each.read(failure.row), exif, limits)
    return sizes, unclear


def read_members(
    dataset: Dataset, column: str, *, block: int, threads: int, most_bytes: int
) -> Iterator[tuple[Ints, list[bytes | None]]]:
    """Yield positions and their members' bytes; None for no member, more than `most_bytes`, or damaged data.

    Raises as `Dataset.read` does if reading fails or data has changed.
    """

    def raw_job(at: Location, paths: _core.Paths | None, held: HeldParts | None) -> _core.Job:
        job = _blank_job(at)
        job.add_raw(at.native(paths, held))
        return job

    with _jobs(dataset, column, block, threads, _core.Limits(max_file_bytes=most_bytes), raw_job) as jobs:
        for each in jobs:
            found: list[bytes | None] = list(each.job.raw(0))
            for failure in each.job.failures():
                is_bad = failure.code in (Code.CORRUPT, Code.LIMIT)
                found[failure.row] = None if is_bad else each.read(failure.row)
            yield each.positions, found


@dataclass(frozen=True)
class _NativeReads:
    """Job over a block of samples, and a function that reads one of them separately."""

    positions: Ints
    job: _core.Job
    read: Callable[[int], bytes]
    """Function that returns the bytes of the sample in a row. Raises as `Dataset.read` does."""


def _beginning_bytes(dataset: Dataset, column: str) -> int | None:
    """Return how many bytes of each image to request; None for local files, since the core reads only as needed.

    Bytes that transfer within a request's latency cost nothing. The core needs at least its first read.
    """
    files = dataset.files(column)
    if not files.is_remote or not len(dataset):
        return None
    link = link_of(files)
    return _LOOKED_AT_BYTES if link is None else max(_LOOKED_AT_BYTES, link.gap_bytes)


_Reads: TypeAlias = tuple[Ints, Location, HeldParts | None, Callable[[int], bytes]]
"""Sample positions, location, held parts, and a function that reads one sample separately by row."""


@contextmanager
def _jobs(
    dataset: Dataset,
    column: str,
    block: int,
    threads: int,
    limits: _core.Limits,
    make: Callable[[Location, _core.Paths | None, HeldParts | None], _core.Job],
    beginnings: int | None = None,
) -> Iterator[Iterator[_NativeReads]]:
    """Yield the finished jobs of a private engine, each with its positions; `make` creates a job.

    `beginnings`: bytes of each sample to request from a store; None: all.
    """
    engine = _core.Engine(threads, limits=limits)
    files = dataset.files(column)

    def submitted(reads: Iterable[_Reads]) -> Iterator[_NativeReads]:
        paths = native_paths(files) if isinstance(files.names, StringColumn) else None
        for positions, at, held, read in reads:
            job = make(at, paths, held)
            engine.submit(job)
            yield _NativeReads(positions, job, read)

    def finished(begun: Iterable[_NativeReads]) -> Iterator[_NativeReads]:
        under_way: deque[_NativeReads] = deque()
        for each in begun:
            under_way.append(each)
            if len(under_way) > _AHEAD:
                under_way[0].job.wait()
                yield under_way.popleft()
        for each in under_way:
            each.job.wait()
            yield each

    try:
        with _located(dataset, column, block, beginnings) as reads:
            yield finished(submitted(reads))
    finally:
        engine.cancel()
        engine.close()


@contextmanager
def _located(dataset: Dataset, column: str, block: int, beginnings: int | None) -> Iterator[Iterator[_Reads]]:
    """Yield samples in blocks; blocks of stores have their bytes in memory."""
    files = dataset.files(column)
    if not files.is_remote:
        yield (
            (rows, dataset.locate(column, rows), None, partial(_read_row, dataset, column, rows))
            for rows in position_blocks(len(dataset), block)
        )
        return
    with read_in_bulk(files, partial(dataset.locate, column), len(dataset), most_bytes=beginnings) as blocks:
        yield ((each.positions, each.at, each.held(), partial(_read_held, dataset, column, each)) for each in blocks)


def _read_row(dataset: Dataset, column: str, positions: Ints, row: int) -> bytes:
    return dataset.read(column, int(positions[row]))


def _read_held(dataset: Dataset, column: str, block: BulkBlock, row: int) -> bytes:
    return dataset.read(column, int(block.positions[row]), part=block.parts[row])


def _probe_job(at: Location, paths: _core.Paths | None, held: HeldParts | None, exif: bool) -> _core.Job:
    job = _blank_job(at)
    job.probe_only()
    job.add_image(at.native(paths, held), _core.ImageOptions(orient=exif), out=np.empty(0, np.uint8), height=0, width=0)
    return job


def _blank_job(at: Location) -> _core.Job:
    count = len(at.path_id)
    return _core.Job(np.zeros(count, np.int64), np.zeros(count, np.uint32), key=0, program=_NO_OPS)


def _size_by_library(data: bytes, exif: bool, limits: _core.Limits) -> tuple[int, int]:
    """Return (height, width) of an image that the core declines; (0, 0) beyond `limits`, as in the core."""
    width, height = array_size(data) if holds_array(data) else picture_size(data, exif=exif, limits=limits)
    return (height, width) if width * height <= limits.max_pixels else (0, 0)
