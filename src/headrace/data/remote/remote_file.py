"""Objects in stores as open files: range reads, pinned to the first content seen."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, BinaryIO, NoReturn

from headrace.data.storage.file_writing import scratch_file, write_all
from headrace.data.storage.open_file import DescriptorOwner, FilePath, OpenFile, ReadableFile, folder_of
from headrace.errors import ChangedError, NotFoundError
from headrace.stores import (
    LARGEST_REQUEST_BYTES,
    FailedRequestError,
    FailureKind,
    ObjectPin,
    ObjectStore,
    RangeRequest,
    Request,
    shared_requests,
    with_remote_retries,
)
from headrace.system import work_through

_PIECE_BYTES, _PIECES_AT_ONCE = 8 << 20, 8
"""Size and number of the requests that copy an object."""
_OF_TIME = b"@"
"""Prefix of tags for stores that state a modification time but no ETag."""


@dataclass(frozen=True, eq=False)
class ObjectPath:
    """Path of one object, usable in place of a file path: `open_path` opens either."""

    store: ObjectStore
    key: str
    known: dict[str, ObjectPin] = field(default_factory=dict, repr=False)
    """Pin of the content first listed or read, under "pin"."""
    listing: str | None = None
    """Path of the cached listing with this object."""

    def __str__(self) -> str:
        return self.store.address.show(self.key)

    def __reduce__(self) -> tuple[Any, ...]:
        return ObjectPath, (self.store, self.key, dict(self.known), self.listing)

    @property
    def identity(self) -> tuple[ObjectStore, str]:
        """Store and key, which distinguish objects with equal addresses in messages."""
        return self.store, self.key

    @property
    def name(self) -> str:
        """Last part of the key."""
        return self.key.rpartition("/")[2]

    @property
    def folder(self) -> str:
        """Address of the object's prefix."""
        return self.store.address.show(self.key.rpartition("/")[0])

    @property
    def pin(self) -> ObjectPin | None:
        """Pin of the content first listed or read; None before either."""
        return self.known.get("pin")

    def outdated(self) -> None:
        """Remove the cached listing with this object, which has changed or is gone; the next listing is new."""
        if self.listing is not None:
            with suppress(OSError):
                os.unlink(self.listing)

    def open(self) -> RemoteFile:
        """Open the object, without any request yet."""
        return RemoteFile(self)

    def take(self, pin: ObjectPin) -> None:
        """Expect this content from now on, unless there is a pin."""
        self.known.setdefault("pin", pin)

    def content_name(self) -> str | None:
        """Return a hex hash of the address and the content version; None if the store states no version.

        Raises as reading does.
        """
        pin = self.open().pin()
        stated = pin.etag or pin.version or pin.modified
        if stated is None or stated.startswith("1970-01-01T00:00:00"):  # epoch: the server states no time
            return None
        known = "\0".join((self.store.lasting_address.show(self.key), str(pin.size), stated))
        return hashlib.blake2b(known.encode(), digest_size=16).hexdigest()


def is_there(path: ObjectPath) -> bool:
    """Return False for an object that is missing, or that its store keeps from us, as S3 does with missing ones."""
    try:
        path.take(path.store.head(path.key))
    except FailedRequestError as failure:  # others pass, or are raised by what reads the object
        return failure.kind not in (FailureKind.MISSING, FailureKind.CREDENTIALS)
    return True


def beside(path: FilePath, name: str) -> FilePath:
    """Return the file or object of this name, which may have folders, in the folder or prefix of another."""
    if isinstance(path, ObjectPath):
        return ObjectPath(path.store, f"{path.key.rpartition('/')[0]}/{name}".lstrip("/"))
    return os.path.join(folder_of(path), name)


def put_object(
    path: ObjectPath, write: Callable[[BinaryIO], object], then: Callable[[str], object] = lambda _: None
) -> int:
    """Write an object as `write_object` does, from a scratch file that `write` fills, and return its size.

    Memory stays small, and a retry sends the same bytes. `then` is called with the path of the scratch file. Raises
    DatasetError if there is no space.
    """
    with scratch_file(None) as scratch:
        with os.fdopen(scratch, "wb", closefd=False) as file:
            write(file)
        written = f"/proc/self/fd/{scratch}"
        write_object(path, written)
        then(written)
        return os.fstat(scratch).st_size


def copy_object(path: ObjectPath, descriptor: int) -> None:
    """Copy an object to the start of a file. Raises ReadError, NotFoundError, ChangedError, OSError."""
    file = path.open()
    pieces = range(0, file.size(), _PIECE_BYTES)

    def copy(at: int) -> None:
        write_all(descriptor, memoryview(file.read(at, _PIECE_BYTES)), at)

    work_through(pieces, copy, name="copy", threads=max(1, min(_PIECES_AT_ONCE, len(pieces))))


