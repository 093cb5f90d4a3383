"""Headers of a tar in a store, asked for ahead of the scan that follows them one by one.

A scan learns where a header lies from the one before it, so that each costs a latency. Here, threads look for a header
further on and follow it from there. What they read is a guess of what the scan will ask for, and nothing more: the scan
itself goes from the front, header by header, and is given bytes by their place alone. Data that holds headers, such as
a tar within the tar, makes guesses wrong, which costs requests, never members.
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
"""Least that a scan asks for at once."""
MOST_GAP_BYTES = 128 << 10
"""Most bytes that are read rather than left out by one more request, however fast the link is. Bytes that leave a
store's region are paid for: so the number of members bounds what an index reads, not their size."""
_MOST_PIECE_BYTES = 4 << 20
"""Most that is asked for at once: the CPU time of a request is that of half a megabyte."""
_BLOCK = tarfile.BLOCKSIZE
_HEADER_STREAMS = 4 * STREAMS
"""Requests for headers alone under way at once: they hardly use the link's bandwidth, but wait for its latency."""
_ENOUGH = 4
"""Headers after which their distance is known well enough: each of them costs a latency."""
_HEADERS_A_STRETCH = 12, 64
"""Fewest and most headers that a thread follows before it goes on elsewhere: looking for the first one takes a header's
distance of bytes, so that it is a small part of the whole, and little is in memory at once."""


class _Stretch(NamedTuple):
    """Part of a tar, in which one thread follows headers."""

    start: int
    stop: int
    found: Future[dict[int, bytes]]
    """Bytes read, by the place of their first one."""


class _Piece(NamedTuple):
    """Part of a tar that is read whole."""

    start: int
    stop: int
    found: Future[bytes]


class HeaderLookahead:
    """Object that a scan reads through. One thread reads; others ask ahead of it."""

    def __init__(self, file: ReadableFile, size: int, link: Callable[[], LinkModel]) -> None:
        """Read an object of `size` bytes over a link, asked for as it is measured."""
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
        """Return the least and the most bytes to ask for, and the gap up to which what lies between is read."""
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
        """Let requests that are under way end, and begin no other."""
        self._pool.shutdown(cancel_futures=True)
        note_scan(self._size, self._arrived - self._noted)

    def _fetch(self, offset: int, length: int) -> bytes:
        data = self._file.read(offset, length)
        self._arrived += len(data)  # threads that add at once may lose one: an estimate bears that
        _scans.arrived(len(data), time.monotonic())
        return data

    def _read_whole(self, offset: int, length: int) -> bytes:
        """Return bytes of a part where headers lie close together, and have threads read on behind it."""
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
                data = piece.found.result()  # each attempt of a request has its deadline
            except HeadraceError:
                self._pieces.clear()  # the scan asks itself, and raises what is wrong
                continue
            parts.append(data[at - piece.start : stop - piece.start])
            at = min(stop, piece.stop)
        # One more than went before, so that no more than half is in vain where headers lie farther apart from here on.
        ahead = min(len(self._pieces) + 2, _scans.share(STREAMS) - 1) if length == self.growth()[1] else 0
        end = self._pieces[-1].stop if self._pieces else stop
        while len(self._pieces) < ahead and end < self._size:
            start, end = end, min(end + length, self._size)
            self._pieces.append(_Piece(start, end, self._pool.submit(self._fetch, start, end - start)))
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _take_up_to(self, offset: int) -> None:
        """Take what was read of the stretches that the scan has reached; a thread that failed has read nothing."""
        while self._stretches and self._stretches[0].start <= offset:
            stretch = self._stretches.popleft()
            if stretch.stop <= offset:
                stretch.found.cancel()
                continue
            try:
                self._ready = stretch.found.result()  # each attempt of a request has its deadline
            except HeadraceError:
                self._ready = {}  # the scan asks itself, and raises what is wrong

    def _go_on(self, offset: int) -> None:
        """Have threads follow headers ahead of the scan, where these lie too far apart to be read together."""
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
        """Return where the first block from `start` on lies that looks like a header; None: there is none."""
        step = max(WINDOW_BYTES, -(-distance // _BLOCK) * _BLOCK)
        for at in range(start, stop, step):
            data = self._fetch(at, step)
            for place in range(0, len(data) - _BLOCK + 1, _BLOCK):
                if data[place + 257 : place + 262] == b"ustar" and _next_header(data, place) is not None:
                    return at + place
        return None


def _after(at: int, data: bytes) -> int | None:
    """Return the first header that a piece, which begins with one, leads to and does not hold; None: it leads nowhere.

    It need not be right: sizes in PAX records, for one, are left out.
    """
    place: int | None = 0
    while place is not None and place + _BLOCK <= len(data):
        place = _next_header(data, place)
    return None if place is None else at + place


def _next_header(data: bytes, place: int) -> int | None:
    """Return where the header after the one at `place` lies, by its size; None where no header is at `place`."""
    try:
        member = tarfile.TarInfo.frombuf(data[place : place + _BLOCK], "utf-8", "surrogateescape")
    except tarfile.HeaderError:
        return None
    if member.size < 0:  # as a field in base 256 can say; following it would go round for ever
        return None
    has_data = member.isreg() or member.type not in tarfile.SUPPORTED_TYPES or member.type in b"xgXLK"
    return place + _BLOCK + (-(-member.size // _BLOCK) * _BLOCK if has_data else 0)


class _ScansUnderWay:
    """Scans that share the streams of this process, and the pace that they reach together."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Begin anew, as a forked process does."""
        self.lock = Lock()
        self.count = 0
        self._paces: deque[float] = deque(maxlen=_PACES)
        self._bytes, self._since_s = 0, 0.0

    def share(self, streams: int) -> int:
        """Return how many of these streams each scan has."""
        return max(1, streams // max(1, self.count))

    def arrived(self, size: int, now_s: float) -> None:
        """Take in bytes that have come."""
        with self.lock:
            passed_s = now_s - self._since_s
            if passed_s >= _PACE_S:
                self._paces.append(self._bytes / passed_s)
                self._bytes, self._since_s = 0, now_s
            self._bytes += size

    def pace(self) -> float:
        """Return the most bytes a second that came lately. The link bears at least that."""
        return max(tuple(self._paces), default=0.0)


_PACE_S, _PACES = 0.5, 16
"""Time that a pace is taken over, and how many of the last ones count."""
_scans = _ScansUnderWay()
os.register_at_fork(after_in_child=_scans.reset)


def _near_bytes(link: LinkModel) -> int:
    """Return the gap between headers up to which what lies between is read."""
    reached = replace(link, bandwidth=max(link.bandwidth, _scans.pace()))
    return min(max(reached.gap_bytes, WINDOW_BYTES), MOST_GAP_BYTES)


@contextmanager
def scanning(file: ReadableFile, size: int, link: Callable[[], LinkModel]) -> Iterator[HeaderLookahead]:
    """Yield what a scan of an object reads through: with a share of the streams that other scans leave."""
    with _scans.lock:
        _scans.count += 1
    ahead = HeaderLookahead(file, size, link)
    try:
        yield ahead
    finally:
        with _scans.lock:
            _scans.count = max(0, _scans.count - 1)
        ahead.close()
