"""Thread that runs requests to stores for the other threads of a process.

A pass of the loader has an engine of its own. Everything else that reads a store, such as an index, a column or a large
file, shares one engine per store, which lives as long as something uses it.
"""

from __future__ import annotations

import asyncio
import os
import selectors
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import CancelledError, Future, InvalidStateError, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any, Protocol
from weakref import WeakKeyDictionary

import numpy as np

from headrace.errors import ChangedError, HeadraceError, NotFoundError
from headrace.stores.link import LinkMeter, streams_of_rank
from headrace.stores.object_content import ObjectPin
from headrace.stores.object_store import ObjectStore
from headrace.stores.request_errors import FailedRequestError, FailureKind, RangeRequest
from headrace.stores.request_planning import LARGEST_REQUEST_BYTES, LinkModel, Request
from headrace.stores.request_runner import RangeReader, RequestCounts, RequestRunner
from headrace.stores.retrying import StoreAttempts
from headrace.system import THREAD_PREFIX, close_at_exit, close_in_forks, local_ranks

_QUANTILES = (0.5, 0.95, 0.99)


class StoredObject(Protocol):
    """Object in a store, as requests name it."""

    @property
    def store(self) -> ObjectStore:
        """Store with the object."""

    @property
    def key(self) -> str:
        """Key of the object in its store."""

    @property
    def pin(self) -> ObjectPin | None:
        """Content that requests expect; None: any."""

    def take(self, pin: ObjectPin) -> None:
        """Expect this content from now on, unless there is a pin."""

    def outdated(self) -> None:
        """Forget what a cached listing says about the object, which has changed or is gone."""


class ObjectReader:
    """Reader of ranges of `StoredObject`s."""

    async def read_range(self, object: StoredObject, start: int, stop: int, begun: Callable[[], None]) -> memoryview:
        """Return the bytes [start, stop), fewer if the object ends, and pin its content. Raises FailedRequestError."""
        try:
            data, pin = await object.store.read_async(object.key, start, stop, object.pin, begun)
        except FailedRequestError as error:
            if error.kind is not FailureKind.EMPTY_RANGE or start > 0 or object.pin is not None:
                raise
            return memoryview(b"")
        object.take(pin)
        return data

    def attempts(self, object: StoredObject, now_s: float) -> StoreAttempts:
        return StoreAttempts(object.store, now_s, is_known=object.pin is not None)

    def failed(self, request: Request, failure: FailedRequestError, attempts: StoreAttempts) -> HeadraceError:
        error = attempts.error(failure, RangeRequest(str(request.object), request.start, request.stop))
        if isinstance(error, ChangedError | NotFoundError):
            request.object.outdated()
        return error


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


class RequestEngine:
    """Thread that runs requests for others, until it is closed. Futures of a closed thread are cancelled."""

    def __init__(
        self, reader: RangeReader | None = None, *, streams: int | None = None, link: LinkMeter | None = None
    ) -> None:
        """Start the thread.

        `streams`: requests in flight before the link is measured; default: this rank's part of the node's. `link`:
        measurements to begin with and to continue.
        """
        fewest, most = streams_of_rank(local_ranks())
        self._loop = _ThreadLoop()
        self._runner = RequestRunner(
            reader or ObjectReader(), streams=fewest if streams is None else streams, most_streams=most, link=link
        )
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
        return self.submit(lambda runner: _part(runner, requests))

    def submit(self, work: Callable[[RequestRunner], Coroutine[Any, Any, Any]]) -> Future[Any]:
        """Run a coroutine that starts requests, and return a future of its result. Cancelling the future ends it."""
        future = self._future()

        def begin() -> None:
            task = self._loop.create_task(self._finish(work, future))
            future.add_done_callback(lambda done: done.cancelled() and self._call(task.cancel))

        if not self._call(begin):
            raise HeadraceError("the fetching thread has ended: this pass is closed")
        return future

    def model(self) -> LinkModel:
        """Return the current model of the link, from single values that are consistent enough to plan by."""
        return self._runner.model(self._loop.time())

    def counts(self) -> tuple[RequestCounts, dict[float, float | None]]:
        """Return the counts, and quantiles of the latency (0.5, 0.95, 0.99) in seconds."""

        def now() -> tuple[RequestCounts, dict[float, float | None]]:
            return replace(self._runner.counts), {q: self._runner.link.latency_s(q) for q in _QUANTILES}

        async def ask(_: RequestRunner) -> tuple[RequestCounts, dict[float, float | None]]:
            return now()

        try:
            found: tuple[RequestCounts, dict[float, float | None]] = self.submit(ask).result()
        except (CancelledError, HeadraceError):  # the thread has ended, so nothing changes any more
            return now()
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
            self._runner.link.idle(loop.time())
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

    async def _finish(self, work: Callable[[RequestRunner], Coroutine[Any, Any, Any]], future: Future[Any]) -> None:
        with suppress(InvalidStateError):  # another thread has cancelled the future
            try:
                future.set_result(await work(self._runner))
            except asyncio.CancelledError:
                future.cancel()
                raise
            except Exception as error:
                future.set_exception(error)


