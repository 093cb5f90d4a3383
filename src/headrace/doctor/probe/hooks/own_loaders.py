"""Hooks on Headrace's own loaders, and on threads that prefetch batches for the training thread.

Nothing of Headrace is imported: its modules are hooked if a script has imported them, like any library. A Loader's core
runs outside Python, so its own `stats()` are the evidence. The threads of a ThreadDataLoader run the user's dataset
sample by sample. They are timed like workers, and a batch is the sum of their work on it.
"""

from __future__ import annotations

import weakref
from functools import partial
from threading import Lock, get_ident
from types import ModuleType
from typing import Any, Callable

from ..batch_production import BatchRecorder, ProducedBatch
from ..patches import Function, Patches
from ..stages import CallTimer, add_totals
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
LONGEST_S = 1.0
"""Maximum wait of a thread for another that is writing."""
MADE = "_headrace_made"
"""Attribute of a ThreadDataLoader's fetcher: evidence file, pass, and number of batches begun."""
TASK_BATCH = "_headrace_batch"
"""Attribute of a task: pass, index and parts of the batch that it makes."""
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


def install_thread_tasks(
    timer: CallTimer, batches: BatchRecorder, training: TrainingObserver, batch_task: ModuleType
) -> None:
    hooks, unseen = _ThreadHooks(timer, batches, training), "what the threads of a ThreadDataLoader do was"
    for name, call in (("__init__", hooks.new_task), ("load", hooks.load), ("collate", hooks.collate)):
        timer.patches.hook_around(batch_task, f"BatchTask.{name}", call, unseen)


class _ThreadHooks:
    """Times of each batch's parts in all threads involved. The batch is written once it is collated."""

    def __init__(self, timer: CallTimer, batches: BatchRecorder, training: TrainingObserver) -> None:
        self._batches = batches
        self._evidence = training.evidence
        self._counter = training.counter
        self._writing = Lock()
        self._unknown = -1_000_000  # distinct from the negative pass numbers of DataLoader's fetchers
        self._sample, self._collating = timer.stage("getitem", "rest"), timer.stage("collate", "collate")
        guard = batches.guard
        self._count, self._begin, self._end = guard(self._count_task), guard(self._begin_part), guard(self._end_part)
        self._write = guard(self._write_batch)

    def new_task(self, original: Function, task: Any, fetcher: Any, *args: Any, **kwargs: Any) -> None:
        original(task, fetcher, *args, **kwargs)
        self._count(task, fetcher)

    def load(self, original: Function, task: Any, row: int) -> Any:
        part = self._begin(task, self._sample)
        try:
            return original(task, row)
        finally:
            self._end(task, part, 1)

    def collate(self, original: Function, task: Any) -> None:
        part = self._begin(task, self._collating)
        try:
            original(task)
        finally:
            self._end(task, part, 0)
            self._write(task)

    def _count_task(self, task: Any, fetcher: Any) -> None:
        made = vars(fetcher).get(MADE)
        if made is None or made[0] is not self._evidence.path:
            opening = self._counter.opening
            if opening is None:
                self._unknown -= 1
            made = vars(fetcher)[MADE] = [self._evidence.path, self._unknown if opening is None else opening, 0]
        vars(task)[TASK_BATCH] = (made[1], made[2], [])
        made[2] += 1

    def _begin_part(self, task: Any, stage: int) -> ProducedBatch | None:
        """Begin a part; return None inside another batch of this thread: a loader within a dataset."""
        if TASK_BATCH not in vars(task) or self._batches.current() is not None:
            return None
        pass_, index, _ = vars(task)[TASK_BATCH]
        part = self._batches.begin(pass_, index)
        part.account.enter(stage)
        return part

    def _end_part(self, task: Any, part: ProducedBatch | None, samples: int) -> None:
        if part is not None:
            part.account.leave()
            self._batches.end(part)
            part.samples = samples
            vars(task)[TASK_BATCH][2].append(part)

    def _write_batch(self, task: Any) -> None:
        """Write the whole batch in place of its first part. A failed task has no batch, and is not written."""
        parts: list[ProducedBatch] = vars(task).pop(TASK_BATCH, (0, 0, []))[2]
        if not parts or getattr(task, "_error", None) is not None:
            return
        whole = min(parts, key=lambda part: part.start)
        whole.worked = sum(part.end - part.start for part in parts)
        whole.end = max(part.end for part in parts)
        for part in parts:
            if part is not whole:
                add_totals(whole.totals, part.totals)
                add_totals(whole.beside, part.beside)
                whole.samples = (whole.samples or 0) + (part.samples or 0)
        whole.use = None
        is_ours = self._writing.acquire(timeout=LONGEST_S)  # a fork may have left the lock without an owner
        try:
            self._batches.write(whole)
        finally:
            if is_ours:
                self._writing.release()


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
