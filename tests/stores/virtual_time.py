"""An event loop whose clock goes on only when nothing else is left to do, and a store that answers by it."""

from __future__ import annotations

import asyncio
import random
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from headrace.errors import HeadraceError, ReadError
from headrace.stores import FailedRequestError, FailureKind
from headrace.stores.request_errors import Outage
from headrace.stores.request_planning import Request
from headrace.stores.retrying import NextAttempt, RetryPolicy

T = TypeVar("T")


class _SkippingSelector(selectors.DefaultSelector):
    loop: VirtualLoop

    def select(self, timeout: float | None = None) -> Any:
        found = super().select(0)
        if not found and timeout:
            self.loop.now_s += timeout
        return found


class VirtualLoop(asyncio.SelectorEventLoop):
    """Sleeps take no time, and are as long as they say."""

    def __init__(self) -> None:
        self.now_s = 0.0
        selector = _SkippingSelector()
        selector.loop = self
        super().__init__(selector)

    def time(self) -> float:
        return self.now_s


def run_virtually(work: Coroutine[Any, Any, T]) -> tuple[T, float]:
    """Return what a coroutine returns, and how long it took by its loop's clock."""
    loop = VirtualLoop()
    try:
        return loop.run_until_complete(work), loop.now_s
    finally:
        loop.close()


Answer = float | tuple[float, Exception | bytes]
"""After how many seconds comes an answer, or a failure, or other bytes than were asked for."""


class MadeStore:
    """Store whose answers begin after the time that `answer` says for each request, numbered as they come in.

    Their bytes take `body_s` more.
    """

    def __init__(self, answer: Callable[[int], Answer], *, body_s: Callable[[int], float] = lambda _: 0.0) -> None:
        self._answer, self._body_s = answer, body_s
        self.seen: list[tuple[float, int, int, int]] = []
        """Time, object, start and stop of each request."""
        self.under_way = self.most_under_way = self.renewed = 0
        self.outage = Outage()

    async def read_range(self, number: int, start: int, stop: int, begun: Callable[[], None]) -> bytes:
        answer, body_s = self._answer(len(self.seen)), self._body_s(len(self.seen))
        self.seen.append((asyncio.get_running_loop().time(), number, start, stop))
        after_s, what = answer if isinstance(answer, tuple) else (answer, content(number, start, stop))
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        try:
            await asyncio.sleep(after_s)
            begun()
            await asyncio.sleep(body_s)
        finally:
            self.under_way -= 1
        if isinstance(what, Exception):
            raise what
        ended, self.outage = self.outage, Outage()
        ended.over.set_result(None)
        return what

    def attempts(self, number: int, now_s: float) -> MadeAttempts:
        return MadeAttempts(self, now_s)

    def failed(self, request: Request, failure: FailedRequestError, attempts: MadeAttempts) -> HeadraceError:
        where = f"object {request.object} [{request.start}, {request.stop})"
        return ReadError(f"{where}: {failure.reason}, at {attempts.count} attempts")


class MadeAttempts:
    """Attempts at one request to a `MadeStore`, by the policy of all stores."""

    def __init__(self, store: MadeStore, now_s: float) -> None:
        self._store, self._connection, self._draw = store, 0, random.Random(1)
        self._attempts = RetryPolicy(unanswered_s=300).begin(now_s, self._draw)

    @property
    def count(self) -> int:
        return self._attempts.count

    def start(self) -> None:
        self._connection = self._store.renewed

    def after(self, failure: FailedRequestError, now_s: float) -> NextAttempt | None:
        outage = self._store.outage
        turn_s = outage.turn_s(now_s, self._draw) if failure.kind is FailureKind.PASSING else None
        following = self._attempts.after(failure, now_s, turn_s=turn_s)
        if following is None:
            return None
        self._store.renewed += following.renews and self._connection == self._store.renewed
        return following if turn_s is None else following._replace(recovered=outage.over)


def content(number: int, start: int, stop: int) -> bytes:
    return bytes((number + place * 7) % 251 for place in range(start, stop))


def reset() -> FailedRequestError:
    return FailedRequestError(FailureKind.PASSING, "connection reset")
