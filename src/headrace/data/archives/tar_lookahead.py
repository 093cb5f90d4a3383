"""Prefetch the headers of a tar in a store, ahead of the scan that follows them one by one.

A scan finds each header from the previous one, so each header costs one latency. Here, coroutines look for headers
further on and follow them from there. Their reads are guesses of what the scan will request. The scan itself goes from
the front, header by header, and gets bytes by offset only. Data that contains headers, such as a tar in the tar, makes
guesses wrong, which costs requests but never members.
"""

from __future__ import annotations

import tarfile
from asyncio import CancelledError
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from threading import Lock
from typing import NamedTuple

from headrace.data.archives.archive_scans import note_scan, scan_gap_bytes
from headrace.data.remote.remote_file import ObjectPath
from headrace.errors import HeadraceError
from headrace.stores import (
    MOST_STREAMS,
    STREAMS,
    LinkModel,
    Request,
    RequestEngine,
    RequestRunner,
    shared_requests,
    store_users,
)

WINDOW_BYTES = 4 << 10
"""Smallest request of a scan."""
MOST_GAP_BYTES = 32 << 10
"""Largest gap that is read instead of skipped with another request, however fast the link is. Egress from a store's
region costs money: the number of members should bound the bytes read for an index, not their size. At common prices a
request costs as much as 4 kB that leave for the internet, or 20 kB that leave for another region."""
_MOST_PIECE_BYTES = 4 << 20
"""Largest request: the CPU cost of a request equals that of half a megabyte."""
_BLOCK = tarfile.BLOCKSIZE
_ENOUGH = 4
"""Headers after which their distance is known well enough; each of them costs one latency."""
_HEADERS_A_STRETCH = 12, 64
"""Fewest and most headers of a stretch. Finding the first header reads about one header distance:
the minimum makes that a small share, and the maximum limits memory."""


