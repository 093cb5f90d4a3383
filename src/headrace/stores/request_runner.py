"""Execution of requests: the most urgent first, with retries, hedged when one lags, each with a deadline.

Coroutines, on any event loop and clock; `RequestEngine` runs them in a thread.
"""

from __future__ import annotations

import asyncio
import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from headrace.errors import HeadraceError
from headrace.stores.link import STREAMS, HedgeBudget, LinkMeter, Overtaking, StreamLimit
from headrace.stores.request_errors import FailedRequestError, FailureKind
from headrace.stores.request_planning import LinkModel, Request
from headrace.stores.retrying import NextAttempt

_LOOK_AGAIN_S = 0.05
"""Minimum time before a request is checked (again), on a link not yet measured, or if other requests are late too."""
_MOST_ANSWERS = 3
"""Maximum answers to one request under way: a second answer may lag, too."""
_CLOCK_S = 1e-3
"""Resolution of an event loop's clock, which may stand still for this long."""


class Attempts(Protocol):
    """Attempts at one request, the interface of `StoreAttempts`."""

    @property
    def count(self) -> int:
        """Number of attempts so far."""

    def start(self) -> None:
        """Record that the next attempt begins."""

    def after(self, failure: FailedRequestError, now_s: float) -> NextAttempt | None:
        """Return the next attempt; None if there is none."""


class RangeReader(Protocol):
    """Reader of ranges of objects."""

    async def read_range(self, object: Any, start: int, stop: int, begun: Callable[[], None]) -> Any:
        """Return the bytes [start, stop) as a buffer, fewer if the object ends. Call `begun` once the answer begins.

        Raises FailedRequestError, which has the kind of failure.
        """

    def attempts(self, object: Any, now_s: float) -> Attempts:
        """Return the attempts at a range of an object. The first attempt begins now."""

    def failed(self, request: Request, failure: FailedRequestError, attempts: Any) -> HeadraceError:
        """Return the error for a request that failed for good; it names the object and the remedy."""


@dataclass
class RequestCounts:
    """Counts of the requests so far."""

    requests: int = 0
    """Requests for bytes, including retries and hedges, and requests for unknown sizes."""
    bytes: int = 0
    retries: int = 0
    throttled: int = 0
    hedges: int = 0
    hedges_won: int = 0
    """Hedged requests that answered first."""


@dataclass(order=True)
class _Waiting:
    need: int
    turn: int
    request: Request = field(compare=False)
    done: asyncio.Future[Any] = field(compare=False)


@dataclass
class _Answer:
    """Answer to a request, on its way."""

    request: Request
    asked_s: float
    beginning: int
    """Number among the answers that have not begun."""
    ending: int
    """Number among the answers that are not complete."""
    has_begun: bool = False


