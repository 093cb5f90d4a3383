"""Prefetch the headers of a tar in a store, ahead of the scan that follows them one by one.

A scan finds each header from the previous one, so each header costs one latency. Here, threads look for headers further
on and follow them from there. Their reads are guesses of what the scan will request. The scan itself goes from the
front, header by header, and gets bytes by offset only. Data that contains headers, such as a tar in the tar, makes
guesses wrong, which costs requests but never members.
"""

from __future__ import annotations

import os
import tarfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from threading import Lock
from typing import NamedTuple

from headrace.data.archives.archive_scans import note_scan
from headrace.data.remote.link import STREAMS
from headrace.data.remote.requests import LinkModel
from headrace.data.storage.open_file import ReadableFile
from headrace.errors import HeadraceError

WINDOW_BYTES = 4 << 10
"""Smallest request of a scan."""
MOST_GAP_BYTES = 128 << 10
"""Largest gap that is read instead of skipped with another request, however fast the link is. Egress from a store's
region costs money: the number of members should bound the bytes read for an index, not their size."""
_MOST_PIECE_BYTES = 4 << 20
"""Largest request: the CPU cost of a request equals that of half a megabyte."""
_BLOCK = tarfile.BLOCKSIZE
_HEADER_STREAMS = 4 * STREAMS
"""Header requests in flight; latency limits them, and they hardly use the link's bandwidth."""
_ENOUGH = 4
"""Headers after which their distance is known well enough; each of them costs one latency."""
_HEADERS_A_STRETCH = 12, 64
"""Fewest and most headers that a thread follows in a stretch. Finding the first header reads about one header distance:
the minimum makes that a small share, and the maximum limits memory."""


class _Stretch(NamedTuple):
    """Part of a tar in which one thread follows headers."""

    start: int
    stop: int
    found: Future[dict[int, bytes]]
    """Bytes read, by offset."""


class _Piece(NamedTuple):
    """Part of a tar that is read completely."""

    start: int
    stop: int
    found: Future[bytes]


