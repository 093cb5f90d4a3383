"""Headers of a tar in a store, asked for ahead of the scan that follows them one by one.

A scan learns where a header lies from the one before it, so that each costs a latency. Here, threads look for a header
further on and follow it from there. What they read is a guess of what the scan will ask for, and nothing more: the scan
itself goes from the front, header by header, and is given bytes by their place alone. Data that holds headers, such as
a tar within the tar, makes guesses wrong, which costs requests, never members.
"""

from __future__ import annotations

import os
import tarfile
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from threading import Lock
from typing import NamedTuple

from headrace.data.remote.link import STREAMS
from headrace.data.remote.requests import LinkModel
from headrace.data.storage.open_file import ReadableFile
from headrace.errors import HeadraceError

WINDOW_BYTES = 4 << 10
"""Least that a scan asks for at once."""
_BLOCK = tarfile.BLOCKSIZE
_ENOUGH = 16
"""Headers after which their distance is known well enough."""
_HEADERS_A_STRETCH = 64
"""Headers that a thread follows before it goes on elsewhere: looking for the first one takes a header's distance of
bytes, so that it is a small part of the whole, and little is in memory at once."""


class _Stretch(NamedTuple):
    """Part of a tar, in which one thread follows headers."""

    start: int
    stop: int
    found: Future[dict[int, bytes]]
    """Bytes read, by the place of their first one."""


class HeaderLookahead:
    """Object that a scan reads through. One thread reads; others ask ahead of it."""

    def __init__(self, file: ReadableFile, size: int, link: LinkModel, threads: int) -> None:
        """Read an object of `size` bytes over a link; up to `threads` stretches are under way."""
        self._file, self._size, self._link, self._threads = file, size, link, threads
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="headrace-headers")
        self._stretches: deque[_Stretch] = deque()
        self._ready: dict[int, bytes] = {}
        self._asked = 0
        self._next = 0

    def read(self, offset: int, length: int) -> bytes:
        """Return `length` bytes at `offset`, fewer at the end. Raises as reading the object does."""
        self._asked += 1
        self._take_up_to(offset)
        known = self._ready.pop(offset, b"")
        self._go_on(offset)
        if len(known) >= length:
            return known[:length]
        return known + self._file.read(offset + len(known), length - len(known))

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)

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
        if self._asked < _ENOUGH or distance <= max(self._link.gap_bytes, WINDOW_BYTES):
            return
        length = -(-_HEADERS_A_STRETCH * distance // _BLOCK) * _BLOCK
        self._next = max(self._next, offset + length)
        while len(self._stretches) < self._threads and self._next < self._size:
            start, stop = self._next // _BLOCK * _BLOCK, self._next + length
            found = self._pool.submit(self._follow, start, min(stop, self._size), distance)
            self._stretches.append(_Stretch(start, stop, found))
            self._next = stop

    def _follow(self, start: int, stop: int, distance: int) -> dict[int, bytes]:
        pieces: dict[int, bytes] = {}
        at = self._find(start, stop, distance)
        while at is not None and at < stop:
            data = self._file.read(at, WINDOW_BYTES)
            pieces[at] = data
            following = _after(at, data)
            at = self._find(at + _BLOCK, stop, distance) if following is None else following
        return pieces

    def _find(self, start: int, stop: int, distance: int) -> int | None:
        """Return where the first block from `start` on lies that looks like a header; None: there is none."""
        step = max(WINDOW_BYTES, -(-distance // _BLOCK) * _BLOCK)
        for at in range(start, stop, step):
            data = self._file.read(at, step)
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
    has_data = member.isreg() or member.type not in tarfile.SUPPORTED_TYPES or member.type in b"xgXLK"
    return place + _BLOCK + (-(-member.size // _BLOCK) * _BLOCK if has_data else 0)


class _ScansUnderWay:
    """Count of the scans that share the streams of this process."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.lock = Lock()
        self.count = 0


_scans = _ScansUnderWay()
os.register_at_fork(after_in_child=_scans.reset)


@contextmanager
def scanning(file: ReadableFile, size: int, link: LinkModel) -> Iterator[HeaderLookahead]:
    """Yield what a scan of an object reads through: with a share of the streams that other scans leave."""
    with _scans.lock:
        _scans.count += 1
        threads = max(1, STREAMS // _scans.count)
    ahead = HeaderLookahead(file, size, link, threads)
    try:
        yield ahead
    finally:
        ahead.close()
        with _scans.lock:
            _scans.count = max(0, _scans.count - 1)
