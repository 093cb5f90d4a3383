"""Bulk reads of many samples in stores: neighbours share a request, many requests run at once, one block ahead."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from headrace.data.location import ColumnFiles, HeldParts, Location
from headrace.data.remote.remote_file import ObjectPath
from headrace.data.storage.open_file import ReadableFile
from headrace.data.storage.strings import Ints
from headrace.errors import OutsideRootError, ReadError
from headrace.stores import LinkModel, Request, RequestEngine, WantedRanges, link_model, plan_requests, shared_requests

_BLOCK, _BLOCK_BYTES = 512, 64 << 20
"""Samples and bytes of a block. Two blocks are in memory at once: one in use, the next in flight."""


@dataclass(eq=False)
class BulkPart:
    """Part of an object with a sample's bytes, in memory or in flight."""

    first: int
    """First byte of the part in the object."""
    answer: Future[Any]
    """Buffer with the part."""
    is_whole: bool = False
    """True if the part is all of the object."""
    unpacked: dict[int, Any] = field(default_factory=dict)
    """Unpacked values of the part, for a column of packed values."""

    def data(self) -> memoryview:
        """Wait for the bytes. Raises as reading the object does."""
        return memoryview(self.answer.result())  # each attempt of a request has a deadline

    def over(self, file: ReadableFile) -> ReadableFile:
        """Return the object as an open file that reads this part from memory."""
        return HeldFile(file, self)


class HeldFile(ReadableFile):
    """Open object with a part held in memory."""

    def __init__(self, file: ReadableFile, part: BulkPart) -> None:
        self.path = file.path
        self._file, self._part = file, part

    def __str__(self) -> str:
        return str(self._file)

    @property
    def readings(self) -> tuple[ReadableFile, ...]:
        return self, self._file

    def size(self) -> int:
        return self._file.size()

    def read(self, offset: int, length: int) -> bytes:
        data, start = self._part.data(), offset - self._part.first
        if not self._part.is_whole and (start < 0 or start + length > len(data)):
            return self._file.read(offset, length)
        return bytes(data[start : start + length])


class BulkBlock(NamedTuple):
    """Block of samples of a column, and their bytes."""

    positions: Ints
    at: Location
    parts: list[BulkPart | None]
    """Part with each sample's bytes; None for a sample without bytes."""

    def held(self) -> HeldParts:
        """Wait for all bytes, and return them for the core. Raises as reading does."""
        parts = list(dict.fromkeys(part for part in self.parts if part is not None))
        numbers = {part: number for number, part in enumerate(parts)}
        held_in = [-1 if part is None else numbers[part] for part in self.parts]
        return HeldParts(
            [part.data() for part in parts],
            [part.first for part in parts],
            np.array(held_in, np.int64),
            [part.unpacked for part in parts],
        )


@contextmanager
def read_in_bulk(
    files: ColumnFiles, locate: Callable[[Ints], Location], count: int, *, most_bytes: int | None = None
) -> Iterator[Iterator[BulkBlock]]:
    """Yield the samples of a remote column in blocks; `locate` takes their positions, from 0 to `count`.

    `most_bytes`: limit on each sample's bytes, from its start; None: all. Compressed data is read whole. The blocks
    raise as locating does, and their parts as reading does.
    """
    with ExitStack() as stack:
        yield _read_ahead(stack, _blocks(files, locate, count, most_bytes))


def _read_ahead(stack: ExitStack, blocks: Iterator[tuple[Ints, Location, _Ranges]]) -> Iterator[BulkBlock]:
    """Yield blocks once the next one is requested. The first object's store provides the engine, until `stack` ends."""
    engine: RequestEngine | None = None
    ahead: BulkBlock | None = None
    last: _LastPart = (None, None)
    for positions, at, ranges in blocks:
        some = next(filter(None, ranges.objects), None)
        if engine is None and some is not None:
            engine = stack.enter_context(shared_requests(some.store))
        none: list[BulkPart | None] = [None] * len(positions)
        parts = none if engine is None else _ask(engine, positions, ranges, last)
        following = BulkBlock(positions, at, parts)
        last = ranges.last(), parts[-1]
        if ahead is not None:
            yield ahead
        ahead = following
    if ahead is not None:
        yield ahead


