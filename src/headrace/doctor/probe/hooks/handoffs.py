"""Batches that a thread of the user's, or of a library, fetches ahead, and hands to the training thread."""

from __future__ import annotations

import functools
from threading import get_ident
from types import ModuleType
from typing import TYPE_CHECKING, Any, Callable

from ..training import NOBODY

if TYPE_CHECKING:
    from ..probe import Probe
    from ..training import Training

CARRIES = "_headrace_carries_batches"
"""Attribute of a queue into which a thread that fetches has put something."""


def watch_queues(probe: Probe, queue: ModuleType) -> None:
    """Hooks queue.Queue, as soon as a batch is received in another thread: what the training thread waits for at a
    queue that such a thread fills is a batch."""
    training = probe.training
    if training.fetchers:
        _hook_queues(probe, queue)
    else:
        training.at_first_fetcher.append(lambda: _hook_queues(probe, queue))


def watch_prefetcher(probe: Probe, prefetcher: ModuleType) -> None:
    """Hooks headrace.device.prefetcher, whose iterator hands over what its own thread has fetched."""
    probe.patches.replace(
        prefetcher.PrefetchIterator, "__next__", lambda original: _taking(probe.training, original, lambda _: True)
    )


def _hook_queues(probe: Probe, queue: ModuleType) -> None:
    training = probe.training
    probe.patches.replace(queue.Queue, "put", lambda original: _putting(training, original))
    probe.patches.replace(queue.Queue, "get", lambda original: _taking(training, original, _carries))


def _carries(queue: Any) -> bool:
    return hasattr(queue, CARRIES)


def _putting(training: Training, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def put(queue: Any, *args: Any, **kwargs: Any) -> Any:
        if get_ident() in training.fetchers:
            setattr(queue, CARRIES, True)
        return original(queue, *args, **kwargs)

    return put


def _taking(training: Training, original: Callable[..., Any], carries: Callable[[Any], bool]) -> Callable[..., Any]:
    @functools.wraps(original)
    def take(source: Any, *args: Any, **kwargs: Any) -> Any:
        is_ours = training.thread == get_ident() and training.fetchers and not training.is_fetching
        if not is_ours or not carries(source):
            return original(source, *args, **kwargs)
        try:
            start = training.ask()
        except Exception as error:
            training.fail("prefetcher", error)
            return original(source, *args, **kwargs)
        is_taken = False
        try:
            value = original(source, *args, **kwargs)
            is_taken = True
            return value
        finally:
            if training.thread != NOBODY:
                training.took_over(start, is_taken)

    return take
