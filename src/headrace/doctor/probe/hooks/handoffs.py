"""Batches that a thread of the user's, or of a library, fetches ahead, and hands to the training thread."""

from __future__ import annotations

import functools
from threading import get_ident
from types import ModuleType
from typing import TYPE_CHECKING, Any, Callable

from ..elsewhere import MOST

if TYPE_CHECKING:
    from ..probe import Probe
    from ..training.step_records import Given
    from ..training.training import Training

CARRIED = "_headrace_carried"
"""Attribute of a queue into which a thread that fetches has put something: the batches in it, by the identity of what
was put."""


def watch_queues(probe: Probe, queue: ModuleType) -> None:
    """Hooks queue.Queue, as soon as a batch is received in another thread: what the training thread waits for at a
    queue that such a thread fills is a batch."""
    training = probe.training
    if training.elsewhere.threads:
        _hook_queues(probe, queue)
    else:
        training.at_first_fetcher.append(lambda: _hook_queues(probe, queue))


def watch_prefetcher(probe: Probe, prefetcher: ModuleType) -> None:
    """Hooks headrace.device.prefetcher, whose iterator hands over what its own thread has fetched, in order."""
    training = probe.training

    def hooked(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def __next__(iterator: Any) -> Any:  # noqa: N807
            training.elsewhere.is_handed_over = True
            return _take(training, functools.partial(original, iterator), lambda _: training.elsewhere.oldest())

        return __next__

    probe.patches.replace(prefetcher.PrefetchIterator, "__next__", hooked)


def _hook_queues(probe: Probe, queue: ModuleType) -> None:
    training = probe.training

    def putting(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def put(queue: Any, item: Any, *args: Any, **kwargs: Any) -> Any:
            if get_ident() in training.elsewhere.threads:
                carried = vars(queue).setdefault(CARRIED, {})
                if len(carried) >= MOST:  # another thread takes them
                    carried.clear()
                carried[id(item)] = training.elsewhere.put_on()
            return original(queue, item, *args, **kwargs)

        return put

    def getting(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def get(queue: Any, *args: Any, **kwargs: Any) -> Any:
            carried = vars(queue).get(CARRIED)
            if carried is None:
                return original(queue, *args, **kwargs)
            call = functools.partial(original, queue, *args, **kwargs)
            return _take(training, call, lambda item: carried.pop(id(item), None))

        return get

    probe.patches.replace(queue.Queue, "put", putting)
    probe.patches.replace(queue.Queue, "get", getting)


def _take(training: Training, call: Callable[[], Any], batch_of: Callable[[Any], Given | None]) -> Any:
    """Calls it, and counts that as the wait for the batch which `batch_of` what it gave names."""
    if get_ident() != training.thread or training.is_fetching:
        return call()
    try:
        start = training.ask()
    except Exception as error:
        training.fail("prefetcher", error)
        return call()
    try:
        item = call()
    except BaseException:
        training.gave_up()
        raise
    training.took_over(start, batch_of(item))
    return item
