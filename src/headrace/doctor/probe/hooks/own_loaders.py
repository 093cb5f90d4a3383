"""Hooks on Headrace's own loaders, and on threads that prefetch batches for the training thread."""

from __future__ import annotations

import functools
import weakref
from functools import partial
from threading import Lock, get_ident
from types import ModuleType
from typing import TYPE_CHECKING, Any, Callable

from ..batch_production import ProducedBatch
from ..stages import add_totals
from ..training.step_records import ATTRIBUTE, MOST_ELSEWHERE, ObservedPass
from ..training.training import now
from .dataloader import LoaderHooks

if TYPE_CHECKING:
    from ..probe import Probe
    from ..training.step_records import GivenBatch
    from ..training.training import TrainingObserver


# -- from doctor/probe/hooks/own_loaders.py: Headrace's own loaders: what the training thread waits for at them, and
# what their threads do meanwhile.
#
# None of Headrace is imported: its modules are hooked where a script has imported them, as any library's are. A
# Loader's
# core works outside of Python, so what it says of itself (`stats()`) is the evidence. The threads of a
# ThreadDataLoader
# run the user's dataset sample by sample: they are timed as a worker is, and a batch is what they did for it
# together.


FEED_EVERY_NS = 500_000_000
"""Between two looks at what a loader says of itself, which counts from the start of its pass."""
FIGURES = ("batches", "samples", "threads", "map_workers", "prefetch", "wall_s", "idle_s", "python_s", "copy_s")
LONGEST_S = 1.0
"""That a thread waits for another one which writes."""
MADE = "_headrace_made"
"""Attribute of a ThreadDataLoader's fetcher: its pass, and how many batches were begun for it."""
TASK_BATCH = "_headrace_batch"
"""Attribute of a task: what is known of the batch that it makes."""


def watch_loader(probe: Probe, position: ModuleType) -> None:
    """Hook headrace.loader.position, the base of Loader and of mixtures, once there is torch to train with."""
    probe.when_imported(
        "torch", partial(_install_loader, owner=position.LoaderPosition, iterator=position.LoaderIterator)
    )


def watch_thread_loader(probe: Probe, loader: ModuleType) -> None:
    """Hook headrace.dropins.thread_loader.thread_dataloader."""
    owner, iterator = loader.ThreadDataLoader, loader.ThreadLoaderIterator
    probe.when_imported("torch", partial(_install_loader, owner=owner, iterator=iterator))


def watch_thread_tasks(probe: Probe, batch_task: ModuleType) -> None:
    """Hook headrace.dropins.thread_loader.batch_task."""
    hooks = _ThreadHooks(probe)
    unseen = "what the threads of a ThreadDataLoader do was"
    probe.hook(batch_task, "BatchTask.__init__", hooks.new_task, unseen)
    probe.hook(batch_task, "BatchTask.load", hooks.load, unseen)
    probe.hook(batch_task, "BatchTask.collate", hooks.collate, unseen)


def _install_loader(probe: Probe, torch: ModuleType, *, owner: type, iterator: type) -> None:
    hooks = LoaderHooks(probe, torch.utils.data.dataloader, iterator)
    feeds = _Feeds(probe)
    probe.patches.replace(owner, "__iter__", hooks.iter)
    probe.patches.replace(iterator, "__next__", lambda original: feeds.next(hooks.next(original)))


