"""Other libraries' indices next to a tar: members listed by DALI's `wds2idx`, and sample offsets of Energon.

DALI's lists name, offset and size of each regular file. It replaces a scan if its members fill the tar without a gap,
and if the headers of a sample of them agree. The index then has the check of each header, as a scan would find it, so
each later read of a member fails if the tar's header is another. Energon's has only the offsets at which samples begin:
the headers are still read, but need not be looked for.
"""

from __future__ import annotations

import os
import tarfile
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from headrace._core import tar_header_check
from headrace.data.archives.archive_scans import note_scan
from headrace.data.remote.remote_file import ObjectPath
from headrace.data.storage.open_file import FilePath, open_path
from headrace.data.storage.strings import Ints, StringColumn
from headrace.errors import HeadraceError, warn_caller
from headrace.stores import LARGEST_REQUEST_BYTES, FailedRequestError, Request, shared_requests

_LEAST_BYTES = 32 << 20
"""Tars below this size are scanned in few requests."""
_BLOCK = tarfile.BLOCKSIZE
_BEFORE = (_BLOCK, 3 * _BLOCK)
"""Bytes before the data of each member: a header, or PAX records with their header, and a header."""
_SAMPLES = 16
_MOST_TAIL_BYTES = 1 << 20
_NAME_BYTES, _SIZE_AT = 100, 124
_SKIPPED = (
    "directories",
    "links",
    "devices",
    "sparse files",
    "members of unknown type",
    "bytes after the end mark",
)


class _DisagreesError(Exception):
    """Signal that a sidecar does not describe the tar; the text completes "its …"."""


