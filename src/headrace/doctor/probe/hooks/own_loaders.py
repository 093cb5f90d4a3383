"""Hooks on Headrace's own loaders, and on threads that prefetch batches for the training thread.

Nothing of Headrace is imported: its modules are hooked if a script has imported them, like any library. What the
threads of a loader do is not observed: its `stats()` say it.
"""

from __future__ import annotations

from functools import partial
from threading import get_ident
from types import ModuleType
from typing import Any, Callable

from ..patches import Function, Patches
from ..training.state import MOST_ELSEWHERE
from ..training.steps import FetchedBatch
from ..training.training import TrainingObserver
from .dataloader import LoaderHooks

OWN_LOADERS = {
    "headrace.loader.position": ("LoaderPosition", "LoaderIterator"),  # base class of Loader and of mixtures
    "headrace.dropins.thread_loader.thread_dataloader": ("ThreadDataLoader", "ThreadLoaderIterator"),
}
"""Headrace's own loaders and their iterators, by the module that defines them."""
CARRIED = "_headrace_carried"
"""Attribute of a queue that a fetching thread fills: the queued batches, by id of the queued object."""


def install_own_loader(
    owner: str,
    iterator: str,
    when_imported: Callable[[str, Callable[[ModuleType], object]], None],
    patches: Patches,
    training: TrainingObserver,
    module: ModuleType,
) -> None:
    """Hook a loader and its iterator, by their names in the module, once torch is imported."""

    def install(_: ModuleType) -> None:
        iterators = getattr(module, iterator)
        hooks = LoaderHooks(training, iterators)
        patches.around(getattr(module, owner), "__iter__", hooks.iter)
        patches.around(iterators, "__next__", hooks.next)

    when_imported("torch", install)


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
