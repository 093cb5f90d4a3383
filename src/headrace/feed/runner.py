"""Runs a plan: keeps the core busy with several batches, finishes them in order, hands them to the consumer.

One thread, "headrace-feed", does the Python side. What belongs to one sample is done by the core's own threads, or,
where it has to be Python (Pillow, `map`), by a pool of threads that exists only then.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import Any


from headrace import _core
from headrace.feed import transforms
from headrace.feed.assembly import Assembly, Pending, parse_labels
from headrace.feed.bad_samples import BadSamples
from headrace.feed.channel import Channel, Closed
from headrace.feed.outputs import Converter
from headrace.feed.recipe import Batch, Recipe, Sample
from headrace.feed.rows import Cancelled, RowMender
from headrace.feed.stats import STAGES, StageStats, Stats
from headrace.fields import Label


class Runner:
    """The batches of one epoch from one step on. Owns its threads; `close` ends them all and may be called twice."""

    def __init__(self, recipe: Recipe, pool: _core.BlockPool, *, epoch: int, step: int) -> None:
        self._recipe = recipe
        self._pool = pool
        self._epoch = epoch
        self._first_step = step
        self._pid = os.getpid()
        self._started = time.perf_counter()
        self._python_s = 0.0
        self._samples = 0
        self.batch_bytes = 0
        self._engine = _core.Engine(recipe.threads, level=recipe.level)
        self._assembly = Assembly(recipe, self._engine, pool)
        self.bad = BadSamples(samples=recipe.plan.length, max_bad=recipe.max_bad, quarantine=recipe.quarantine)
        self._mender = RowMender(recipe, self._assembly, self.bad)
        self._converter = Converter(recipe)
        self._channel: Channel[Batch] = Channel(recipe.prefetch)
        self._lock = threading.Lock()
        self._pending: deque[Pending] = deque()
        self._closing = False
        self._python: ThreadPoolExecutor | None = None
        self._final: Stats | None = None
        self._thread = threading.Thread(target=self._run, name="headrace-feed", daemon=True)
        self._thread.start()

    def take(self) -> Batch:
        """The next batch. Raises Closed after the last, or what went wrong."""
        return self._channel.take()

    def close(self) -> None:
        """Cancels what is under way and joins every thread. In a forked child, where there are none, it does nothing."""
        if os.getpid() != self._pid:
            return
        with self._lock:
            self._closing = True
            for pending in self._pending:
                pending.job.cancel()
        self._channel.close()
        if threading.current_thread() is self._thread:  # the garbage collector chose this thread
            return
        self._thread.join()
        if self._final is None:
            self._final = self._measure()
            if self._python is not None:
                self._python.shutdown(wait=True, cancel_futures=True)
            self._engine.close()

    # --- the feeding thread ---

    def _run(self) -> None:
        error: BaseException | None = None
        try:
            self._feed()
        except (Closed, Cancelled):
            pass
        except BaseException as caught:
            error = caught
        self._pending.clear()
        self._channel.finish(error)

    def _feed(self) -> None:
        step, steps = self._first_step, self._recipe.plan.steps
        while step < steps or self._pending:
            if step < steps and self._channel.reserve(block=not self._pending):
                self._start(step)
                step += 1
            else:
                self._channel.put(self._finish(self._pending[0]))
                with self._lock:
                    self._pending.popleft()
            self._python_s = time.thread_time()

    def _start(self, step: int) -> None:
        pending = self._assembly.start(self._recipe.plan.batch(self._epoch, step))
        with self._lock:
            self._pending.append(pending)
            if self._closing:
                pending.job.cancel()
                raise Closed

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
        with self._lock:
            if self._closing:
                raise Closed
        for row, raws in zip(rows, self._in_threads(lambda row: self._mender.mend(pending, row), rows), strict=True):
            for i, raw in enumerate(raws):
                pending.raws[i][row] = raw

    def _deliver(self, pending: Pending) -> Batch:
        recipe, batch = self._recipe, {}
        for (name, image, _), memory in zip(recipe.images, pending.memory, strict=True):
            batch[name] = self._converter.image(memory, image, len(pending.samples), pending.size)
        for (name, field, _), raw in zip(recipe.raws, pending.raws, strict=True):
            batch[name] = self._labels(pending, name, raw) if isinstance(field, Label) else raw
        for name, column in recipe.values:
            batch[name] = self._converter.values(self._assembly.values(column, pending.samples))
        batch = {name: batch[name] for name in recipe.fields}
        if recipe.map is not None and len(pending.samples):
            batch = self._map(pending, batch)
        if recipe.batch_map is not None:
            rng = transforms.batch_rng(pending.key, step=pending.plan.step, rank=recipe.plan.rank)
            batch = _with_note(
                lambda: recipe.batch_map(batch, rng),  # type: ignore[misc]  # not None: asked above
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

        samples = self._in_threads(one, list(range(len(pending.samples))))
        return transforms.collate(samples, self._recipe.output)

    def _in_threads(self, function: Any, rows: list[int]) -> list[Any]:
        if self._python is None:
            self._python = ThreadPoolExecutor(self._recipe.threads, thread_name_prefix="headrace-python")
        futures = [self._python.submit(function, row) for row in rows]
        try:
            return [future.result() for future in futures]
        except BaseException:
            for future in futures:
                future.cancel()
            raise

    # --- statistics ---

    def stats(self) -> Stats:
        """What was counted so far, or in all once closed."""
        return self._final if self._final is not None else self._measure()

    def _measure(self) -> Stats:
        core, channel, plan = self._engine.counters(), self._channel.statistics(), self._recipe.plan
        return Stats(
            batches=channel.taken,
            samples=self._samples,
            wall_s=time.perf_counter() - self._started,
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
            left_out=plan.left_out,
            repeated=plan.repeated,
            stages={name: StageStats(core[name][0] / 1e9, core[name][1], core[name][2]) for name in STAGES},
        )


def _with_note(call: Any, note: str) -> Any:
    """Lets the user's exception through as it is, with its own traceback, and says whose sample it was."""
    try:
        return call()
    except Exception as error:
        error.add_note(note)
        raise