class HeaderLookahead:
    """Reader for a scan of an object. One thread reads; others prefetch."""

    def __init__(self, file: ReadableFile, size: int, link: Callable[[], LinkModel]) -> None:
        """Read an object of `size` bytes; `link()` returns the current model of the link."""
        self._file, self._size, self._link = file, size, link
        self._pool = ThreadPoolExecutor(_HEADER_STREAMS, thread_name_prefix="headrace-headers")
        self._stretches: deque[_Stretch] = deque()
        self._ready: dict[int, bytes] = {}
        self._pieces: deque[_Piece] = deque()
        self._asked = 0
        self._next = 0
        self._arrived = 0
        self._noted = 0

    def growth(self) -> tuple[int, int, int]:
        """Return the smallest and largest request, and the largest gap to read rather than skip."""
        link = self._link()
        return WINDOW_BYTES, max(WINDOW_BYTES, min(link.request_bytes, _MOST_PIECE_BYTES)), _near_bytes(link)

    def read(self, offset: int, length: int) -> bytes:
        """Return `length` bytes at `offset`, fewer at the end. Raises as reading the object does."""
        arrived = self._arrived
        note_scan(offset, arrived - self._noted)
        self._noted = arrived
        if length > WINDOW_BYTES:
            return self._read_whole(offset, length)
        self._asked += 1
        self._take_up_to(offset)
        known = self._ready.pop(offset, b"")
        self._go_on(offset)
        if len(known) >= length:
            return known[:length]
        return known + self._fetch(offset + len(known), length - len(known))

    def close(self) -> None:
        """Let requests in flight finish, and start no more."""
        self._pool.shutdown(cancel_futures=True)
        note_scan(self._size, self._arrived - self._noted)

    def _fetch(self, offset: int, length: int) -> bytes:
        data = self._file.read(offset, length)
        self._arrived += len(data)  # a race between threads may lose an update: fine for an estimate
        _scans.arrived(len(data), time.monotonic())
        return data

    def _read_whole(self, offset: int, length: int) -> bytes:
        """Return bytes of a part with close headers, and prefetch the pieces that follow."""
        stop = min(offset + length, self._size)
        parts, at = [], offset
        while at < stop:
            while self._pieces and self._pieces[0].stop <= at:
                self._pieces.popleft().found.cancel()
            if not self._pieces or self._pieces[0].start > at:
                self._pieces.clear()
                parts.append(self._fetch(at, stop - at))
                break
            piece = self._pieces[0]
            try:
                data = piece.found.result()  # each attempt of a request has a deadline
            except HeadraceError:
                self._pieces.clear()  # the scan requests the bytes itself, and raises the error
                continue
            parts.append(data[at - piece.start : stop - piece.start])
            at = min(stop, piece.stop)
        # One piece more than before: if headers are farther apart from here on, at most half of the pieces are wasted.
        ahead = min(len(self._pieces) + 2, _scans.share(STREAMS) - 1) if length == self.growth()[1] else 0
        end = self._pieces[-1].stop if self._pieces else stop
        while len(self._pieces) < ahead and end < self._size:
            start, end = end, min(end + length, self._size)
            self._pieces.append(_Piece(start, end, self._pool.submit(self._fetch, start, end - start)))
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _take_up_to(self, offset: int) -> None:
        """Take the bytes of the stretches that the scan has reached; a failed thread has none."""
        while self._stretches and self._stretches[0].start <= offset:
            stretch = self._stretches.popleft()
            if stretch.stop <= offset:
                stretch.found.cancel()
                continue
            try:
                self._ready = stretch.found.result()  # each attempt of a request has a deadline
            except HeadraceError:
                self._ready = {}  # the scan requests the bytes itself, and raises the error

    def _go_on(self, offset: int) -> None:
        """Start threads that follow headers ahead of the scan, if headers are too far apart to read through."""
        distance = offset // self._asked
        if self._asked < _ENOUGH or distance <= _near_bytes(self._link()):
            return
        threads, (fewest, most) = _scans.share(_HEADER_STREAMS), _HEADERS_A_STRETCH
        headers = min(max((self._size - offset) // distance // threads, fewest), most)
        length = -(-headers * distance // _BLOCK) * _BLOCK
        self._next = max(self._next, offset + length)
        while len(self._stretches) < threads and self._next < self._size:
            start, stop = self._next // _BLOCK * _BLOCK, self._next + length
            found = self._pool.submit(self._follow, start, min(stop, self._size), distance)
            self._stretches.append(_Stretch(start, stop, found))
            self._next = stop

    def _follow(self, start: int, stop: int, distance: int) -> dict[int, bytes]:
        pieces: dict[int, bytes] = {}
        at = self._find(start, stop, distance)
        while at is not None and at < stop:
            data = self._fetch(at, WINDOW_BYTES)
            pieces[at] = data
            following = _after(at, data)
            at = self._find(at + _BLOCK, stop, distance) if following is None else following
        return pieces

    def _find(self, start: int, stop: int, distance: int) -> int | None:
        """Return the offset of the first block from `start` on that looks like a header; None if there is none."""
        step = max(WINDOW_BYTES, -(-distance // _BLOCK) * _BLOCK)
        for at in range(start, stop, step):
            data = self._fetch(at, step)
            for place in range(0, len(data) - _BLOCK + 1, _BLOCK):
                if data[place + 257 : place + 262] == b"ustar" and _next_header(data, place) is not None:
                    return at + place
        return None


def _after(at: int, data: bytes) -> int | None:
    """Return the offset of the first header after `data`, which begins with a header; None if there is no such header.

    The result may be wrong: for example, it ignores sizes in PAX records.
    """
    place: int | None = 0
    while place is not None and place + _BLOCK <= len(data):
        place = _next_header(data, place)
    return None if place is None else at + place


def _next_header(data: bytes, place: int) -> int | None:
    """Return the offset of the header after the one at `place`, by its size; None if no header is at `place`."""
    try:
        member = tarfile.TarInfo.frombuf(data[place : place + _BLOCK], "utf-8", "surrogateescape")
    except tarfile.HeaderError:
        return None
    if member.size < 0:  # possible in base 256; following it would loop forever
        return None
    has_data = member.isreg() or member.type not in tarfile.SUPPORTED_TYPES or member.type in b"xgXLK"
    return place + _BLOCK + (-(-member.size // _BLOCK) * _BLOCK if has_data else 0)


class _ScansUnderWay:
    """Scans in progress, which share the streams of this process and one estimate of throughput."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Reset the state, as a forked process does."""
        self.lock = Lock()
        self.count = 0
        self._paces: deque[float] = deque(maxlen=_PACES)
        self._bytes, self._since_s = 0, 0.0

    def share(self, streams: int) -> int:
        """Return how many of these streams each scan may use."""
        return max(1, streams // max(1, self.count))

    def arrived(self, size: int, now_s: float) -> None:
        """Count bytes that arrived."""
        with self.lock:
            passed_s = now_s - self._since_s
            if passed_s >= _PACE_S:
                self._paces.append(self._bytes / passed_s)
                self._bytes, self._since_s = 0, now_s
            self._bytes += size

    def pace(self) -> float:
        """Return the highest recent throughput in bytes per second, a lower bound for the link."""
        return max(tuple(self._paces), default=0.0)


_PACE_S, _PACES = 0.5, 16
"""Seconds per throughput measurement, and how many of the latest measurements count."""
_scans = _ScansUnderWay()
os.register_at_fork(after_in_child=_scans.reset)


def _near_bytes(link: LinkModel) -> int:
    """Return the largest gap between headers to read rather than skip."""
    reached = replace(link, bandwidth=max(link.bandwidth, _scans.pace()))
    return min(max(reached.gap_bytes, WINDOW_BYTES), MOST_GAP_BYTES)


@contextmanager
def scanning(file: ReadableFile, size: int, link: Callable[[], LinkModel]) -> Iterator[HeaderLookahead]:
    """Yield a reader for a scan of an object; scans share the streams."""
    with _scans.lock:
        _scans.count += 1
    ahead = HeaderLookahead(file, size, link)
    try:
        yield ahead
    finally:
        with _scans.lock:
            _scans.count = max(0, _scans.count - 1)
        ahead.close()
