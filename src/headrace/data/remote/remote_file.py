"""Objects in stores as open files: reads of ranges, pinned to the content that was there first."""

from __future__ import annotations

import hashlib
import os
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NoReturn

from headrace.data.remote.remote_errors import FailedRequestError, FailureKind, RangeRequest
from headrace.data.remote.requests import LinkModel
from headrace.data.remote.retrying import with_remote_retries
from headrace.data.remote.stores import ObjectPin, ObjectStore
from headrace.data.storage.file_writing import no_room, scratch_file, write_all
from headrace.data.storage.open_file import DescriptorOwner, OpenFile, ReadableFile
from headrace.errors import ChangedError, NotFoundError

_LARGEST_REQUEST_BYTES = 16 << 20
"""What is longer is read in pieces, each of which has the deadline of a request."""
_PIECES_AT_ONCE = 8
_COPIED_AT_ONCE_BYTES = _PIECES_AT_ONCE * _LARGEST_REQUEST_BYTES
_OF_TIME = b"@"
"""Begins what stands for an ETag where the store gives the time of the last change alone."""


@dataclass(frozen=True, eq=False)
class ObjectPath:
    """Path of one object, which stands where the path of a file does: `open_path` opens either."""

    store: ObjectStore
    key: str
    known: dict[str, ObjectPin] = field(default_factory=dict, repr=False)
    """The content that it had when it was first listed or read, under "pin"."""
    listing: str | None = None
    """Path of the cached listing that names it."""

    def __str__(self) -> str:
        return self.store.address.show(self.key)

    def __reduce__(self) -> tuple[Any, ...]:
        return ObjectPath, (self.store, self.key, dict(self.known), self.listing)

    @property
    def identity(self) -> tuple[ObjectStore, str]:
        """Store and key. They tell objects apart whose addresses differ only in what messages leave out."""
        return self.store, self.key

    @property
    def name(self) -> str:
        """Last part of the key."""
        return self.key.rpartition("/")[2]

    @property
    def folder(self) -> str:
        """Address of the prefix that it lies below."""
        return self.store.address.show(self.key.rpartition("/")[0])

    @property
    def pin(self) -> ObjectPin | None:
        """Content that it had when it was first listed or read; None before either."""
        return self.known.get("pin")

    def outdated(self) -> None:
        """Remove the cached listing that names it, since the object is another now, or gone: the next one is new."""
        if self.listing is not None:
            with suppress(OSError):
                os.unlink(self.listing)

    def open(self) -> RemoteFile:
        """Return it as an open file. Nothing is requested yet."""
        return RemoteFile(self)

    def link_model(self, streams: int) -> LinkModel:
        """Return what requests to its store are planned by, as the answers so far have it."""
        return self.store.link.model(streams)

    def content_name(self) -> str | None:
        """Return a hex hash of its address and its content's version; None where the store states none.

        Raises as reading does.
        """
        pin = self.open().pin()
        stated = pin.etag or pin.version or pin.modified
        if stated is None or stated.startswith("1970-01-01T00:00:00"):  # as a server without any is understood
            return None
        known = "\0".join((self.store.lasting_address.show(self.key), str(pin.size), stated))
        return hashlib.blake2b(known.encode(), digest_size=16).hexdigest()


def write_object(path: ObjectPath, source: str) -> None:
    """Make an object of the file at the path `source`, in the place of what lay there.

    It appears whole, or not at all. Raises ReadError, NotFoundError, which name the object.
    """
    request = RangeRequest(str(path), verb="written")
    with_remote_retries(path.store, request, lambda: path.store.write(path.key, source))


def tag_of(pin: ObjectPin) -> bytes:
    """Return what tells an object's content from another of the same size; empty where the store states nothing."""
    if pin.etag is not None:
        return pin.etag.encode()
    return b"" if pin.modified is None else _OF_TIME + pin.modified.encode()


def pin_of(size: int, tag: bytes) -> ObjectPin:
    """Return the pin of a size and a `tag_of`."""
    if tag.startswith(_OF_TIME):
        return ObjectPin(size, None, modified=tag[len(_OF_TIME) :].decode())
    return ObjectPin(size, tag.decode() or None)


