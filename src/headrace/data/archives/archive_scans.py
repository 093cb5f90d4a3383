"""Scans of several archives at once: progress, time left and log records."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from threading import Lock
from typing import NamedTuple, TypeVar

from headrace.data.storage.open_file import FilePath
from headrace.data.storage.sidecar import identify_archive, sidecar_places
from headrace.errors import HeadraceError
from headrace.system import Stop, work_through

T = TypeVar("T")

_INDEXING_THREADS, _REMOTE_INDEXING_THREADS = 8, 32
_MEASURED_S = 2.0
"""Seconds of scanning before the pace is good enough to estimate the time left."""
_LONG_S = 10.0
"""Expected scan time, in seconds, above which progress is logged."""
_AGAIN_S = 10.0
"""Seconds between two log records of progress."""
_logger = logging.getLogger("headrace")


class ScanState(NamedTuple):
    """Progress of scans of several archives."""

    archives: int
    """Archives to scan."""
    done: int
    """Archives already scanned."""
    total_bytes: int
    """Size of all archives."""
    passed_bytes: int
    """Bytes behind the scans' positions, most of them skipped."""
    read_bytes: int
    """Bytes read, prefetched headers included."""
    wall_s: float
    """Time since the first scan began."""

    @property
    def left_s(self) -> float | None:
        """Estimated time left at the pace so far; None before there is a pace."""
        if not self.passed_bytes or self.wall_s < _MEASURED_S:
            return None
        return (self.total_bytes - self.passed_bytes) * self.wall_s / self.passed_bytes

    @property
    def expected_read_bytes(self) -> int:
        """Estimated bytes that all scans read in total, extrapolated from the scans so far."""
        return self.read_bytes * self.total_bytes // max(1, self.passed_bytes)