class _Stretch(NamedTuple):
    """Part of a tar in which one coroutine follows headers."""

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
    """Reader for a scan of an object, which requests ahead of the scan."""

    def __init__(self, path: ObjectPath, size: int, engine: RequestEngine) -> None:
        self._path, self._size, self._engine = path, size, engine
        self._stretches: deque[_Stretch] = deque()
        self._ready: dict[int, bytes] = {}
        self._pieces: deque[_Piece] = deque()
        self._asked = 0
        self._next = 0
        self._lock = Lock()
        self._is_closed = False
        self._sent = self._arrived = self._noted = 0
        """Bytes requested and read. The store also answers requests that a cancelled stretch waits for no more."""
        self._reached: dict[int, int] = {}
        """Offset that each stretch has reached, by its start."""
        self._gap_bytes = scan_gap_bytes()

    def growth(self) -> tuple[int, int, int]:
        """Return the smallest and largest request, and the largest gap to read rather than skip."""
        link = self._engine.model()
        return WINDOW_BYTES, max(WINDOW_BYTES, min(link.request_bytes, _MOST_PIECE_BYTES)), self._near_bytes(link)

    def read(self, offset: int, length: int) -> bytes:
        """Return `length` bytes at `offset`, fewer at the end. Raises as reading the object does."""
        self._note(offset, self._arrived)
        if length > WINDOW_BYTES:
            return self._read_whole(offset, length)
        self._asked += 1
        self._take_up_to(offset)
        known = self._ready.pop(offset, b"")
        self._go_on(offset)
        if len(known) >= length:
            return known[:length]
        return known + self._fetch(offset + len(known), length - len(known)).result()

    def close(self) -> None:
        """Drop all requests."""
        with self._lock:
            self._is_closed = True
        for stretch in self._stretches:
            stretch.found.cancel()
        self._drop_pieces()
        self._note(self._size, self._sent)

    def _note(self, offset: int, read_bytes: int) -> None:
        """Record the scan's progress, with what the stretches ahead of it have passed."""
        ahead = sum(self._reached.get(each.start, each.start) - each.start for each in self._stretches)
        note_scan(offset + ahead, read_bytes - self._noted)
        self._noted = read_bytes

    def _near_bytes(self, link: LinkModel) -> int:
        """Return the largest gap between headers to read rather than skip."""
        if self._gap_bytes is not None:
            return min(max(self._gap_bytes, WINDOW_BYTES), _MOST_PIECE_BYTES)
        return min(max(link.gap_bytes, WINDOW_BYTES), MOST_GAP_BYTES)

    def _fetch(self, offset: int, length: int) -> Future[bytes]:
        return self._engine.submit(lambda runner: self._ask(runner, offset, length))

    async def _ask(self, runner: RequestRunner, offset: int, length: int) -> bytes:
        stop = min(offset + length, self._size)
        if offset >= stop:
            return b""
        with self._lock:
            if self._is_closed:
                raise CancelledError
            self._sent += stop - offset
        data = bytes(await runner.start(Request(self._path, offset, stop, offset)))
        self._arrived += len(data)
        return data

    def _read_whole(self, offset: int, length: int) -> bytes:
        """Return bytes of a part with close headers, and prefetch the pieces that follow."""
        stop = min(offset + length, self._size)
        parts, at = [], offset
        while at < stop:
            while self._pieces and self._pieces[0].stop <= at:
                self._pieces.popleft().found.cancel()
            if not self._pieces or self._pieces[0].start > at:
                self._drop_pieces()
                parts.append(self._fetch(at, stop - at).result())
                break
            piece = self._pieces[0]
            try:
                data = piece.found.result()  # each attempt of a request has a deadline
            except HeadraceError:
                self._drop_pieces()  # the scan requests the bytes itself, and raises the error
                continue
            parts.append(data[at - piece.start : stop - piece.start])
            at = min(stop, piece.stop)
        # One piece more than before: if headers are farther apart from here on, at most half of the pieces are wasted.
        ahead = min(len(self._pieces) + 2, self._share(STREAMS) - 1) if length == self.growth()[1] else 0
        end = self._pieces[-1].stop if self._pieces else stop
        while len(self._pieces) < ahead and end < self._size:
            start, end = end, min(end + length, self._size)
            self._pieces.append(_Piece(start, end, self._fetch(start, end - start)))
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _drop_pieces(self) -> None:
        while self._pieces:
            self._pieces.popleft().found.cancel()

    def _take_up_to(self, offset: int) -> None:
        """Take the bytes of the stretches that the scan has reached; a failed stretch has none."""
        while self._stretches and self._stretches[0].start <= offset:
            stretch = self._stretches.popleft()
            self._reached.pop(stretch.start, None)
            if stretch.stop <= offset:
                stretch.found.cancel()
                continue
            try:
                self._ready = stretch.found.result()  # each attempt of a request has a deadline
            except HeadraceError:
                self._ready = {}  # the scan requests the bytes itself, and raises the error

    def _go_on(self, offset: int) -> None:
        """Follow headers ahead of the scan, if headers are too far apart to read through."""
        distance = offset // self._asked
        if self._asked < _ENOUGH or distance <= self._near_bytes(self._engine.model()):
            return
        at_once, (fewest, most) = self._share(MOST_STREAMS), _HEADERS_A_STRETCH
        headers = min(max((self._size - offset) // distance // at_once, fewest), most)
        length = -(-headers * distance // _BLOCK) * _BLOCK
        self._next = max(self._next, offset + length)
        while len(self._stretches) < at_once and self._next < self._size:
            start, stop = self._next // _BLOCK * _BLOCK, (self._next + length) // _BLOCK * _BLOCK
            follow = partial(self._follow, start=start, stop=min(stop, self._size), distance=distance)
            self._stretches.append(_Stretch(start, stop, self._engine.submit(follow)))
            self._next = stop

    def _share(self, streams: int) -> int:
        """Return how many of these streams each scan may use."""
        return max(1, streams // max(1, store_users(self._path.store)))

    async def _follow(self, runner: RequestRunner, *, start: int, stop: int, distance: int) -> dict[int, bytes]:
        pieces: dict[int, bytes] = {}
        at = await self._find(runner, start, stop, distance)
        while at is not None and at < stop:
            pieces[at] = data = await self._ask(runner, at, WINDOW_BYTES)
            self._reached[start] = at
            following = _after(at, data)
            at = await self._find(runner, at + _BLOCK, stop, distance) if following is None else following
        return pieces

    async def _find(self, runner: RequestRunner, start: int, stop: int, distance: int) -> int | None:
        """Return the offset of the first block from `start` on that looks like a header; None if there is none."""
        step = max(WINDOW_BYTES, -(-distance // _BLOCK) * _BLOCK)
        for at in range(start, stop, step):
            data = await self._ask(runner, at, step)
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


@contextmanager
def scanning(path: ObjectPath, size: int) -> Iterator[HeaderLookahead]:
    """Yield a reader for a scan of an object of `size` bytes."""
    with shared_requests(path.store) as engine:
        ahead = HeaderLookahead(path, size, engine)
        try:
            yield ahead
        finally:
            ahead.close()
