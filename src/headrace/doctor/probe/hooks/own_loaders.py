"""Hooks on Headrace's own loaders, and on threads that prefetch batches for the training thread.

Nothing of Headrace is imported: its modules are hooked if a script has imported them, like any library. A Loader's core
runs outside Python, so its own `stats()` are the evidence. What the threads of a ThreadDataLoader do is not observed.
"""

from __future__ import annotations

import weakref
from functools import partial
from threading import get_ident
from types import ModuleType
from typing import Any, Callable

from ..batch_production import BatchRecorder
from ..patches import Function, Patches
from ..training.state import ATTRIBUTE, MOST_ELSEWHERE, ObservedPass
from ..training.steps import FetchedBatch
from ..training.training import TrainingObserver, now
from .dataloader import LoaderHooks

OWN_LOADERS = {
    "headrace.loader.position": ("LoaderPosition", "LoaderIterator"),  # base class of Loader and of mixtures
    "headrace.dropins.thread_loader.thread_dataloader": ("ThreadDataLoader", "ThreadLoaderIterator"),
}
"""Headrace's own loaders and their iterators, by the module that defines them."""
FEED_EVERY_NS = 500_000_000
"""Interval between two readings of a loader's stats, which count from the start of its pass."""
FIGURES = (
    *("batches", "samples", "threads", "map_workers", "prefetch", "wall_s", "consumer_wait_s", "idle_s", "python_s"),
    "copy_s",
)
CARRIED = "_headrace_carried"
"""Attribute of a queue that a fetching thread fills: the queued batches, by id of the queued object."""


def install_own_loader(
    owner: str,
    iterator: str,
    when_imported: Callable[[str, Callable[[ModuleType], object]], None],
    patches: Patches,
    training: TrainingObserver,
    batches: BatchRecorder,
    module: ModuleType,
) -> None:
    """Hook a loader and its iterator, by their names in the module, once torch is imported."""

    def install(_: ModuleType) -> None:
        iterators = getattr(module, iterator)
        hooks = LoaderHooks(training, iterators)
        patches.around(getattr(module, owner), "__iter__", hooks.iter)
        patches.around(iterators, "__next__", hooks.next)
        patches.around(iterators, "__next__", _Feeds(training, batches).next)

    when_imported("torch", install)


class _Feeds:
    """Writer of the figures that loaders report of themselves."""

    def __init__(self, training: TrainingObserver, batches: BatchRecorder) -> None:
        self._training = training
        self._due = 0
        self._latest: Callable[[], Any] = lambda: None
        guard = batches.guard
        self._look, self._ends = guard(self._look_when_due), guard(self._look_at)
        training.at_finish.append(guard(lambda: self._look_at(self._latest())))

    def next(self, original: Function, iterator: Any) -> Any:
        try:
            return original(iterator)
        except StopIteration:
            self._ends(iterator)
            raise
        finally:
            self._look(iterator)

    def _look_when_due(self, iterator: Any) -> None:
        begun = now()
        if self._latest() is not iterator:
            self._latest = weakref.ref(iterator)
        elif begun < self._due:
            return
        self._due = begun + FEED_EVERY_NS
        self._look_at(iterator)
        self._training.costs.since(begun)

    def _look_at(self, iterator: Any) -> None:
        pass_: ObservedPass | None = getattr(iterator, ATTRIBUTE, None)
        ask = getattr(iterator, "stats", None)
        if pass_ is None or ask is None or pass_.training is not self._training:
            return
        stats = ask()
        facts = {name: getattr(stats, name) for name in FIGURES}
        facts["limit"] = stats.limit
        facts["stages"] = {name: [stage.items, stage.busy_s] for name, stage in stats.stages.items()}
        fetch = getattr(stats, "fetch", None)  # of files in an object store
        if fetch is not None:
            facts["fetch"] = fetch.totals()
            facts["fetch_latency_s"] = {str(quantile): value for quantile, value in fetch.latency_s.items()}
        self._training.evidence.write(("feed", pass_.number, self._training.clock.now_us(), facts))


# Batches that a thread of the user's or of a library prefetches and passes to the training thread.


def install_prefetcher(patches: Patches, training: TrainingObserver, prefetcher: ModuleType) -> None:
    """Hook headrace.device.prefetcher: its iterator passes on the batches of its own thread in order."""

    def take(original: Function, iterator: Any) -> Any:
        training.elsewhere.is_handed_over = True
        return _take(training, partial(original, iterator), lambda _: training.elsewhere.oldest())

    patches.around(prefetcher.PrefetchIterator, "__next__", take)


def install_queue(patches: Patches, training: TrainingObserver, queue: ModuleType) -> None:
    """Hook queue.Queue as soon as another thread receives a batch.

    The training thread's wait at a queue that such a thread fills is a wait for a batch.
    """
    elsewhere = training.elsewhere

    def put(original: Function, queue: Any, item: Any, *args: Any, **kwargs: Any) -> Any:
        if get_ident() in elsewhere.threads:
            carried = vars(queue).setdefault(CARRIED, {})
            if len(carried) >= MOST_ELSEWHERE:  # another thread takes them
                carried.clear()
            carried[id(item)] = elsewhere.put_on()
        return original(queue, item, *args, **kwargs)

    def get(original: Function, queue: Any, *args: Any, **kwargs: Any) -> Any:
        carried = vars(queue).get(CARRIED)
        if carried is None:
            return original(queue, *args, **kwargs)
        call = partial(original, queue, *args, **kwargs)
        return _take(training, call, lambda item: carried.pop(id(item), None))

    def install() -> None:
        patches.around(queue.Queue, "put", put)
        patches.around(queue.Queue, "get", get)

    elsewhere.at_first(install)


def _take(training: TrainingObserver, call: Callable[[], Any], batch_of: Callable[[Any], FetchedBatch | None]) -> Any:
    """Run `call` and record it as the wait for the batch that `batch_of` returns for its result."""
    if get_ident() != training.thread.observed or training.thread.is_fetching:
        return call()
    return training.wait("prefetcher", call, lambda item, start, end: training.adopt_batch(batch_of(item), start, end))