class _Feeds:
    """Writes down what loaders say of themselves."""

    def __init__(self, probe: Probe) -> None:
        self._probe = probe
        self._due = 0
        self._latest: Callable[[], Any] = lambda: None
        guard = probe.batches.guard
        self._look, self._ends = guard(self._look_when_due), guard(self._look_at)
        probe.training.at_finish.append(guard(lambda: self._look_at(self._latest())))

    def next(self, original: Callable[[Any], Any]) -> Callable[[Any], Any]:
        @functools.wraps(original)
        def __next__(iterator: Any) -> Any:  # noqa: N807
            try:
                return original(iterator)
            except StopIteration:
                self._ends(iterator)
                raise
            finally:
                self._look(iterator)

        return __next__

    def _look_when_due(self, iterator: Any) -> None:
        begun = now()
        if self._latest() is not iterator:
            self._latest = weakref.ref(iterator)
        elif begun < self._due:
            return
        self._due = begun + FEED_EVERY_NS
        self._look_at(iterator)
        self._probe.training.costs.since(begun)

    def _look_at(self, iterator: Any) -> None:
        pass_: ObservedPass | None = getattr(iterator, ATTRIBUTE, None)
        ask = getattr(iterator, "stats", None)
        if pass_ is None or ask is None or pass_.training is not self._probe.training:
            return
        stats = ask()
        facts = {name: getattr(stats, name) for name in FIGURES}
        facts["limit"] = stats.limit
        facts["stages"] = {name: [stage.items, stage.busy_s] for name, stage in stats.stages.items()}
        self._probe.evidence.write(("feed", pass_.number, self._probe.clock.now_us(), facts))


class _ThreadHooks:
    """Times the parts of each batch in whatever threads do them, and writes the batch once it is collated."""

    def __init__(self, probe: Probe) -> None:
        self._probe = probe
        self._writing = Lock()
        self._unknown = -1_000_000  # apart from the passes that DataLoader's own fetchers count below 0
        self._sample, self._collating = probe.stage("getitem", "rest"), probe.stage("collate", "collate")
        guard = probe.batches.guard
        self._count, self._begin, self._end = guard(self._count_task), guard(self._begin_part), guard(self._end_part)
        self._write = guard(self._write_batch)

    def new_task(self, original: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(original)
        def __init__(task: Any, fetcher: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
            original(task, fetcher, *args, **kwargs)
            self._count(task, fetcher)

        return __init__

    def load(self, original: Callable[[Any, int], Any]) -> Callable[[Any, int], Any]:
        @functools.wraps(original)
        def load(task: Any, row: int) -> Any:
            part = self._begin(task, self._sample)
            try:
                return original(task, row)
            finally:
                self._end(task, part, 1)

        return load

    def collate(self, original: Callable[[Any], None]) -> Callable[[Any], None]:
        @functools.wraps(original)
        def collate(task: Any) -> None:
            part = self._begin(task, self._collating)
            try:
                original(task)
            finally:
                self._end(task, part, 0)
                self._write(task)

        return collate

    def _count_task(self, task: Any, fetcher: Any) -> None:
        made = vars(fetcher).get(MADE)
        if made is None or made[0] is not self._probe.evidence.path:
            opening = self._probe.training.opening
            if opening is None:
                self._unknown -= 1
            made = vars(fetcher)[MADE] = [self._probe.evidence.path, self._unknown if opening is None else opening, 0]
        vars(task)[TASK_BATCH] = (made[1], made[2], [])
        made[2] += 1

    def _begin_part(self, task: Any, stage: int) -> ProducedBatch | None:
        """Begin a part; None inside a batch that this thread makes for somebody else: a loader within a dataset."""
        if TASK_BATCH not in vars(task) or self._probe.batches.current() is not None:
            return None
        pass_, index, _ = vars(task)[TASK_BATCH]
        part = self._probe.batches.begin(pass_, index)
        part.account.enter(stage)
        return part

    def _end_part(self, task: Any, part: ProducedBatch | None, samples: int) -> None:
        if part is not None:
            part.account.leave()
            self._probe.batches.end(part)
            part.samples = samples
            vars(task)[TASK_BATCH][2].append(part)

    def _write_batch(self, task: Any) -> None:
        """Write the whole, in the first part's place. One that failed has no batch, and is not told."""
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
        is_ours = self._writing.acquire(timeout=LONGEST_S)  # a fork may have left it to nobody
        try:
            self._probe.batches.write(whole)
        finally:
            if is_ours:
                self._writing.release()


# -- from doctor/probe/hooks/handoffs.py: Batches that a thread of the user's, or of a library, fetches ahead, and
# hands to the training thread.


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
                if len(carried) >= MOST_ELSEWHERE:  # another thread takes them
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


def _take(training: TrainingObserver, call: Callable[[], Any], batch_of: Callable[[Any], GivenBatch | None]) -> Any:
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
