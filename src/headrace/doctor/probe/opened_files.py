"""Files opened for reading during batch production: some by path, all by folder, in bounded memory."""

from __future__ import annotations

import math
import os
import threading
import time
from collections import Counter
from contextvars import ContextVar
from typing import Any, Callable
from urllib.parse import urlsplit

from .evidence_file import Record

MOST_PATHS = 64
MOST_FOLDERS = 16
MOST_ENDS = 8
"""Suffixes recorded per folder. With more, the suffixes do not name file formats."""
MOST_NOTED = 256
"""Maximum number of paths noted for one batch."""
MOST_KNOWN = 4096
"""Maximum number of folder names with a cached location."""
LEAST_DEPTH = 2
"""Minimum depth of a folder that stands for all its subfolders: the root or /home would stand for everything."""

_NO_FILES = ("/proc/", "/sys/")
"""Folders of files that the kernel generates."""


class OpensByFolder:
    """Opens in one folder since the last record, subfolders included if `is_deep`."""

    __slots__ = ("ends", "is_deep", "opens", "path")

    def __init__(self, path: str, is_deep: bool = False) -> None:
        self.path = path
        self.is_deep = is_deep
        self.opens = 0
        self.ends: set[str] = set()

    def add_end(self, end: str) -> None:
        """Add a suffix; the empty suffix stands for all others."""
        self.ends.add(end if len(self.ends) < MOST_ENDS else "")

    def take(self) -> tuple[int, int, list[str]]:
        """Return the fields of the record after the folder's name, and reset."""
        opens, self.opens = self.opens, 0
        return opens, int(self.is_deep), sorted(self.ends)


class OpenedFiles:
    """Counter of the file opens that hooks report. `add` precedes the user's own call, so it never raises."""

    def __init__(self, name: Callable[[str], int], failed: Callable[[Exception], None]) -> None:
        """`name` returns a text's number in the evidence."""
        self._name = name
        self._failed = failed
        self.forked()

    def forked(self) -> None:
        """Reset in the child of a fork, which has opened nothing yet."""
        self._is_off = False
        self.noted: list[str] | None = None
        """Absolute paths since a caller set it to a list, one for each open; None while nobody asks."""
        self._paths: dict[str, list[Any]] = {}
        """Absolute path and number of opens, by the path as given."""
        self._folders: dict[str, OpensByFolder] = {}
        self._known: dict[str, OpensByFolder | None] = {}
        """Counter of each folder, by the folder as given; None for a folder whose files do not count."""
        self._rest = OpensByFolder("")
        self._unpaid = 0

    def add(self, file: Any) -> None:
        """Count a path about to be opened for reading, given as text, bytes or a path object.

        Anything else has no path. A relative folder name is assumed to keep its first meaning.
        """
        if self._is_off:
            return
        try:
            if type(file) is str:
                path = file
            else:
                path = os.fsdecode(file) if isinstance(file, (str, bytes, os.PathLike)) else ""
            if not path:
                return
            self._unpaid += 1
            cut = path.rfind("/") + 1
            folder = self._known[path[:cut]] if path[:cut] in self._known else self._meet(path[:cut])
            if folder is None:
                return
            folder.opens += 1
            dot = path.rfind(".", cut)
            end = path[dot:] if dot > cut else ""
            if end not in folder.ends:
                folder.add_end(end)
            if self.noted is not None and len(self.noted) < MOST_NOTED:
                self.noted.append(os.path.abspath(path))
            seen = self._paths.get(path)
            if seen is not None:
                seen[1] += 1
            elif len(self._paths) < MOST_PATHS:
                self._paths[path] = [os.path.abspath(path), 1]
        except Exception as error:
            self._is_off = True
            self._failed(error)

    def record(self, now_us: int) -> Record | None:
        """Return the `opened` record since the last one, or None if nothing was opened."""
        folders = [one for one in list(self._folders.values()) if one.opens]
        if not folders and not self._rest.opens:
            return None
        files: list[list[int]] = []
        for seen in list(self._paths.values()):
            opens, seen[1] = seen[1], 0
            if opens:
                files.append([self._name(seen[0]), opens])
        told = [[self._name(one.path), *one.take()] for one in folders]
        rest, self._rest.opens = self._rest.opens, 0
        return ("opened", now_us, files, told, rest)

    def take_calls(self) -> int:
        """Return the number of counted opens since the last call."""
        calls, self._unpaid = self._unpaid, 0
        return calls

    def _meet(self, given: str) -> OpensByFolder | None:
        """Return the counter of a folder not in the cache."""
        path = os.path.abspath(given)
        folder = None
        if not f"{path}/".startswith(_NO_FILES):
            deep = (one for one in self._folders.values() if one.is_deep and _is_in(path, one.path))
            folder = self._folders.get(path) or next(deep, None)
            if folder is None and len(self._folders) >= MOST_FOLDERS:
                folder = self._together(path)
            if folder is None:
                folder = self._folders[path] = OpensByFolder(path)
        if len(self._known) >= MOST_KNOWN:
            self._known.clear()
        self._known[given] = folder
        return folder

    def _together(self, path: str) -> OpensByFolder | None:
        """Merge folders with a common ancestor, such as image class folders: the deepest ancestor of half of them.

        Return None if that ancestor is not above `path`, and there is room now. Return the rest if there is no such
        ancestor.
        """
        above: Counter[str] = Counter()
        for one in [path, *self._folders]:
            parts = one.split("/")
            above.update("/".join(parts[:end]) for end in range(LEAST_DEPTH + 1, len(parts)))
        wide = [parent for parent, count in above.items() if 2 * count >= MOST_FOLDERS]
        if not wide:
            return self._rest
        folder = OpensByFolder(max(wide, key=lambda parent: parent.count("/")), is_deep=True)
        for beneath in [one for one in self._folders if one == folder.path or _is_in(one, folder.path)]:
            other = self._folders.pop(beneath)
            folder.opens += other.opens  # only opens not written yet; the others are written under its own name
            for end in other.ends:
                folder.add_end(end)
        self._folders[folder.path] = folder
        self._known.clear()
        return folder if _is_in(path, folder.path) else None