class _Ranges(NamedTuple):
    """Ranges of a block's samples; the arrays have one entry per sample."""

    objects: list[ObjectPath | None]
    """None for a sample without bytes."""
    start: Ints
    stop: Ints | None
    """None: whole objects of unknown size."""
    most_bytes: int | None

    def last(self) -> _RangeKey | None:
        """Return the range of the last sample, which the next block may share."""
        path = self.objects[-1]
        if self.stop is None or path is None:
            return None
        return path.identity, int(self.start[-1]), int(self.stop[-1])

    @property
    def sizes(self) -> Ints:
        """Bytes that each sample adds: a page shared by neighbours counts once."""
        if self.stop is None:
            return np.zeros(len(self.start), np.int64)
        again = np.zeros(len(self.start), bool)
        again[1:] = (self.start[1:] == self.start[:-1]) & (self.stop[1:] == self.stop[:-1])
        return np.where(again, 0, self.stop - self.start)


def _blocks(
    files: ColumnFiles, locate: Callable[[Ints], Location], count: int, most_bytes: int | None
) -> Iterator[tuple[Ints, Location, _Ranges]]:
    for first in range(0, count, _BLOCK):
        positions = np.arange(first, min(first + _BLOCK, count))
        at = locate(positions)
        ranges = _ranges(files, at, most_bytes)
        cuts = np.flatnonzero(np.diff(np.cumsum(ranges.sizes) // _BLOCK_BYTES)) + 1
        if not len(cuts):
            yield positions, at, ranges
            continue
        for part in np.split(positions, cuts):
            at = locate(part)
            yield part, at, _ranges(files, at, most_bytes)


def _ranges(files: ColumnFiles, at: Location, most_bytes: int | None) -> _Ranges:
    """Return the ranges of the samples' bytes, including the headers to check."""
    files = files if at.files is None else at.files
    known = {number: _object(files, number) for number in np.unique(at.path_id).tolist()}
    objects = [known[number] for number in at.path_id.tolist()]
    stored = at.stored(most_bytes)
    if stored is None or at.length is None:
        return _Ranges(objects, np.zeros(len(objects), np.int64), None, most_bytes)
    objects = [path if size >= 0 else None for path, size in zip(objects, at.length.tolist(), strict=True)]
    return _Ranges(objects, *stored, most_bytes if at.zipped is None and at.packed is None else None)


def _object(files: ColumnFiles, number: int) -> ObjectPath | None:
    """Return an object of a column; None if missing or not allowed: the reader that needs it reports why."""
    try:
        if not files.path(number):
            return None
        path = files.object(number)
    except (OutsideRootError, ReadError):
        return None
    assert isinstance(path, ObjectPath), "objects in stores are of one kind"
    return path


_RangeKey: TypeAlias = tuple[Hashable, int, int]
_LastPart: TypeAlias = tuple[_RangeKey | None, BulkPart | None]
"""Range of the previous block's last sample, and its part."""


def _ask(engine: RequestEngine, positions: Ints, ranges: _Ranges, last: _LastPart) -> list[BulkPart | None]:
    if ranges.stop is None:
        whole = ranges.most_bytes is None
        stop = ranges.most_bytes or engine.model().request_bytes  # usually all of an object
        return [
            None
            if path is None
            else BulkPart(0, engine.fetch([Request(path, 0, stop, need, may_end=True, with_rest=whole)]), whole)
            for path, need in zip(ranges.objects, positions.tolist(), strict=True)
        ]
    found: list[BulkPart | None] = [None] * len(ranges.objects)
    key, part_before = last
    there = [row for row, path in enumerate(ranges.objects) if path is not None]
    if key is not None and part_before is not None:
        again = [row for row in there if (int(ranges.start[row]), int(ranges.stop[row])) == key[1:]]
        for row in again:
            path = ranges.objects[row]
            found[row] = part_before if path is not None and path.identity == key[0] else None
        there = [row for row in there if found[row] is None]
    if not there:
        return found
    objects = [path for row in there if (path := ranges.objects[row]) is not None]
    paths = {path.identity: path for path in objects}
    numbers = {identity: number for number, identity in enumerate(paths)}
    by_number = list(paths.values())
    rows = np.array(there, np.int64)
    number_of = np.array([numbers[path.identity] for path in objects], np.int64)
    plan = plan_requests(
        WantedRanges(number_of, ranges.start[rows], ranges.stop[rows], positions[rows]), engine.model()
    )
    parts: dict[int, BulkPart] = {}
    for part in plan.by_need():
        requests = list(plan.requests(part, by_number[int(plan.object[part])]))
        parts[part] = BulkPart(requests[0].start, engine.fetch(requests))
    for row, part in zip(there, plan.part_of.tolist(), strict=True):
        found[row] = parts[part]
    return found


def link_of(files: ColumnFiles) -> LinkModel | None:
    """Return the link model for requests to a column's store, from the responses so far; None without objects."""
    path = next(filter(None, (_object(files, number) for number in range(len(files)))), None)
    return None if path is None else link_model(path.store)