class RequestRunner:
    """Requests of one loop, most urgent first. All calls are made in the loop's thread."""

    def __init__(
        self,
        reader: RangeReader,
        *,
        streams: int = STREAMS,
        most_streams: int | None = None,
        link: LinkMeter | None = None,
    ) -> None:
        """Run `streams` requests at once, and up to `most_streams` if measurements show that the link needs them."""
        self._reader = reader
        self.link = LinkMeter() if link is None else link
        self.counts = RequestCounts()
        self._streams, self._most_streams = streams, most_streams or streams
        self._limit = StreamLimit(streams)
        self._budget = HedgeBudget()
        self._beginning, self._ending = Overtaking(), Overtaking()
        self._waiting: list[_Waiting] = []
        self._running: set[asyncio.Task[None]] = set()
        self._paused = 0
        """Running requests that a store throttled, and that leave their streams to others until the next attempt."""
        self._turn = 0

    def model(self, now_s: float) -> LinkModel:
        """Return the link model for planning requests."""
        return self.link.model(self._limit.now, now_s)

    def start(self, request: Request) -> asyncio.Future[Any]:
        """Queue a request and return a future of its bytes."""
        done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._turn += 1
        heapq.heappush(self._waiting, _Waiting(request.need, self._turn, request, done))
        self._begin()
        return done

    def cancel(self) -> None:
        """Drop all waiting and running requests."""
        for each in self._waiting:
            each.done.cancel()
        self._waiting.clear()
        for task in self._running:
            task.cancel()

    def _begin(self) -> None:
        """Start as many waiting requests as there are free streams."""
        loop = asyncio.get_running_loop()
        while self._waiting and len(self._running) - self._paused < self._limit.now:
            each = heapq.heappop(self._waiting)
            if each.done.cancelled():
                continue
            self.link.begin(loop.time())
            task = loop.create_task(self._answer(each))
            self._running.add(task)
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        loop = task.get_loop()
        if not self._running and not self._waiting:
            self.link.idle(loop.time())
        if not loop.is_closed() and not task.cancelled():
            self._begin()

    async def _answer(self, waiting: _Waiting) -> None:
        try:
            data = await self._attempts(waiting.request)
        except asyncio.CancelledError:
            waiting.done.cancel()
            raise
        except Exception as error:
            if not waiting.done.done():
                waiting.done.set_exception(error)
            return
        if not waiting.done.done():
            waiting.done.set_result(data)

    async def _attempts(self, request: Request) -> Any:
        loop = asyncio.get_running_loop()
        attempts = self._reader.attempts(request.object, loop.time())
        while True:
            attempts.start()
            try:
                return await self._hedged(request, attempts.count)
            except FailedRequestError as error:
                failure = error
            if failure.is_throttling:
                self.counts.throttled += 1
                self._limit.throttled()
            following = attempts.after(failure, loop.time())
            if following is None:
                raise self._reader.failed(request, failure, attempts)
            self.counts.retries += 1
            await self._pause(following, leaves=failure.is_throttling)

    async def _pause(self, following: NextAttempt, *, leaves: bool) -> None:
        if following.recovered is not None:
            await asyncio.wait([asyncio.wrap_future(following.recovered)], timeout=following.pause_s)
            return
        self._paused += leaves
        self._begin()
        try:
            await asyncio.sleep(following.pause_s)
        finally:
            self._paused -= leaves

    async def _hedged(self, request: Request, attempt: int) -> Any:
        """Return the first of up to three answers to the same request.

        Another answer is requested if the last one has not begun, or is not complete, in time, while later ones are.
        """
        self._budget.requests += 1
        answers = [self._ask(request)]
        tasks = {asyncio.ensure_future(self._read(answers[0], attempt))}
        first, failure = set(tasks), None
        try:
            while tasks:
                last = answers[-1]
                timeout = max(_LOOK_AGAIN_S, self._until_late_s(last)) if len(answers) < _MOST_ANSWERS else None
                done, tasks = await asyncio.wait(tasks, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
                for error, task in [(task.exception(), task) for task in done]:  # or asyncio logs the exception
                    if error is None:
                        self.counts.hedges_won += task not in first
                        return task.result()
                    failure = error if isinstance(error, Exception) else failure
                if not done and self._is_late(last) and self._budget.take():  # other requests add to the budget
                    self.counts.hedges += 1
                    answers.append(self._ask(request))
                    tasks = tasks | {asyncio.ensure_future(self._read(answers[-1], attempt))}
        finally:
            for answer in answers:
                self._beginning.reached(answer.beginning)
                self._ending.reached(answer.ending)
            for task in tasks:
                task.cancel()
        assert failure is not None
        raise failure

    def _ask(self, request: Request) -> _Answer:
        now_s = asyncio.get_running_loop().time()
        return _Answer(request, now_s, self._beginning.begin(), self._ending.begin())

    def _until_late_s(self, answer: _Answer) -> float:
        """Return the time left to an answer, as far as known; answers that arrive meanwhile change the estimate."""
        after_s = self.link.hedge_after_s(answer.request.bytes, has_begun=answer.has_begun)
        if math.isinf(after_s):
            return _LOOK_AGAIN_S
        return answer.asked_s + after_s - asyncio.get_running_loop().time()

    def _is_late(self, answer: _Answer) -> bool:
        stage, number = (self._ending, answer.ending) if answer.has_begun else (self._beginning, answer.beginning)
        return self._until_late_s(answer) <= _CLOCK_S and stage.is_behind(number)

    async def _read(self, answer: _Answer, attempt: int) -> Any:
        loop, request = asyncio.get_running_loop(), answer.request
        began_s = loop.time()

        def begin() -> None:
            self.link.began(loop.time() - began_s)
            self._beginning.reached(answer.beginning)
            answer.has_begun = True

        deadline_s = self.link.deadline_s(request.bytes, attempt)
        self.counts.requests += 1
        try:
            async with asyncio.timeout(deadline_s):
                data = await self._reader.read_range(request.object, request.start, request.stop, begin)
        except TimeoutError as error:
            self._limit.throttled()  # with fewer requests on the link, answers may come in time
            raise FailedRequestError(FailureKind.PASSING, f"no whole answer within {deadline_s:.0f} s") from error
        size = memoryview(data).nbytes
        if size > request.bytes or (size < request.bytes and not request.may_end):
            raise FailedRequestError(FailureKind.PASSING, f"expected {request.bytes:,} bytes, got {size:,}")
        self.counts.bytes += size
        self.link.answered(size, loop.time() - began_s)
        self._limit.most = self.link.streams(self._streams, self._most_streams, loop.time())
        self._limit.answered()
        return data
