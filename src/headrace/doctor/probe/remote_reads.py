"""Requests to stores during batch production: how many, how long until they answer, and how many bytes, by store.

A store is named by its scheme and its bucket or host. Keys, queries and credentials are in no record: of an object's
range only a hash is, by which the doctor knows how much was asked for again.
"""

from __future__ import annotations

import math
import threading
import time
from contextvars import ContextVar
from typing import Any, Callable
from urllib.parse import urlsplit
from zlib import crc32

from .evidence_file import Record
from .opened_files import LeastHashes

MOST_STORES = 16
"""Stores that are counted apart; all others are one."""
OTHERS = "other stores"
STEPS_A_DOUBLING = 8
"""Classes of latency within a factor of two: quantiles are known to within 9 %."""
NAMED: ContextVar[str | None] = ContextVar("headrace_store", default=None)
"""Store that a library's call names, while it runs: requests below it go to an endpoint that tells less."""
_AMAZON, _GOOGLE = ".amazonaws.com", "storage.googleapis.com"
_AZURE, _HUB = (".blob.core.windows.net", ".dfs.core.windows.net"), ("huggingface.co", ".hf.co")


class StoreReadCounts(LeastHashes):
    """Requests to one store since the last record, and the least hashes of what they asked for."""

    __slots__ = ("bytes", "failed", "first_us", "latencies", "place", "requests")

    def __init__(self, place: str) -> None:
        super().__init__()
        self.place = place
        self.begin_anew()

    def begin_anew(self) -> None:
        self.requests = self.failed = self.bytes = self.first_us = 0
        self.latencies: dict[int, int] = {}
        """Requests by class of latency: the time until an answer began."""


class RemoteReadCounts:
    """Counter of requests in all threads of a process. Hooks call it beside the script's own calls: none may raise."""

    def __init__(self, name: Callable[[str], int]) -> None:
        """`name` returns a text's number in the evidence."""
        self._name = name
        self.forked()

    def forked(self) -> None:
        """Begin anew in the child of a fork, where a thread that held the lock does not exist."""
        self._lock = threading.Lock()
        self._stores: dict[str, StoreReadCounts] = {}
        self._spent_ns = 0

    def answered(self, place: str, asked: str, begun_ns: int, size: int, failed: bool = False) -> None:
        """Count a request to `place` since `begun_ns`, whose answer begins now and has `size` bytes.

        `asked` names the object and its range.
        """
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
            hash_ = crc32(asked.encode("utf-8", "surrogatepass"))
            if hash_ < store.limit:
                store.add(hash_)
            self._spent_ns += time.monotonic_ns() - now

    def more(self, place: str, size: int) -> None:
        """Count bytes of an answer that has begun before."""
        with self._lock:
            self._store(place).bytes += size

    def take_spent_ns(self) -> int:
        """Return what counting cost since the last call."""
        spent, self._spent_ns = self._spent_ns, 0
        return spent

    def record(self, now_us: int, batches: int) -> Record | None:
        """Return the `remote` record of what came since the last one, in as many batches; None where none ever did."""
        rows = []
        with self._lock:
            for store in self._stores.values():
                if store.requests or store.bytes:
                    latencies = [list(pair) for pair in sorted(store.latencies.items())]
                    counts = (store.requests, store.failed, store.bytes, store.first_us)
                    rows.append([self._name(store.place), *counts, latencies, store.take_hashes()])
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
    """Return the store that a web address names: `s3://bucket`, `https://host`; without a port or a user."""
    named = NAMED.get()
    if named is not None:
        return named
    try:
        parts = urlsplit(str(url))
        host = parts.hostname or ""
    except ValueError:  # no address
        return OTHERS
    if "@" in parts.path or not host:  # a user's name or password with a slash in it looks like a host
        return OTHERS
    return named_host(parts.scheme or "http", host, parts.path)


def named_host(scheme: str, host: str, path: str) -> str:
    """Return the store at a host, by the bucket where the host is a cloud's."""
    first = path.lstrip("/").partition("/")[0]
    if host.endswith(_AMAZON):  # the bucket stands before the service's name, or is the path's first part
        bucket, found, _ = host[: -len(_AMAZON)].rpartition(".s3")
        return f"s3://{bucket if found else first}"
    if host.endswith(_GOOGLE):  # the same, or behind `/b/`
        parts = path.split("/")
        inside = parts[parts.index("b") + 1] if "b" in parts[:-1] else first
        return f"gs://{host[: -len(_GOOGLE)].rstrip('.') or inside}"
    if host.endswith(_AZURE):
        return f"az://{first}"
    return "hf://" if host.endswith(_HUB) else f"{scheme}://{host}"
