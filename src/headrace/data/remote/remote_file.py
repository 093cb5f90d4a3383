"""Objects in stores as open files: reads of ranges, with retries, pinned to the content that was there first."""

from __future__ import annotations

import hashlib
import os
import posixpath
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeVar

from headrace.data.remote.remote_errors import FailedRequestError, FailureKind, RangeRequest, remote_error
from headrace.data.remote.stores import ObjectPin, ObjectStore
from headrace.data.storage.open_file import ReadableFile

T = TypeVar("T")

REMOTE_PAUSES_S = (0.1, 0.4, 1.6, 6.4)
"""Longest pauses before further attempts; each is drawn between a half of it and all of it, so that many readers that
a store throttles do not come back at once."""
_LARGEST_REQUEST_BYTES = 16 << 20
"""What is longer is read in pieces, each of which has the deadline of a request."""
pause = time.sleep


def with_remote_retries(store: ObjectStore, request: RangeRequest, attempt: Callable[[], T]) -> T:
    """Return what `attempt` returns, at one of `1 + len(REMOTE_PAUSES_S)` attempts.

    Refused credentials are tried once more with a new connection, which reads them anew. Raises ReadError,
    NotFoundError or ChangedError, which name the request.
    """
    waits_s = iter(REMOTE_PAUSES_S)
    renewed, attempts = False, 0
    while True:
        attempts += 1
        try:
            return attempt()
        except FailedRequestError as error:
            failure = error
        if failure.kind is FailureKind.CREDENTIALS and not renewed:
            renewed = True
            store.renew()
            continue
        wait_s = next(waits_s, None) if failure.kind is FailureKind.PASSING else None
        if wait_s is None:
            break
        pause(wait_s * random.uniform(0.5, 1.0))
    raise remote_error(failure, request, attempts=attempts)


@dataclass(frozen=True, eq=False)
class ObjectPath:
    """Path of one object, which stands where the path of a file does: `open_path` opens either."""

    store: ObjectStore
    key: str
    known: dict[str, ObjectPin] = field(default_factory=dict, repr=False)
    """The content that it had when it was first listed or read, under "pin"."""

    def __str__(self) -> str:
        return self.store.address.show(self.key)

    def __reduce__(self) -> tuple[Any, ...]:
        return ObjectPath, (self.store, self.key, dict(self.known))

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

    def open(self) -> RemoteFile:
        """Return it as an open file. Nothing is requested yet."""
        return RemoteFile(self)

    def content_name(self) -> str | None:
        """Return a hex hash of its address and its content's version; None where the store states none.

        Raises as reading does.
        """
        pin = self.open().pin()
        stated = pin.etag or pin.version or pin.modified
        if stated is None or stated.startswith("1970-01-01T00:00:00"):  # as a server without any is understood
            return None
        known = "\0".join((str(self), str(pin.size), stated))
        return hashlib.blake2b(known.encode(), digest_size=16).hexdigest()


@dataclass(frozen=True)
class PrefixObjects:
    """Objects below a prefix, by names as a manifest has them."""

    store: ObjectStore
    prefix: str

    def object(self, number: int, name: bytes) -> ObjectPath:
        """Return the object of that name, as it is at its first read."""
        return ObjectPath(self.store, posixpath.normpath(posixpath.join(self.prefix, os.fsdecode(name))))


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
        parts = []
        while (known := self._clamp(offset, length)) > 0:
            parts.append(self._request(offset, offset + min(known, _LARGEST_REQUEST_BYTES)))
            offset += len(parts[-1])
            length -= len(parts[-1])
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
            try:
                return store.read(key, start, end, self.of.pin)
            except FailedRequestError as error:
                if error.kind is not FailureKind.EMPTY_RANGE or self.of.pin is not None:
                    raise
            return memoryview(b""), store.head(key)  # an object that ends before `start`, such as an empty one

        data, pin = with_remote_retries(store, RangeRequest(str(self), start, end), attempt)
        self._take(pin)
        return data

    def _take(self, pin: ObjectPin) -> None:
        self.of.known.setdefault("pin", pin)
