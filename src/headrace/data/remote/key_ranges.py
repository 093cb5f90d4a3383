"""Listings of objects, in ranges of keys that several threads list at once.

A store lists the keys after a given one, in pages of a thousand. A range that takes long is cut in two while threads
are idle: by a key that only the characters seen so far suggest, so a part may be empty.
"""

from __future__ import annotations

import sys
import threading
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain

from headrace.stores import (
    FailedRequestError,
    ListedObject,
    ListingPage,
    ObjectStore,
    RangeRequest,
    with_remote_retries,
)
from headrace.system import Stop, work_through

_THREADS = 16
_ALONE_OBJECTS = 4000
"""Objects of a listing before it is cut: a shorter listing takes no further requests."""
_PAGES_A_CUT = 2
"""Pages for each cut, which may cost a request that finds few keys or none."""
_END = "\U0010ffff"
"""Text above that of any key."""


@dataclass(eq=False)
class _KeyRange:
    """Keys in a folder that begin with `begins`, after `after`, up to and including `last`."""

    folder: str
    begins: str
    after: str | None
    last: str
    found: list[ListedObject] = field(default_factory=list)
    pages: Iterator[ListingPage] | None = None


def list_objects(store: ObjectStore, prefix: str, *, most: int | None = None) -> list[ListedObject]:
    """Return the objects in a prefix, sorted bytewise by key, without placeholders for folders.

    A failed page is requested again, after the pages so far, however many there are. `most`: stop once there are more
    objects. Raises UsageError for a web server, ReadError.
    """
    return list_beginning(store, [f"{prefix.rstrip('/')}/" if prefix else ""], most=most)


def list_beginning(store: ObjectStore, begins: Sequence[str], *, most: int | None = None) -> list[ListedObject]:
    """Return the objects whose keys begin with any of these texts; without order, of all in their folders.

    Otherwise like `list_objects`.
    """
    try:
        return _Listing(store, begins, most, is_ordered=store.lists_in_order).objects()
    except _NoOrderError:
        return _Listing(store, begins, most, is_ordered=False).objects()


class _NoOrderError(Exception):
    """Signal that a store lists keys in no order, so that ranges of keys have no meaning."""


class _Listing:
    def __init__(self, store: ObjectStore, begins: Sequence[str], most: int | None, *, is_ordered: bool) -> None:
        self._store, self._most, self._is_ordered = store, most, is_ordered
        if not is_ordered:  # then whole folders are listed, each once
            begins = sorted({each[: each.rfind("/") + 1] for each in begins})
        self._ranges = [self._range(each) for each in begins]
        self._waiting = deque(self._ranges)
        self._changed = threading.Condition()
        self._busy = self._pages = self._cuts = 0
        self._characters: set[str] = set()
        """Characters in the keys seen, of which cuts are made; no part of a key may be empty or a dot."""
        self._stop = Stop()

    def objects(self) -> list[ListedObject]:
        """List all ranges, and return their objects."""
        alone = _ALONE_OBJECTS if self._most is None else self._most
        if len(self._ranges) > 1 or not (self._list(self._ranges[0], alone) or self._most is not None):
            work_through(self._next(), self._work, name="listing", threads=_THREADS, one_is_here=False, stop=self._stop)
        return sorted(chain.from_iterable(each.found for each in self._ranges), key=lambda each: each.key)

    def _range(self, begins: str) -> _KeyRange:
        """Return the range of keys that begin with a text."""
        folder, _, rest = begins.rpartition("/")
        after = None
        if rest and "!" < begins[-1] <= "~":
            before = "-" if begins[-1] == "0" else chr(ord(begins[-1]) - 1)  # a slash would end an empty part
            after = f"{begins[:-1]}{before}~"
        return _KeyRange(folder, begins, after, begins + _END)

    def _next(self) -> Iterator[_KeyRange]:
        while True:
            with self._changed:
                while not self._waiting and self._busy:
                    self._stop.check()
                    self._changed.wait(1.0)
                if not self._waiting:
                    return
                self._busy += 1
                found = self._waiting.popleft()
            yield found

    def _work(self, keys: _KeyRange) -> None:
        try:
            self._list(keys)
        finally:
            with self._changed:
                self._busy -= 1
                self._changed.notify_all()

    def _list(self, keys: _KeyRange, most: int = sys.maxsize) -> bool:
        """List a range, until there are more objects than `most`. Return True if it is complete."""
        for page in self._pages_of(keys):
            keys.found += (each for each in page.objects if self._is_in(keys, each.key))
            if self._is_ordered and page.objects:
                if page.resume is None:
                    raise _NoOrderError
                if page.resume > keys.last:
                    return True
                self._cut(keys, page.resume)
            keys.after = page.resume
            self._stop.check()
            if len(keys.found) > most:
                return False
        return True

    def _cut(self, keys: _KeyRange, at: str) -> None:
        """Leave the second part of a range, which is listed up to `at`, to an idle thread."""
        with self._changed:
            self._characters.update(each for each in at if "!" < each <= "~" and each not in "/.")
            self._pages += 1
            is_idle = self._busy > 0 and self._busy + len(self._waiting) < _THREADS
            if not is_idle or self._cuts >= self._pages // _PAGES_A_CUT:
                return
            cut = key_between(at, keys.last, sorted(self._characters))
            if cut is not None:
                rest = _KeyRange(keys.folder, keys.begins, cut, keys.last)
                keys.last = cut
                self._ranges.append(rest)
                self._waiting.append(rest)
                self._cuts += 1
                self._changed.notify_all()

    def _is_in(self, keys: _KeyRange, key: str) -> bool:
        return key.startswith(keys.begins) and key <= keys.last and not key.endswith("/")

    def _pages_of(self, keys: _KeyRange) -> Iterator[ListingPage]:
        """Yield the pages of a range. A page that fails is requested again, where the last one ended."""
        request = RangeRequest(self._store.address.show(keys.begins), verb="listed")
        keys.pages = keys.pages or self._store.list(keys.folder, keys.after)

        def attempt() -> ListingPage | None:
            assert keys.pages is not None
            try:
                return next(keys.pages, None)
            except FailedRequestError:
                keys.pages = self._store.list(keys.folder, keys.after, chunk=1)
                if keys.found and keys.after is None:  # pages that come again are no progress
                    keys.found.clear()
                    keys.pages = _in_one(keys.pages)
                raise

        def page() -> ListingPage | None:
            return with_remote_retries(self._store, request, attempt, is_known=keys.after is not None)

        yield from iter(page, None)


def _in_one(pages: Iterator[ListingPage]) -> Iterator[ListingPage]:
    yield ListingPage([each for page in pages for each in page.objects], None)


def key_between(low: str, high: str, characters: Sequence[str]) -> str | None:
    """Return a key between two keys, exclusive: the beginning of `low`, and one of these ascending characters.

    None if there is none.
    """
    shared = next((at for at, (one, other) in enumerate(zip(low, high, strict=False)) if one != other), len(low))
    for length in range(shared, len(low) + 1):
        above = characters[bisect_right(characters, low[length : length + 1]) :]
        if length == shared:
            above = above[: bisect_left(above, high[shared])]
        if above:
            return low[:length] + above[len(above) // 2]
    return None