class _Listed(NamedTuple):
    """Members as a sidecar lists them."""

    names: list[str]
    offset: Ints
    size: Ints

    def tiled(self) -> tuple[_Listed, int, int]:
        """Return the members without a gap between them, the bytes before each, and the end. Raises _DisagreesError.

        Where members have PAX records, as from WebDataset's TarWriter, wds2idx lists all but the last member too far
        on, by the bytes of the records.
        """
        padded = -(-self.size // _BLOCK) * _BLOCK
        for before in _BEFORE:
            offset = np.cumsum(padded + before) - padded
            if np.isin(self.offset - offset, (0, before - _BLOCK)).all():
                return self._replace(offset=offset), before, int(offset[-1] + padded[-1])
        raise _DisagreesError("the tar has members or records in between")


def listed_members(path: FilePath) -> tuple[Any, ...] | None:
    """Return the members of a tar from DALI's index next to it, like `scan_tar`; None without a valid index.

    Raises as reading the tar does.
    """
    size = open_path(path).size()
    place = _next_to(path, lambda name: f"{name[: name.find('.', 1)]}.idx" if "." in name[1:] else f"{name}.idx")
    text = _content(place) if size >= _LEAST_BYTES else None
    if text is None or not text.startswith(b"v1."):
        return None
    try:
        listed, before, end = _parsed(text).tiled()
        checks = _checked(path, size, listed, before, end)
    except _DisagreesError as error:
        warn_caller(
            f"{place}: expected the members of {path}, got others: {error}. It is not used, and the tar's headers are "
            f"read. Write it again by wds2idx, or remove it"
        )
        return None
    note_scan(size, 0, 0)
    names, none = StringColumn.from_list(listed.names), StringColumn.from_list([])
    types = np.full(len(listed.names), tarfile.REGTYPE[0], np.uint8)
    located = (types, listed.offset, listed.size, checks)
    links = (none.blob, none.offsets, np.empty(0, np.int64))
    return names.blob, names.offsets, *located, *links, dict.fromkeys(_SKIPPED, 0)


def sample_offsets(path: ObjectPath, size: int) -> Ints | None:
    """Return the offsets of samples from Energon's index next to a tar of `size` bytes; None without one.

    They may be wrong: a scan only begins to look for headers there.
    """
    data = _content(_next_to(path, lambda name: f"{name}.idx")) if size >= _LEAST_BYTES else None
    if not data or len(data) % 8 or data.startswith(b"v1."):
        return None
    offsets = np.frombuffer(data, "<u8").astype(np.int64)
    rise = len(offsets) > 1 and bool((np.diff(offsets) > 0).all())
    return offsets if rise and offsets[0] >= 0 and offsets[-1] <= size and not (offsets % _BLOCK).any() else None


def _next_to(path: FilePath, rename: Callable[[str], str]) -> FilePath:
    folder, slash, name = (path.key if isinstance(path, ObjectPath) else str(path)).rpartition("/")
    place = f"{folder}{slash}{rename(name)}"
    return ObjectPath(path.store, place) if isinstance(path, ObjectPath) else place


def _content(place: FilePath) -> bytes | None:
    """Return the content of a sidecar; None if there is none. A store is asked once: it may hide what is missing."""
    try:
        if not isinstance(place, ObjectPath):
            place = str(place)
            return open_path(place).read(0, os.path.getsize(place)) if os.path.isfile(place) else None
        if place.store.address.query is not None:  # the signature is of another object
            return None
        data, pin = place.store.read(place.key, 0, LARGEST_REQUEST_BYTES, None)
        place.take(pin)
        return bytes(data) + place.open().read(len(data), pin.size - len(data))
    except (FailedRequestError, HeadraceError, OSError):
        return None


def _parsed(text: bytes) -> _Listed:
    """Return the members of DALI's index: a line for each sample, with extension, offset, size and name of each."""
    first, *lines = text.decode("utf-8", "replace").splitlines()
    words = [word for line in lines for word in line.split(" ")]
    version, _, count = first.partition(" ")
    if version != "v1.2" or count != str(len(lines)) or not words or len(words) % 4:
        raise _DisagreesError("it is damaged, or of another version than v1.2")
    names = words[3::4]
    try:
        offset, size = (np.array(list(map(int, words[at::4])), np.int64) for at in (1, 2))
    except (ValueError, OverflowError):
        raise _DisagreesError("it is damaged: expected offsets and sizes") from None
    for extension, name in zip(words[::4], names, strict=True):
        if not name.endswith(f".{extension}") or not name.isascii() or len(name) > _NAME_BYTES or "\\" in name:
            raise _DisagreesError(f"it cannot name {name!r} as the tar does")
    return _Listed(names, offset, size)


def _checked(path: FilePath, size: int, listed: _Listed, before: int, end: int) -> npt.NDArray[np.uint32]:
    """Return the check of each header. Raises _DisagreesError if the tar has other members, as far as a sample shows.

    An unlisted member, such as a folder or a link, moves all members after it, and the last one is in the sample.
    """
    if not 0 <= size - end <= _MOST_TAIL_BYTES or (listed.size < 0).any():
        raise _DisagreesError("the tar ends elsewhere")
    some = np.unique(np.linspace(0, len(listed.names) - 1, _SAMPLES).astype(np.int64)).tolist()
    heads = [(int(listed.offset[at]) - before, int(listed.offset[at])) for at in some]
    *found, tail = _read(path, [*heads, (end, size)])
    if tail.strip(b"\0"):
        raise _DisagreesError("the tar has more members")
    checks = np.fromiter(_expected_checks(listed), np.uint32, len(listed.names))
    for at, data in zip(some, found, strict=True):
        if not _is_header(data, int(checks[at])):
            raise _DisagreesError(f"the header of {listed.names[at]!r} is another")
    return checks


def _read(path: FilePath, ranges: list[tuple[int, int]]) -> list[bytes]:
    """Return the bytes of ranges of a tar; an object's are requested at once. Raises as reading does."""
    note_scan(0, sum(stop - start for start, stop in ranges), len(ranges))
    if not isinstance(path, ObjectPath):
        file = open_path(path)
        return [file.read(start, stop - start) for start, stop in ranges]
    with shared_requests(path.store) as engine:
        answers = [engine.fetch([Request(path, start, stop, 0)]) if stop > start else None for start, stop in ranges]
        return [b"" if answer is None else bytes(answer.result()) for answer in answers]  # each has a deadline


def _expected_checks(listed: _Listed) -> Iterator[int]:
    for name, size in zip(listed.names, listed.size.tolist(), strict=True):
        header = name.encode().ljust(_SIZE_AT, b"\0") + b"%011o" % size
        yield tar_header_check(header.ljust(_BLOCK, b"\0")[:_BLOCK])


def _is_header(data: bytes, check: int) -> bool:
    """Return True for a regular file's header with this check, after PAX records that change neither name nor size."""
    try:
        member = tarfile.TarInfo.frombuf(data[-_BLOCK:], "utf-8", "surrogateescape")
        if len(data) > _BLOCK:
            records = tarfile.TarInfo.frombuf(data[:_BLOCK], "utf-8", "surrogateescape")
            names = {line.partition(b"=")[0].partition(b" ")[2] for line in data[_BLOCK : 2 * _BLOCK].split(b"\n")}
            if records.type != tarfile.XHDTYPE or names & {b"path", b"size", b"linkpath"} or b"GNU.sparse" in data:
                return False
    except tarfile.TarError:
        return False
    return member.type in (tarfile.REGTYPE, tarfile.AREGTYPE) and tar_header_check(data[-_BLOCK:]) == check
