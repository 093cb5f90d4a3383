"""`Runner`: one pass over an epoch on the host. It decodes batches ahead and delivers them in order.

One thread, "headrace-feed", runs the Python side. The core's own threads do the work per sample. Work per sample in
Python (Pillow, `map`) runs in a pool of threads, which exists only then. `map` may also run in processes; a thread then
collects their results.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.cache import CacheStats
from headrace.errors import HeadraceError
from headrace.fetch import FetchAhead, global_order_report
from headrace.loader.assembly import Assembly, Cancelled, Pending
from headrace.loader.autotuning.tuned_pass import TunedPass
from headrace.loader.autotuning.tuner import Observation, Setting, Tuner
from headrace.loader.bad_samples import BadSamples, Quarantine
from headrace.loader.batch_decoder import BatchDecoder
from headrace.loader.batch_memory import BatchMemory
from headrace.loader.cache import EpochCache
from headrace.loader.map_stage import LastStages, MapStage, PythonThreads, ThreadedMap
from headrace.loader.recipe import Batch, Recipe
from headrace.loader.shared_fetches import SharedFetches
from headrace.loader.stats import Stats
from headrace.loader.step_maker import engine_of, stages_of
from headrace.loader.user_functions import DecodedBatch
from headrace.system import Channel, Closed, ProcessOrigin, close_at_exit, in_own_thread

if TYPE_CHECKING:
    from headrace.loader.map_workers.pool import MapWorkers


@dataclass(frozen=True)
class PassResources:
    """Resources that the passes of a loader share."""

    memory: BatchMemory
    cache: EpochCache | None
    quarantine: Quarantine | None

    def bad_samples(self, recipe: Recipe) -> BadSamples:
        """Return the empty record of a pass's bad samples."""
        samples = recipe.pass_samples
        if samples is None:
            samples = -(-recipe.plan.length // recipe.plan.world_size)
        return BadSamples(samples=samples, max_bad=recipe.max_bad, quarantine=self.quarantine)


def delivery_counts(channel: Channel[tuple[Batch, int]], bad: BadSamples, recipe: Recipe) -> dict[str, Any]:
    """Return the statistics that do not depend on where batches are made: delivery, waits, and bad samples."""
    delivered = channel.statistics()
    return {
        "batches": delivered.taken,
        "consumer_wait_s": delivered.consumer_wait_s,
        "feed_wait_s": delivered.producer_wait_s,
        "ready_batches": delivered.waiting,
        "bad": len(bad),
        "replaced": bad.counted("replaced"),
        "declined": bad.counted("declined"),
        "left_out": recipe.plan.left_out,
        "repeated": recipe.plan.repeated,
    }


class Runner:
    """Batches of one epoch from one step on, made on the host. It owns its threads; `close` ends them.

    `prefetch`: number of batches in flight or ready, for a pass that is prefetched as a whole, up to `hand_over`.
    """

    def __init__(
        self,
        recipe: Recipe,
        shared: PassResources,
        *,
        tuner: Tuner,
        epoch: int,
        step: int,
        prefetch: int | None = None,
    ) -> None:
        self._recipe = recipe
        self._cache = shared.cache
        self._tuner = tuner
        self._tuned = TunedPass(tuner, self.readings, self.set)
        self._epoch = epoch
        self._first_step = step
        self._origin = ProcessOrigin()
        self._started = time.perf_counter()
        self._ended: float | None = None
        self._python_s = 0.0
        self._samples = 0
        self._before = Observation()  # at the hand-over
        self._cache_before = None if shared.cache is None else shared.cache.stats()
        self._cache_after: CacheStats | None = None
        self.batch_bytes = 0
        self.bad = shared.bad_samples(recipe)
        self._channel: Channel[tuple[Batch, int]] = Channel(0)
        self._pending: deque[Pending] = deque()  # owned by the feeding thread
        self._python = PythonThreads(recipe.threads)
        # Guards the engine's end against its users. Reentrant: the garbage collector may call `close` anywhere.
        self._lock = threading.RLock()
        self._core: dict[str, tuple[int, int, int]] | None = None  # its counters once it has ended
        with ExitStack() as undo:
            self._start(shared.memory, undo)
            # Last: threads that decode would take the cores while this one waits for the feeding thread's start.
            self.set_prefetch(prefetch or self._tuned.setting.prefetch)
            undo.pop_all()
        close_at_exit(self)

    def _start(self, memory: BatchMemory, undo: ExitStack) -> None:
        recipe = self._recipe
        workers: MapWorkers | None = None
        if recipe.map_workers:
            from headrace.loader.map_workers.pool import MapWorkers  # multiprocessing is slow to import

            # First: they may be forked, and this pass has no threads yet.
            workers = MapWorkers(recipe, seed=recipe.plan.key(self._epoch), deliver=self._deliver, failed=self._give_up)
            undo.callback(workers.give_back)
            undo.callback(workers.end, 0)
            memory = memory if workers.memory is None else workers.memory
        self._engine = engine_of(recipe, self._tuned.setting.threads)
        undo.callback(self._engine.close)
        shared = SharedFetches.of(recipe.dataset, self._cache, recipe.limits)
        if shared is not None:
            undo.callback(shared.close)
        is_first = (self._epoch, self._first_step) == (0, 0)
        self._ahead = FetchAhead.of(
            recipe.dataset,
            recipe.read_columns,
            recipe.plan,
            epoch=self._epoch,
            first_step=self._first_step,
            cached=None if self._cache is None else self._cache.has_all,
            shared=shared,
            report=global_order_report(recipe.dataset, recipe.read_columns, recipe.plan) if is_first else None,
        )
        if self._ahead is not None:
            undo.callback(self._ahead.close)
        self._assembly = Assembly(recipe, self._engine, memory, self._cache, self._ahead)
        self._decoder = BatchDecoder(recipe, self._assembly, self.bad, self._python, self._cache, self._fetch_images)
        undo.callback(self._decoder.close)
        self._last = LastStages(recipe, memory)
        self._map = MapStage(self._deliver)
        if workers is not None:
            workers.begin()
            self._map = workers
        elif recipe.map is not None:
            self._map = ThreadedMap(recipe.map, recipe.output, self._python, self._deliver)
        undo.callback(self._map.close)
        self._thread = threading.Thread(target=self._run, name=f"{recipe.thread_prefix}feed", daemon=True)
        self._thread.start()

    def _fetch_images(self, recipe: Recipe, cache: EpochCache | None) -> FetchAhead | None:
        """Return the prefetcher of the images of a field of several images a sample."""
        return FetchAhead.of(
            recipe.dataset,
            recipe.read_columns,
            recipe.plan,
            epoch=self._epoch,
            first_step=self._first_step,
            cached=None if cache is None else cache.has_all,
        )

    def set_prefetch(self, prefetch: int) -> None:
        self._channel.set_capacity(prefetch)

    def hand_over(self) -> None:
        """Begin to deliver a prefetched pass. Its times count from now on."""
        self._started, self._before = time.perf_counter(), self.readings()
        self.set_prefetch(self._tuned.setting.prefetch)

    def end_cache_counts(self, successor: Runner) -> None:
        """Leave later uses of the shared cache to the counts of a prefetched pass."""
        self._cache_after = successor._cache_before

    def has_ended(self, wait_s: float) -> bool:
        """Return True if the last batch is made and the threads have ended, after up to `wait_s`."""
        self._thread.join(wait_s)
        return not self._thread.is_alive()

    def take(self) -> tuple[Batch, int]:
        ready, asked_s = self._channel.ready, time.perf_counter()
        with nullcontext() if self._ahead is None else self._ahead.waits.consumer_waits():
            taken = self._channel.take()
        self._tuned.took(asked_s, time.perf_counter(), ready)
        return taken

    @property
    def held_batches(self) -> int | None:
        return self._map.held_batches

    @property
    def foreign(self) -> bool:
        return self._origin.is_elsewhere

    def close(self, timeout_s: float | None = None) -> None:
        """Cancel what is in flight and join every thread. Does nothing in a forked child, which has no threads.

        With a timeout, threads that are not done by then end on their own.
        """
        if self.foreign:
            return
        if self._ended is None:
            self._ended = time.perf_counter()
        self._channel.close()
        with self._lock:
            self._engine.cancel()
        if self._ahead is not None:
            self._ahead.close()
        self._decoder.cancel()
        self._map.cancel()
        # Headrace's own threads must not wait, and may hold the executor's lock. The feeding thread ends everything.
        if in_own_thread():
            return
        self._python.cancel()
        self._thread.join(timeout_s)

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
            error = self._retire() or error  # an error of an earlier batch comes first
        finally:
            self._channel.finish(error)
            del error  # its traceback holds this frame

    def _feed(self) -> None:
        step, steps = self._first_step, self._recipe.plan.steps
        error: Exception | None = None
        while step < steps or self._pending:
            if step < steps and self._may_start(step) and self._channel.reserve(block=not self._pending):
                try:
                    self._make_room(step)
                    if self._ahead is not None:
                        self._ahead.begin(step)
                    self._pending.append(self._decoder.start(self._recipe.plan.batch(self._epoch, step)))
                    step += 1
                except (HeadraceError, OSError) as caught:  # the batches before it are still delivered
                    error, steps = caught, step
            else:
                decoded = self._decoder.finish(self._pending[0])
                self._pending.popleft().memory.clear()
                if self._ahead is not None:
                    self._ahead.end(decoded.rows.plan.step)
                self._map.put(decoded)
                del decoded  # frees its memory while this thread waits
            self._python_s = time.thread_time()
        self._map.finish()
        if error is not None:
            raise error

    def _make_room(self, step: int) -> None:
        cache = self._cache
        if cache is not None and cache.eviction is not None:
            first = self._pending[0].rows.plan.step if self._pending else step
            cache.eviction.make_room(cache.store, epoch=self._epoch, step=first)

    def _may_start(self, step: int) -> bool:
        """Return False if another batch can be finished while the bytes of `step` are on their way, else True."""
        return not self._pending or self._ahead is None or self._ahead.is_there(step)

    def _deliver(self, decoded: DecodedBatch, batch: Batch) -> None:
        """Run the last stages in the thread that has the batch."""
        self._channel.put((self._last.run(decoded, batch), decoded.rows.plan.step + 1))
        self._samples += len(decoded)
        self.batch_bytes = decoded.nbytes

    def _give_up(self) -> None:
        """Stop the feeding thread wherever it waits: no more batches are wanted."""
        self._channel.stop()
        with self._lock:
            self._engine.cancel()

    def _retire(self) -> BaseException | None:
        """End the other threads and cancel batches that nobody will take. Return their error, if any."""
        with self._lock:
            self._engine.cancel()
        self._pending.clear()
        self._python.join()
        error = self._map.close()
        with self._lock:
            self._core = self._engine.counters()
            self._engine.close()
        self._assembly.close()
        self._decoder.close()
        if self._ahead is not None:
            self._ahead.close()
        return error

    # --- autotuning ---

    def readings(self) -> Observation:
        with self._lock:
            idle_ns = self._engine.idle_ns if self._core is None else self._core["idle"][0]
        return Observation(
            feed_wait_s=self._channel.statistics().producer_wait_s,
            idle_s=idle_ns / 1e9,
            consumer_cpu_s=time.thread_time(),
            batch_bytes=self.batch_bytes,
        )

    def set(self, setting: Setting) -> int | None:
        with self._lock:
            if self._core is not None:
                return None
            threads = self._engine.set_threads(setting.threads)
        self.set_prefetch(setting.prefetch)
        return threads

    # --- statistics ---

    def stats(self) -> Stats:
        """Return the counts so far, or the final ones once closed. Not for a forked child."""
        with self._lock:
            core = self._core if self._core is not None else self._engine.counters()
        stages = stages_of(self._recipe, core, self._decoder, self._map, self._last)
        if self._decoder.device is not None:
            stages["device"] = self._decoder.device.meter.stats()
        ended = self._ended if self._ended is not None else time.perf_counter()
        cache, before = self._cache, self._cache_before
        counts = delivery_counts(self._channel, self.bad, self._recipe)
        counts["feed_wait_s"] -= self._before.feed_wait_s
        return Stats(
            **counts,
            samples=self._samples,
            wall_s=ended - self._started,
            python_s=self._python_s + self._map.python_s,
            idle_s=core["idle"][0] / 1e9 - self._before.idle_s,
            threads=self._tuned.setting.threads,
            batch_bytes=self.batch_bytes,
            retries=core["retry"][1],
            map_workers=self._recipe.map_workers,
            prefetch=self._tuned.setting.prefetch,
            tuned=self._tuner.reasons,
            stages=stages,
            cache=None if cache is None or before is None else (self._cache_after or cache.stats()).since(before),
            fetch=None if self._ahead is None else self._ahead.stats(),
        )