def _is_in(path: str, folder: str) -> bool:
    return path.startswith(folder + "/")


MOST_STORES = 16
"""Stores counted separately; all others are merged."""
OTHERS = "other stores"
STEPS_A_DOUBLING = 8
"""Latency classes per factor of two: quantiles are accurate to 9 %."""
NAMED: ContextVar[str | None] = ContextVar("headrace_store", default=None)
"""Store that the current library call names; requests below it go to an endpoint that says less."""
_AMAZON, _GOOGLE = ".amazonaws.com", "storage.googleapis.com"
_AZURE, _HUB = (".blob.core.windows.net", ".dfs.core.windows.net"), ("huggingface.co", ".hf.co")


class StoreReadCounts:
    """Requests to one store since the last record."""

    __slots__ = ("bytes", "failed", "first_us", "latencies", "place", "requests")

    def __init__(self, place: str) -> None:
        self.place = place
        self.begin_anew()

    def begin_anew(self) -> None:
        self.requests = self.failed = self.bytes = self.first_us = 0
        self.latencies: dict[int, int] = {}
        """Requests by latency class. Latency is the time to the start of the answer."""


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
        self._spent_ns = 0

    def answered(self, place: str, begun_ns: int, size: int, failed: bool = False) -> None:
        """Count a request to `place` sent at `begun_ns`, whose answer of `size` bytes begins now."""
        now = time.monotonic_ns()
        us = max((now - begun_ns) // 1000, 1)
        step = int(math.log2(us) * STEPS_A_DOUBLING)
        with self._lock:
            store = self._store(place)
            store.requests += 1
            store.failed += failed
            store.bytes += size
            store.first_us += us
            store.latencies[step] = store.latencies.get(step, 0) + 1
            self._spent_ns += time.monotonic_ns() - now

    def more(self, place: str, size: int) -> None:
        with self._lock:
            self._store(place).bytes += size

    def take_spent_ns(self) -> int:
        """Return the cost of counting since the last call."""
        spent, self._spent_ns = self._spent_ns, 0
        return spent

    def record(self, now_us: int, batches: int) -> Record | None:
        """Return the `remote` record since the last one, over `batches` batches; None if there never was a request."""
        rows = []
        with self._lock:
            for store in self._stores.values():
                if store.requests or store.bytes:
                    latencies = [list(pair) for pair in sorted(store.latencies.items())]
                    counts = (store.requests, store.failed, store.bytes, store.first_us)
                    rows.append([self._name(store.place), *counts, latencies])
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
    return named_host(parts.scheme or "http", host, parts.path)


def named_host(scheme: str, host: str, path: str) -> str:
    """Return the store at a host: the bucket for a cloud host."""
    first = path.lstrip("/").partition("/")[0]
    if host.endswith(_AMAZON):  # the bucket precedes the service's name, or is the first part of the path
        bucket, found, _ = host[: -len(_AMAZON)].rpartition(".s3")
        return f"s3://{bucket if found else first}"
    if host.endswith(_GOOGLE):  # the same, or after `/b/`
        parts = path.split("/")
        inside = parts[parts.index("b") + 1] if "b" in parts[:-1] else first
        return f"gs://{host[: -len(_GOOGLE)].rstrip('.') or inside}"
    if host.endswith(_AZURE):
        return f"az://{first}"
    return "hf://" if host.endswith(_HUB) else f"{scheme}://{host}"
