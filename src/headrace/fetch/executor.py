"""Execution of requests: the most urgent first, with retries, hedged when one lags, each with a deadline.

`RequestRunner` implements it as coroutines, on any loop and clock. `FetchThread` runs such a loop in a separate thread,
"headrace-fetch", to which the loader's threads hand parts.
"""

from __future__ import annotations

import asyncio
import heapq
import math
import os
import selectors
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from headrace.data import (
    MOST_STREAMS,
    STREAMS,
    FailedRequestError,
    FailureKind,
    HedgeBudget,
    LinkMeter,
    LinkModel,
    Overtaking,
    Request,
    StreamLimit,
)
from headrace.errors import HeadraceError
from headrace.fetch.fetch_stats import FetchCounts
from headrace.fetch.objects import RangeReader
from headrace.system import THREAD_PREFIX, close_at_exit, close_in_forks

_QUANTILES = (0.5, 0.95, 0.99)
_LOOK_AGAIN_S = 0.05
"""Minimum time before a request is checked (again), on a link not yet measured, or if other requests are late too."""
_MOST_ANSWERS = 3
"""Maximum answers to one request under way: a second answer may lag, too."""
_CLOCK_S = 1e-3
"""Resolution of an event loop's clock, which may stand still for this long."""


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
    ) -> None:
        """Run `streams` requests at once, and up to `most_streams` if measurements show that the link needs them."""
        self._reader = reader
        self.link = LinkMeter()
        self.counts = FetchCounts()
        self._streams, self._most_streams = streams, most_streams or streams
        self._limit = StreamLimit(streams)
        self._budget = HedgeBudget()
        self._beginning, self._ending = Overtaking(), Overtaking()
        self._waiting: list[_Waiting] = []
        self._running: set[asyncio.Task[None]] = set()
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
        while self._waiting and len(self._running) < self._limit.now:
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
            pause_s = attempts.after(failure, loop.time())
            if pause_s is None:
                raise self._reader.failed(request, failure, attempts.count)
            self.counts.retries += 1
            await asyncio.sleep(pause_s)

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
        if size != request.bytes:
            raise FailedRequestError(FailureKind.PASSING, f"expected {request.bytes:,} bytes, got {size:,}")
        self.counts.bytes += size
        self.link.answered(size, loop.time() - began_s)
        self._limit.most = self.link.streams(self._streams, self._most_streams, loop.time())
        self._limit.answered()
        return data


class _ThreadLoop(asyncio.SelectorEventLoop):
    """Event loop that a fork of this process can close.

    Not on epoll, which both processes would share. A loop that ends in the fork would remove its file descriptors from
    it, and this loop would never wake up again.
    """

    def __init__(self) -> None:
        super().__init__(selectors.PollSelector())
        self._process = os.getpid()

    @property
    def is_elsewhere(self) -> bool:
        """True if this process is a fork of the creating one, so that no thread runs the loop here."""
        return self._process != os.getpid()

    def is_running(self) -> bool:
        return super().is_running() and not self.is_elsewhere

    def close_in_fork(self) -> None:
        """Close this process's copies of the file descriptors."""
        self.set_default_executor(ThreadPoolExecutor(1))  # a thread missing in the fork may hold the executor's lock
        self.close()


class FetchThread:
    """Thread that runs requests for others, until it is closed. Futures of a closed thread are cancelled."""

    def __init__(self, reader: RangeReader, *, streams: int = STREAMS) -> None:
        self._loop = _ThreadLoop()
        self._runner = RequestRunner(reader, streams=streams, most_streams=MOST_STREAMS)
        self._futures: set[Future[Any]] = set()
        self._ending = threading.Lock()
        """Lock held from the first `close` on."""
        self._thread = threading.Thread(target=self._run, name=f"{THREAD_PREFIX}fetch", daemon=True)
        close_in_forks(self)
        try:
            self._thread.start()
        except RuntimeError:  # the process may be out of threads
            self._loop.close()
            raise
        except BaseException:  # from a signal: the thread begins, and nothing could close it
            self._end()
            raise
        close_at_exit(self)

    def fetch(self, requests: Sequence[Request]) -> Future[Any]:
        """Fetch one part with its requests, and return a future of its bytes: a buffer."""
        future = self._future()
        if not self._call(lambda: self._loop.create_task(self._part(requests, future))):
            raise HeadraceError("the fetching thread has ended: this pass is closed")
        return future

    def model(self) -> LinkModel:
        """Return the current model of the link."""
        model: LinkModel = self._asked(lambda: self._runner.model(self._loop.time()))
        return model

    def counts(self) -> tuple[FetchCounts, dict[float, float | None]]:
        """Return the counts, and quantiles of the latency (0.5, 0.95, 0.99) in seconds."""
        link = self._runner.link
        found: tuple[FetchCounts, dict[float, float | None]] = self._asked(
            lambda: (replace(self._runner.counts), {q: link.latency_s(q) for q in _QUANTILES})
        )
        return found

    def close(self) -> None:
        """End the thread and drop its requests. Any thread may call this, at the same time as others."""
        if self._loop.is_elsewhere:
            self._loop.close_in_fork()
            return
        self._end()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _end(self) -> None:
        if self._ending.acquire(blocking=False):  # a second stop would break off the loop's cleanup
            self._call(self._loop.stop)

    def _run(self) -> None:
        loop = self._loop
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
        finally:
            self._runner.cancel()
            while tasks := asyncio.all_tasks(loop):  # parts handed over meanwhile are tasks, too
                for task in tasks:
                    task.cancel()
                loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
            loop.close()
            for future in list(self._futures):  # requests that had not reached the loop
                future.cancel()

    def _future(self) -> Future[Any]:
        future: Future[Any] = Future()
        self._futures.add(future)
        future.add_done_callback(self._futures.discard)
        return future

    def _call(self, work: Callable[[], object]) -> bool:
        """Run `work` in the thread soon. Return False if the thread has ended."""
        try:
            self._loop.call_soon_threadsafe(work)
        except RuntimeError:
            return False
        return True

    def _asked(self, ask: Callable[[], Any]) -> Any:
        """Return the result of `ask`, called in the thread, or here once the thread has ended."""
        answer = self._future()

        def work() -> None:
            try:
                answer.set_result(ask())
            except BaseException as error:
                answer.set_exception(error)

        try:
            return answer.result() if self._call(work) else ask()
        except CancelledError:
            return ask()

    async def _part(self, requests: Sequence[Request], future: Future[Any]) -> None:
        size = requests[-1].stop - requests[0].start
        answers = [self._runner.start(each) for each in requests if each.bytes]
        try:
            pieces = await asyncio.gather(*answers)
        except asyncio.CancelledError:
            future.cancel()
            raise
        except Exception as error:
            for answer in answers:
                answer.cancel()
            if not future.cancelled():
                future.set_exception(error)
            return
        if future.cancelled():
            return
        if len(pieces) == 1:
            future.set_result(pieces[0])
            return
        whole = np.empty(size, np.uint8)
        for request, piece in zip((each for each in requests if each.bytes), pieces, strict=True):
            at = request.start - requests[0].start
            whole[at : at + request.bytes] = np.frombuffer(piece, np.uint8)
        future.set_result(whole)
