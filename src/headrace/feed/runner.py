"""Runs a plan: keeps the core busy with several batches, finishes them in order, hands them to the consumer.

One thread, "headrace-feed", does the Python side. What belongs to one sample is done by the core's own threads, or,
where it has to be Python (Pillow, `map`), by a pool of threads that exists only then.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

from headrace import _core
from headrace.channel import Channel, Closed
from headrace.data import retrying
from headrace.errors import HeadraceError
from headrace.feed import transforms
from headrace.feed.assembly import Assembly, Cancelled, Pending, parse_labels
from headrace.feed.bad_samples import BadSamples
from headrace.feed.memory import BatchMemory
from headrace.feed.outputs import Converter
from headrace.feed.python_threads import PythonThreads
from headrace.feed.recipe import Batch, Recipe, Sample
from headrace.feed.rows import RowMender
from headrace.feed.stats import STAGES, StageStats, Stats
from headrace.fields import Label
from headrace.threads import THREAD_PREFIX, Origin, close_at_exit, in_own_thread

T = TypeVar("T")

DROP_WAIT_S = 1.0
"""Far longer than a batch in progress needs to be cancelled, unless the user's `map` is in the midst of something."""


class Runner:
    """The batches of one epoch from one step on. Owns its threads; `close` ends them all and may be called twice."""

    def __init__(self, recipe: Recipe, memory: BatchMemory, *, epoch: int, step: int) -> None:
        self._recipe = recipe
        self._epoch = epoch
        self._first_step = step
        self._origin = Origin()
        self._started = time.perf_counter()
        self._python_s = 0.0
        self._samples = 0
        self.batch_bytes = 0
        self._engine = _core.Engine(
            recipe.threads, level=recipe.level, limits=recipe.limits, retry_waits_s=list(retrying.WAITS_S)
        )
        self._assembly = Assembly(recipe, self._engine, memory)
        samples = -(-recipe.plan.length // recipe.plan.world_size)
        self.bad = BadSamples(samples=samples, max_bad=recipe.max_bad, quarantine=recipe.quarantine)
        self._mender = RowMender(recipe, self._assembly, self.bad)
        self._converter = Converter(recipe)
        self._channel: Channel[Batch] = Channel(recipe.prefetch)
        self._pending: deque[Pending] = deque()  # the feeding thread's own
        self._python = PythonThreads(recipe.threads)
        # Between the engine's end and whoever uses it. Reentrant: the garbage collector may call `close` anywhere.
        self._lock = threading.RLock()
        self._core: dict[str, tuple[int, int, int]] | None = None  # its counts once it has ended
        self._ended: float | None = None
        self._thread = threading.Thread(target=self._run, name=f"{THREAD_PREFIX}feed", daemon=True)
        self._thread.start()
        close_at_exit(self)

    def take(self) -> Batch:
        """The next batch. Raises Closed after the last, or what went wrong."""
        return self._channel.take()

    @property
    def foreign(self) -> bool:
        """Whether this process is a fork of the one that runs the feed: its threads are not here."""
        return self._origin.is_elsewhere

    def close(self, timeout_s: float | None = None) -> None:
        """Cancels what is under way and joins every thread. In a forked child, where there are none, it does nothing.

        With a timeout, threads that are not done by then end by themselves.
        """
        if self.foreign:
            return
        if self._ended is None:
            self._ended = time.perf_counter()
        self._channel.close()
        with self._lock:
            self._engine.cancel()
        # One of ours must not wait, and may hold what the executor's own lock protects. The feeding thread ends all.
        if in_own_thread():
            return
        self._python.cancel()
        self._thread.join(timeout_s)

    def drop(self) -> None:
        """Closes a feed that nobody refers to any more. Whoever lets go of it may hold a lock that `map` waits for, so
        the wait is bounded."""
        self.close(DROP_WAIT_S)

    # --- the feeding thread ---

    def _run(self) -> None:
        error: BaseException | None = None
        try:
            self._feed()
        except (Closed, Cancelled):
            pass
        except BaseException as caught:
            error = caught
        try:
            self._retire()
        finally:
            self._channel.finish(error)
            del error  # its traceback holds this frame

    def _feed(self) -> None:
        step, steps = self._first_step, self._recipe.plan.steps
        error: Exception | None = None
        while step < steps or self._pending:
            if step < steps and self._channel.reserve(block=not self._pending):
                try:
                    self._pending.append(self._assembly.start(self._recipe.plan.batch(self._epoch, step)))
                    step += 1
                except (HeadraceError, OSError) as caught:  # the batches before it are still delivered
                    error, steps = caught, step
            else:
                self._channel.put(self._finish(self._pending[0]))
                self._pending.popleft()
            self._python_s = time.thread_time()
        if error is not None:
            raise error

    def _retire(self) -> None:
        """Ends the other threads. Batches that nobody will take are cancelled first."""
        self._engine.cancel()
        self._pending.clear()
        self._python.join()
        with self._lock:
            self._core = self._engine.counters()
            self._engine.close()
        self._assembly.close()

    def _finish(self, pending: Pending) -> Batch:
        job = pending.job
        job.wait()
        pending.raws = [job.raw(i) for i in range(len(self._recipe.raws))]
        self._mend(pending, sorted({failure[0] for failure in job.failures()}))
        batch = self._deliver(pending)
        self._samples += len(pending.samples)
        self.batch_bytes = sum(block.nbytes for block in pending.memory)
        pending.memory.clear()
        return batch

    def _mend(self, pending: Pending, rows: list[int]) -> None:
        if not rows:
            return
        for row, raws in zip(rows, self._python.each(lambda row: self._mender.mend(pending, row), rows), strict=True):
            for i, raw in enumerate(raws):
                pending.raws[i][row] = raw

    def _deliver(self, pending: Pending) -> Batch:
        recipe, batch_map, batch = self._recipe, self._recipe.batch_map, {}
        for (name, image, _), memory in zip(recipe.images, pending.memory, strict=True):
            batch[name] = self._converter.image(memory, image, len(pending.samples), pending.size)
        for (name, field, _), raw in zip(recipe.raws, pending.raws, strict=True):
            batch[name] = self._labels(pending, name, raw) if isinstance(field, Label) else raw
        for name, column in recipe.values:
            values = self._assembly.values(column, pending.samples)
            is_label = isinstance(recipe.fields[name], Label)
            batch[name] = self._converter.labels(values) if is_label else self._converter.values(values)
        batch = {name: batch[name] for name in recipe.fields}
        if recipe.map is not None and len(pending.samples):
            batch = self._map(pending, batch)
        if batch_map is not None:
            rng = transforms.batch_rng(pending.key, step=pending.plan.step, rank=recipe.plan.rank)
            batch = _with_note(
                lambda: batch_map(batch, rng),
                f"in batch_map=, epoch {pending.plan.epoch}, step {pending.plan.step}",
            )
        return batch

    def _labels(self, pending: Pending, name: str, raw: list[bytes]) -> Any:
        keys = [self._recipe.dataset.key(int(sample)) for sample in pending.samples] if raw else []
        return self._converter.values(parse_labels(raw, keys, name))

    def _map(self, pending: Pending, batch: Batch) -> Batch:
        base_ids = self._recipe.dataset.base_ids
        function = self._recipe.map
        assert function is not None

        def one(row: int) -> Sample:
            sample = int(pending.samples[row])
            base_id = sample if base_ids is None else int(base_ids[sample])
            rng = transforms.sample_rng(pending.key, base_id=base_id, pass_=int(pending.passes[row]))
            return _with_note(
                lambda: function(transforms.take_row(batch, row), rng),
                f"in map=, sample {self._recipe.dataset.key(sample)!r}, epoch {pending.plan.epoch}, "
                f"position {int(pending.plan.positions[row])}",
            )

        samples = self._python.each(one, range(len(pending.samples)))
        return transforms.collate(samples, self._recipe.output)

    # --- statistics ---

    def stats(self) -> Stats:
        """What was counted so far, or in all once closed. Not in a forked child."""
        with self._lock:
            core = self._core if self._core is not None else self._engine.counters()
        channel, plan = self._channel.statistics(), self._recipe.plan
        ended = self._ended if self._ended is not None else time.perf_counter()
        return Stats(
            batches=channel.taken,
            samples=self._samples,
            wall_s=ended - self._started,
            consumer_wait_s=channel.consumer_wait_s,
            feed_wait_s=channel.producer_wait_s,
            python_s=self._python_s,
            idle_s=core["idle"][0] / 1e9,
            threads=self._recipe.threads,
            ready_batches=channel.waiting,
            batch_bytes=self.batch_bytes,
            bad=len(self.bad),
            replaced=self.bad.replaced,
            declined=self.bad.declined,
            retries=core["retry"][1],
            left_out=plan.left_out,
            repeated=plan.repeated,
            stages={name: StageStats(core[name][0] / 1e9, core[name][1], core[name][2]) for name in STAGES},
        )


def _with_note(call: Callable[[], T], note: str) -> T:
    """Lets the user's exception through as it is, with its own traceback, and says whose sample it was."""
    try:
        return call()
    except StopIteration as error:  # would end the consumer's loop in silence (PEP 479)
        raise RuntimeError(f"StopIteration raised {note}") from error
    except Exception as error:
        error.add_note(note)
        raise
