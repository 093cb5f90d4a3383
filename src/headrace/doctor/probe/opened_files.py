"""Files opened for reading by first batches, and requests to stores during batch production, in bounded memory."""

from __future__ import annotations

import os
import threading
import time
from contextvars import ContextVar
from typing import Any, Callable
from urllib.parse import urlsplit

from .evidence_file import Record

MOST_NOTED = 256
"""Maximum number of paths noted for one batch."""
_NO_FILES = ("/proc/", "/sys/")
"""Folders of files that the kernel generates."""


class OpenedFiles:
    """Paths of the file opens that hooks report. `add` precedes the user's own call, so it never raises."""

    def __init__(self, failed: Callable[[Exception], None]) -> None:
        self._failed = failed
        self.forked()

    def forked(self) -> None:
        """Reset in the child of a fork, which has opened nothing yet."""
        self.noted: list[str] | None = None
        """Absolute paths since a caller set it to a list, one for each open; None while nobody asks."""

    def add(self, file: Any) -> None:
        """Note a path about to be opened for reading, given as text, bytes or a path object.

        Anything else has no path. A relative path is assumed to keep its first meaning.
        """
        if self.noted is None or len(self.noted) >= MOST_NOTED:
            return
        try:
            path = os.fsdecode(file) if isinstance(file, (str, bytes, os.PathLike)) else ""
            if path and not path.startswith(_NO_FILES):
                self.noted.append(os.path.abspath(path))
        except Exception as error:
            self.noted = None
            self._failed(error)


MOST_STORES = 16
"""Stores counted separately; all others are merged."""
OTHERS = "other stores"
NAMED: ContextVar[str | None] = ContextVar("headrace_store", default=None)
"""Store that the current library call names; requests below it go to an endpoint that says less."""


class StoreReadCounts:
    """Requests to one store since the last record."""

    __slots__ = ("bytes", "failed", "first_us", "place", "requests")

    def __init__(self, place: str) -> None:
        self.place = place
        self.begin_anew()

    def begin_anew(self) -> None:
        self.requests = self.failed = self.bytes = self.first_us = 0


class RemoteReadCounts:
    """Counter of requests in all threads of a process. Hooks call it next to script calls, so it never raises."""

    def __init__(self, name: Callable[[str], int]) -> None:
        """`name` returns a text's number in the evidence."""
        self._name = name
        self.forked()

    def forked(self) -> None:
        """Reset in the child of a fork, where a thread that held the lock does not exist."""
        self._lock = threading.Lock()
        self._stores: dict[str, StoreReadCounts] = {}

    def answered(self, place: str, begun_ns: int, size: int, failed: bool = False) -> None:
        """Count a request to `place` sent at `begun_ns`, whose answer of `size` bytes begins now."""
        now = time.monotonic_ns()
        with self._lock:
            store = self._store(place)
            store.requests += 1
            store.failed += failed
            store.bytes += size
            store.first_us += max((now - begun_ns) // 1000, 1)

    def more(self, place: str, size: int) -> None:
        with self._lock:
            self._store(place).bytes += size

    def record(self, now_us: int, batches: int) -> Record | None:
        """Return the `remote` record since the last one, over `batches` batches; None if there never was a request."""
        rows = []
        with self._lock:
            for store in self._stores.values():
                if store.requests or store.bytes:
                    rows.append([self._name(store.place), store.requests, store.failed, store.bytes, store.first_us])
                    store.begin_anew()
        return ("remote", now_us, batches, rows) if rows or (batches and self._stores) else None

    def _store(self, place: str) -> StoreReadCounts:
        store = self._stores.get(place)
        if store is None:
            if len(self._stores) >= MOST_STORES:
                place = OTHERS
            store = self._stores.setdefault(place, StoreReadCounts(place))
        return store


def place_of(url: Any) -> str:
    """Return the store that a URL names, such as `s3://bucket` or `https://host`, without port or user."""
    named = NAMED.get()
    if named is not None:
        return named
    try:
        parts = urlsplit(str(url))
        host = parts.hostname or ""
    except ValueError:  # not a URL
        return OTHERS
    if "@" in parts.path or not host:  # a user name or password with a slash in it looks like a host
        return OTHERS
    return f"{parts.scheme or 'http'}://{host}"