class RemoteFile(ReadableFile):
    """Open object without a position, with the interface of `OpenFile`; forked processes and threads may share it."""

    def __init__(self, of: ObjectPath) -> None:
        """Take the path of the object, which keeps the content that is seen first."""
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
        """Return which content is read, asked for where it is not known yet. Raises ReadError, NotFoundError."""
        if self.of.pin is None:
            store, key = self.of.store, self.of.key
            request = RangeRequest(str(self), verb="found")
            self._take(with_remote_retries(store, request, lambda: store.head(key)))
        assert self.of.pin is not None
        return self.of.pin

    def size(self) -> int:
        """Return how many bytes the object has. Raises ReadError, NotFoundError."""
        return self.pin().size

    def read(self, offset: int, length: int) -> bytes:
        """Return up to `length` bytes; fewer only at the end. Raises ReadError, NotFoundError or ChangedError."""
        known = min(self._clamp(offset, length), _LARGEST_REQUEST_BYTES)
        parts = [self._request(offset, offset + known)] if known > 0 else []
        done = len(parts[0]) if parts else 0
        rest = self._clamp(offset + done, length - done) if done else 0  # what was read says how long the object is
        if rest > 0:
            first, end = offset + done, offset + done + rest
            starts = range(first, end, _LARGEST_REQUEST_BYTES)
            with ThreadPoolExecutor(min(_PIECES_AT_ONCE, len(starts)), thread_name_prefix="headrace-read") as pool:
                parts += pool.map(lambda at: self._request(at, min(end, at + _LARGEST_REQUEST_BYTES)), starts)
        return bytes(parts[0]) if len(parts) == 1 else b"".join(parts)

    def read_into(self, buffer: memoryview, offset: int) -> int:
        """Fill `buffer` as far as the object goes, and return how many bytes that are. Raises as `read` does."""
        done = 0
        while (known := self._clamp(offset + done, len(buffer) - done)) > 0:
            part = self._request(offset + done, offset + done + min(known, _LARGEST_REQUEST_BYTES))
            buffer[done : done + len(part)] = part
            done += len(part)
        return done

    def _clamp(self, offset: int, length: int) -> int:
        """Return how many of these bytes there can be."""
        pin = self.of.pin
        return length if pin is None else min(length, pin.size - offset)

    def _request(self, start: int, end: int) -> memoryview:
        store, key = self.of.store, self.of.key

        def attempt() -> tuple[memoryview, ObjectPin]:
            began_s = time.perf_counter()
            try:
                data, pin = store.read(key, start, end, self.of.pin)
                store.link.answered(len(data), time.perf_counter() - began_s)
                return data, pin
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
        self._take(pin)
        return data

    def _take(self, pin: ObjectPin) -> None:
        self.of.known.setdefault("pin", pin)


class CopiedObject(DescriptorOwner):
    """Object that is read whole, and several times, as texts are: copied once, to a file without a name."""

    def __init__(self, of: ObjectPath) -> None:
        """Take the object. It is copied when it is opened first."""
        self.of = of

    def __str__(self) -> str:
        return str(self.of)

    @property
    def name(self) -> str:
        """Last part of its key."""
        return self.of.name

    @property
    def folder(self) -> str:
        """Address of the prefix that it lies below."""
        return self.of.folder

    def content_name(self) -> str | None:
        """Return what the object's does."""
        return self.of.content_name()

    def open(self) -> OpenFile:
        """Return the copy, open. Raises ReadError, NotFoundError, ChangedError, and DatasetError for lack of room."""
        if self._descriptor is None:
            file = self.of.open()
            with scratch_file(None) as copy:
                for at in range(0, file.size(), _COPIED_AT_ONCE_BYTES):
                    data = file.read(at, _COPIED_AT_ONCE_BYTES)
                    try:
                        write_all(copy.fileno(), memoryview(data), at)
                    except OSError as error:
                        raise no_room(None, error) from error
                self._descriptor = os.dup(copy.fileno())
        return OpenFile(f"/proc/self/fd/{self._descriptor}".encode())