class ScanProgress:
    """Sizes of archives, and the progress of their scans. Thread-safe."""

    def __init__(self, *, gap_bytes: int | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        """`gap_bytes`: largest gap between headers that is read to save a request; None: as the link makes it."""
        self.gap_bytes = gap_bytes
        self.stop = Stop()
        """Event that ends the scans soon after it is set."""
        self._clock, self._lock = clock, Lock()
        self._sizes: dict[str, int] = {}
        self._passed: dict[str, int] = {}
        self._done = self._read_bytes = 0
        self._began_s: float | None = None

    def expect(self, paths: Sequence[FilePath], *, cache: str | None) -> None:
        """Find the archives without an index, and their sizes. Ignores errors, which the scans raise."""

        def look(path: FilePath) -> None:
            with suppress(HeadraceError):
                identity = identify_archive(path)
                if not any(map(os.path.exists, sidecar_places(path, identity, cache))):
                    self._sizes[str(path)] = identity.bytes

        work_through(paths, look, name="index", threads=min(_REMOTE_INDEXING_THREADS, len(paths)))

    @contextmanager
    def scan(self, path: FilePath) -> Iterator[None]:
        """Attribute this thread's `note_scan` calls to `path`, and mark the archive as passed on exit."""
        name = str(path)
        with self._lock:
            self._began_s = self._clock() if self._began_s is None else self._began_s
        token = _scan.set((self, name))
        try:
            yield
        finally:
            _scan.reset(token)
            with self._lock:
                if name in self._sizes:
                    self._passed[name] = self._sizes[name]
                    self._done += 1

    def reached(self, name: str, offset: int, read_bytes: int) -> None:
        """Record that a scan has passed `offset` bytes and read more. Raises Stopped if `stop` is set."""
        self.stop.check()
        with self._lock:
            self._read_bytes += read_bytes
            if name in self._sizes:
                self._passed[name] = max(self._passed.get(name, 0), min(offset, self._sizes[name]))

    def state(self) -> ScanState:
        with self._lock:
            wall_s = 0.0 if self._began_s is None else self._clock() - self._began_s
            total, passed = sum(self._sizes.values()), sum(self._passed.values())
            return ScanState(len(self._sizes), self._done, total, passed, self._read_bytes, wall_s)


_scan: ContextVar[tuple[ScanProgress, str] | None] = ContextVar("scan", default=None)


def note_scan(offset: int, read_bytes: int) -> None:
    """Record that this thread's scan has passed `offset` bytes and read `read_bytes` more."""
    scan = _scan.get()
    if scan is not None:
        progress, name = scan
        progress.reached(name, offset, read_bytes)


def scan_gap_bytes() -> int | None:
    """Return `gap_bytes` of this thread's scan."""
    scan = _scan.get()
    return None if scan is None else scan[0].gap_bytes


def open_each(
    paths: Sequence[FilePath],
    open_one: Callable[[FilePath], T],
    *,
    cache: str | None,
) -> list[T]:
    """Return `open_one` of each archive, in order, several at once, as `scan_each` does.

    If scanning objects without an index takes long, log records report the time left.
    """
    if len(paths) == 1 and isinstance(paths[0], str):
        return [open_one(paths[0])]
    remote = [path for path in paths if not isinstance(path, str)]
    progress = ScanProgress()
    progress.expect(remote, cache=cache)
    return scan_each(paths, open_one, progress, tick=ScanLog(remote).look)


def scan_each(
    paths: Sequence[FilePath],
    open_one: Callable[[FilePath], T],
    progress: ScanProgress,
    *,
    tick: Callable[[ScanState], None] | None,
    threads: int | None = None,
) -> list[T]:
    """Return `open_one` of each archive, in order, in several threads, and call `tick` periodically.

    `threads`: files at once; None: 8, or 32 with objects, since a scan waits for the disk or the store, not the CPU.
    Raises the first error.
    """
    found, is_local = dict[int, T](), all(isinstance(path, str) for path in paths)
    if threads is None:
        threads = _INDEXING_THREADS if is_local else _REMOTE_INDEXING_THREADS

    def work(number: int) -> None:
        with progress.scan(paths[number]):
            found[number] = open_one(paths[number])

    work_through(
        range(len(paths)),
        work,
        name="index",
        threads=min(threads, len(paths)),
        one_is_here=is_local or not progress.state().archives,
        stop=progress.stop,
        tick=None if tick is None else lambda: tick(progress.state()),
    )
    return [found[number] for number in range(len(paths))]


_ADVICE = "Build a merged index once, and open with it as index=: headrace index ARCHIVES --to PLACE.headrace"


class ScanLog:
    """Log records of long scans: the first is a warning, later ones are info."""

    def __init__(self, paths: Sequence[FilePath], *, advice: str | None = _ADVICE) -> None:
        """Report scans of `paths`; the warning ends with `advice`."""
        self._paths, self._advice = paths, advice
        self._next_s: float | None = None

    def look(self, state: ScanState) -> None:
        """Log a record if one is due."""
        left_s = state.left_s
        if left_s is None:
            return
        if self._next_s is None and state.wall_s + left_s > _LONG_S:
            _logger.warning("%s%s", self._text(state, left_s), "" if self._advice is None else f". {self._advice}")
        elif self._next_s is not None and state.wall_s >= self._next_s:
            _logger.info("%s", self._text(state, left_s))
        else:
            return
        self._next_s = state.wall_s + _AGAIN_S

    def _text(self, state: ScanState, left_s: float) -> str:
        return (
            f"indexing {_named(self._paths, state)}: {state.passed_bytes / 1e9:.2f} of "
            f"{state.total_bytes / 1e9:.2f} GB scanned, about {left_s:.0f} s left, "
            f"{state.expected_read_bytes / 1e9:.2f} GB to read in all"
        )


def _named(paths: Sequence[FilePath], state: ScanState) -> str:
    where = f"{paths[0]}" if len(paths) == 1 else f"{paths[0]} … {paths[-1]}"
    return f"{state.archives:,} archives without an index, {where}"