def write_object(path: ObjectPath, source: str) -> None:
    """Write the file at the path `source` as an object, replacing any previous one.

    The object appears completely or not at all. Raises ReadError, NotFoundError, which name the object.
    """
    request = RangeRequest(str(path), verb="written")
    with_remote_retries(path.store, request, lambda: path.store.write(path.key, source))


def tag_of(pin: ObjectPin) -> bytes:
    """Return a tag for an object's content among contents of the same size; empty if the store states none."""
    if pin.etag is not None:
        return pin.etag.encode()
    return b"" if pin.modified is None else _OF_TIME + pin.modified.encode()


def pin_of(size: int, tag: bytes) -> ObjectPin:
    """Return the pin for a size and the result of `tag_of`."""
    if tag.startswith(_OF_TIME):
        return ObjectPin(size, None, modified=tag[len(_OF_TIME) :].decode())
    return ObjectPin(size, tag.decode() or None)


class RemoteFile(ReadableFile):
    """Open object without a position, with the interface of `OpenFile`; safe across forks and threads."""

    def __init__(self, of: ObjectPath) -> None:
        """Take the path of the object, which remembers the first content seen."""
        self.of = of
        self.path = os.fsencode(str(of))

    def __reduce__(self) -> NoReturn:
        raise TypeError("an open file belongs to its process and cannot be pickled")

    def __str__(self) -> str:
        return str(self.of)

    @property
    def readings(self) -> tuple[ReadableFile, ...]:
        return self, self

    def pin(self) -> ObjectPin:
        """Return the content pin, requested if not known yet. Raises ReadError, NotFoundError."""
        if self.of.pin is None:
            store, key = self.of.store, self.of.key
            request = RangeRequest(str(self), verb="found")
            self.of.take(with_remote_retries(store, request, lambda: store.head(key)))
        assert self.of.pin is not None
        return self.of.pin

    def size(self) -> int:
        """Return the object's size in bytes. Raises ReadError, NotFoundError."""
        return self.pin().size

    def read(self, offset: int, length: int) -> bytes:
        """Return up to `length` bytes; fewer only at the end. Raises ReadError, NotFoundError or ChangedError."""
        known = min(self._clamp(offset, length), LARGEST_REQUEST_BYTES)
        first = self._request(offset, offset + known) if known > 0 else memoryview(b"")
        done = len(first)
        rest = self._clamp(offset + done, length - done) if done else 0  # the first read pinned the size
        if rest <= 0:
            return bytes(first)
        edges = [*range(offset + done, offset + done + rest, LARGEST_REQUEST_BYTES), offset + done + rest]
        with shared_requests(self.of.store) as requests:
            rest_of_it = requests.fetch([Request(self.of, low, high, 0) for low, high in pairwise(edges)])
            return b"".join([first, rest_of_it.result()])  # each attempt of a request has a deadline

    def read_into(self, buffer: memoryview, offset: int) -> int:
        """Fill `buffer` up to the object's end, and return the number of bytes. Raises as `read` does."""
        done = 0
        while (known := self._clamp(offset + done, len(buffer) - done)) > 0:
            part = self._request(offset + done, offset + done + min(known, LARGEST_REQUEST_BYTES))
            buffer[done : done + len(part)] = part
            done += len(part)
        return done

    def _clamp(self, offset: int, length: int) -> int:
        """Return how many of these bytes can exist."""
        pin = self.of.pin
        return length if pin is None else min(length, pin.size - offset)

    def _request(self, start: int, end: int) -> memoryview:
        store, key = self.of.store, self.of.key

        def attempt() -> tuple[memoryview, ObjectPin]:
            try:
                return store.read(key, start, end, self.of.pin)
            except FailedRequestError as error:
                if error.kind is not FailureKind.EMPTY_RANGE or self.of.pin is not None:
                    raise
            return memoryview(b""), store.head(key)  # an object that ends before `start`, such as an empty one

        try:
            data, pin = with_remote_retries(
                store, RangeRequest(str(self), start, end), attempt, is_known=self.of.pin is not None
            )
        except (ChangedError, NotFoundError):
            self.of.outdated()
            raise
        self.of.take(pin)
        return data


class CopiedObject(DescriptorOwner):
    """Object that is read completely and repeatedly, as texts are: copied once, to an unnamed file."""

    def __init__(self, of: ObjectPath) -> None:
        """Take the object, which the first opening copies."""
        self.of = of

    def __str__(self) -> str:
        return str(self.of)

    @property
    def name(self) -> str:
        """Last part of the key."""
        return self.of.name

    @property
    def folder(self) -> str:
        """Address of the object's prefix."""
        return self.of.folder

    def content_name(self) -> str | None:
        """Return `content_name` of the object."""
        return self.of.content_name()

    def open(self) -> OpenFile:
        """Open the copy. Raises ReadError, NotFoundError, ChangedError, and DatasetError if there is no space."""
        if self._descriptor is None:
            with scratch_file(None) as scratch:
                copy_object(self.of, scratch)
                self._descriptor = os.dup(scratch)
        return OpenFile(f"/proc/self/fd/{self._descriptor}".encode())