async def _part(runner: RequestRunner, requests: Sequence[Request]) -> Any:
    """Return the bytes of adjacent requests in one buffer."""
    wanted = [each for each in requests if each.bytes]
    answers = [runner.start(each) for each in wanted]
    try:
        pieces = await asyncio.gather(*answers)
    except Exception:
        for answer in answers:
            answer.cancel()
        raise
    if len(pieces) == 1:
        return await _with_rest(runner, wanted[0], pieces[0]) if wanted[0].with_rest else pieces[0]
    whole = np.empty(requests[-1].stop - requests[0].start, np.uint8)
    for request, piece in zip(wanted, pieces, strict=True):
        at = request.start - requests[0].start
        whole[at : at + request.bytes] = np.frombuffer(piece, np.uint8)
    return whole


async def _with_rest(runner: RequestRunner, request: Request, piece: Any) -> Any:
    """Return the bytes of an object to its end, whose size the answer to its first request has stated."""
    begin, pin = request.start + memoryview(piece).nbytes, request.object.pin
    if pin is None or pin.size <= begin:
        return piece
    rest = [
        Request(request.object, at, min(at + LARGEST_REQUEST_BYTES, pin.size), request.need)
        for at in range(begin, pin.size, LARGEST_REQUEST_BYTES)
    ]
    return np.concatenate([np.frombuffer(piece, np.uint8), np.frombuffer(await _part(runner, rest), np.uint8)])


class _SharedEngine:
    """Engine of a store for all users in this process, and the link's measurements, which outlive it."""

    def __init__(self) -> None:
        self.link = LinkMeter()
        self.users = 0
        self.engine: RequestEngine | None = None


_shared: WeakKeyDictionary[ObjectStore, _SharedEngine] = WeakKeyDictionary()
_lock = threading.Lock()


def _forget_shared() -> None:
    """Start anew in a fork, which has none of the threads."""
    global _lock
    _lock = threading.Lock()
    _shared.clear()


os.register_at_fork(after_in_child=_forget_shared)


@contextmanager
def shared_requests(store: ObjectStore) -> Iterator[RequestEngine]:
    """Yield the engine for requests to a store. The last user closes it."""
    with _lock:
        shared = _shared.setdefault(store, _SharedEngine())
        engine = shared.engine = shared.engine or RequestEngine(link=shared.link)
        shared.users += 1
    try:
        yield engine
    finally:
        with _lock:
            shared.users -= 1
            if not shared.users:
                shared.engine = None
                engine.close()


def store_users(store: ObjectStore) -> int:
    """Return how many users share the engine of a store now."""
    with _lock:
        shared = _shared.get(store)
        return 0 if shared is None else shared.users


def link_model(store: ObjectStore) -> LinkModel:
    """Return the model of the link to a store, from all shared requests so far."""
    streams, _ = streams_of_rank(local_ranks())
    with _lock:
        return _shared.setdefault(store, _SharedEngine()).link.model(streams, time.monotonic())
