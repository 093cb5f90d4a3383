"""`RayRunner`: one pass over an epoch, whose steps Ray actors make.

One thread, "headrace-ray", submits steps to the actors, takes results in order, and copies them out of Ray's object
store. It makes steps itself while no actor has started, and after the last one is lost.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections import deque
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, field, replace
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError

from headrace.errors import UsageError, warn_caller
from headrace.loader.assembly import Cancelled
from headrace.loader.batch_memory import ProcessBlocks
from headrace.loader.ray_workers.cluster import CALLS, RayCluster, kill
from headrace.loader.ray_workers.made_step import MadeStep, Parts, SourceCounts, StepSource, unpack, warning_class
from headrace.loader.ray_workers.step_actor import StepActor, core_versions
from headrace.loader.recipe import Batch, Recipe
from headrace.loader.runner import PassResources, delivery_counts
from headrace.loader.stats import STAGES, RayStats, StageStats, Stats
from headrace.system import THREAD_PREFIX, Channel, Closed, ProcessOrigin, close_at_exit, in_own_thread

_pass_numbers = itertools.count()
_logger = logging.getLogger("headrace")

START_S = 30.0
"""Time after which a log line reports that no actor has started: a cluster's free CPUs take seconds."""


@dataclass(eq=False)
class _Actor:
    """Actor, and its calls that may still run."""

    handle: Any
    versions: Future[tuple[str, str]]
    """Machine and versions, once the actor has begun the pass."""
    calls: list[Future[Parts]] = field(default_factory=list)
    counts: SourceCounts = field(default_factory=SourceCounts)

    @classmethod
    def begin(cls, recipe: Any, cluster: RayCluster) -> _Actor:
        """Return an idle or a new actor that begins a pass. `recipe`: reference to it in Ray's object store."""
        cpus = cluster.cpus_per_actor
        options = {"num_cpus": cpus, "max_concurrency": CALLS, "max_restarts": 0, "scheduling_strategy": "SPREAD"}
        try:
            handle = cluster.idle.pop()
        except IndexError:
            actor: Any = ray.remote(StepActor)
            handle = actor.options(**options).remote(cpus)
        return cls(handle, handle.begin.remote(recipe, next(_pass_numbers)).future())

    @property
    def load(self) -> int:
        self.calls = [call for call in self.calls if not call.done()]
        return len(self.calls)

    def make(self, epoch: int, step: int) -> Future[Parts]:
        call: Future[Parts] = self.handle.make.remote(epoch, step).future()  # it fetches the result as well
        self.calls.append(call)
        return call


@dataclass(eq=False)
class _Step:
    """Step in flight; without an actor, it waits for one."""

    number: int
    actor: _Actor | None = None
    call: Future[Parts] | None = None


class RayRunner:
    """Batches of one epoch from one step on, made by actors. It owns its thread and the actors; `close` ends them."""

    def __init__(
        self, recipe: Recipe, shared: PassResources, cluster: RayCluster, *, prefetch: int, epoch: int, step: int
    ) -> None:
        if cluster.origin.is_elsewhere:
            raise UsageError(
                "workers: expected a pass in the process that made the Loader, got one in a fork of it, where Ray does "
                "not work; make the Loader there, or start the process with 'spawn'"
            )
        self._recipe = recipe
        self._shared = shared
        self._cluster = cluster
        self._prefetch = prefetch
        self._epoch = epoch
        self._first_step = step
        self._origin = ProcessOrigin()
        self._started = time.perf_counter()
        self._ended: float | None = None
        self.batch_bytes = 0
        self.bad = shared.bad_samples(recipe)
        self._samples = 0
        self._python_s = 0.0
        self._tally = RayStats()
        self._past = SourceCounts()
        self._warned: set[tuple[str, str]] = set()
        self._told_alone = False
        self._channel: Channel[tuple[Batch, int]] = Channel(prefetch)
        self._pending: deque[_Step] = deque()  # owned by the feeding thread, as are the actors
        self._local: StepSource | None = None
        self._closing = False
        self._awaited: Future[Parts] | None = None
        self._actors = self._start_actors()
        self._thread = threading.Thread(target=self._run, name=f"{THREAD_PREFIX}ray", daemon=True)
        self._thread.start()
        close_at_exit(self)

    def _start_actors(self) -> list[_Actor]:
        try:
            shared = ray.put(self._recipe)
        except Exception as error:  # what the user's functions refer to may raise anything
            raise UsageError(
                f"workers: expected a dataset and fields that can be pickled, got some that cannot "
                f"({type(error).__name__}: {error})"
            ) from error
        return [_Actor.begin(shared, self._cluster) for _ in range(self._cluster.actors)]

    def take(self) -> tuple[Batch, int]:
        return self._channel.take()

    @property
    def held_batches(self) -> int | None:
        """Batches in memory that the consumer holds: each has one block."""
        memory = self._shared.memory
        return memory.held() if isinstance(memory, ProcessBlocks) else None

    @property
    def foreign(self) -> bool:
        return self._origin.is_elsewhere

    def close(self, timeout_s: float | None = None) -> None:
        """End the actors, drop what is in flight, and join the thread. Does nothing in a forked child.

        With a timeout, a thread that is not done by then ends on its own.
        """
        if self.foreign:
            return
        if self._ended is None:
            self._ended = time.perf_counter()
        self._closing = True  # before the lines that wake the thread: it looks here once it has set what they read
        self._channel.close()
        awaited, local = self._awaited, self._local
        if awaited is not None:
            awaited.cancel()
        if local is not None:
            local.cancel()
        if not in_own_thread():
            self._thread.join(timeout_s)

    # --- the feeding thread ---

    def _run(self) -> None:
        error: BaseException | None = None
        at_end = False
        try:
            self._feed()
            at_end = True
        except (Closed, Cancelled):
            pass
        except BaseException as caught:
            error = caught
        try:
            self._retire(at_end=at_end)
        finally:
            self._channel.finish(error)
            del error  # its traceback holds this frame

    def _feed(self) -> None:
        step, steps = self._first_step, self._recipe.plan.steps
        while step < steps or self._pending:
            if step < steps and self._channel.reserve(block=not self._pending):
                self._pending.append(_Step(step))
                step += 1
            else:
                self._assign()
                made = self._made(self._pending[0])
                if made is not None:  # else its actor is lost
                    self._deliver(self._pending.popleft().number, made)
                    del made  # frees its memory while this thread waits
            self._python_s = time.thread_time()

    def _assign(self) -> None:
        """Give steps to the actors that have started, the least busy first. The oldest step goes to any actor."""
        ready = [actor for actor in list(self._actors) if self._has_started(actor)]
        self._tally = replace(self._tally, actors=len(ready))
        most = -(-self._prefetch // max(1, len(self._actors)))
        for step in self._pending:
            if step.call is not None or not ready:
                continue
            actor = min(ready, key=lambda each: each.load)
            if actor.load < most or step is self._pending[0]:
                step.actor, step.call = actor, actor.make(self._epoch, step.number)

    def _has_started(self, actor: _Actor) -> bool:
        if not actor.versions.done():
            return False
        try:
            machine, versions = actor.versions.result()
        except RayTaskError as error:
            why = str(error).rstrip().splitlines()[-1]
            raise UsageError(
                "workers: expected data, fields and functions that can be restored on an actor's machine, got some "
                f"that cannot ({why}); install the modules that they need there, or pass them with Ray's runtime_env"
            ) from error
        except RayError as error:
            self._lose(actor, error)
            return False
        if versions != core_versions():
            raise UsageError(
                f"workers: expected {core_versions()} on every machine, got {versions} on {machine}; install the same"
            )
        return True

    def _made(self, step: _Step) -> MadeStep | None:
        """Return a step's result; None if its actor was lost."""
        if step.call is None or step.actor is None:
            return self._made_here(step)
        began = time.perf_counter()
        self._awaited = step.call
        try:
            if self._closing:
                raise Closed
            parts = step.call.result()
        except CancelledError:
            raise Closed from None
        except RayTaskError:  # an error of the actor's own code, not of the machine
            raise
        except RayError as error:
            self._lose(step.actor, error)
            return None
        finally:
            self._awaited = None
        came = time.perf_counter()
        made = unpack(parts, self._shared.memory)
        step.actor.counts = made.counts
        tally = self._tally
        self._tally = replace(
            tally,
            steps=tally.steps + 1,
            bytes=tally.bytes + sum(len(part) for part in parts),
            wait_s=tally.wait_s + came - began,
            copy_s=tally.copy_s + time.perf_counter() - came,
        )
        return made

    def _made_here(self, step: _Step) -> MadeStep:
        if not self._told_alone and (not self._actors or time.perf_counter() - self._started > START_S):
            self._told_alone = True
            _logger.warning(
                "No Ray actor makes batches: %s. This process makes them. This is logged once a pass.",
                f"{self._tally.lost} were lost" if not self._actors else "the cluster has started none",
            )
        if self._local is None:
            self._local = StepSource(self._recipe, self._shared.memory)
        if self._closing:
            raise Closed
        made = self._local.make(self._epoch, step.number)
        self._tally = replace(self._tally, local_steps=self._tally.local_steps + 1)
        return made

    def _lose(self, actor: _Actor, error: RayError) -> None:
        """Drop an actor, and free its steps for others."""
        kill(actor.handle)  # it may still run if only the connection was lost
        self._actors.remove(actor)
        self._past += actor.counts
        freed = [step for step in self._pending if step.actor is actor]
        for step in freed:
            step.actor = step.call = None
        self._tally = replace(self._tally, lost=self._tally.lost + 1, redone=self._tally.redone + len(freed))
        _logger.warning("A Ray actor was lost; its %d steps are made again: %s", len(freed), error)

    def _deliver(self, step: int, made: MadeStep) -> None:
        for category, message in made.warned:
            if (category, message) not in self._warned:
                self._warned.add((category, message))
                warn_caller(message, warning_class(category))
        for each in made.bad:
            self.bad.add(each.sample, each.error, epoch=each.epoch, position=each.position)
        for what, count in made.bad_counts.items():
            self.bad.count(what, count)
        made.raise_error("a Ray actor")
        assert made.batch is not None, "a step has a batch or an error"
        self._channel.put((made.batch, step + 1))
        self._samples += made.samples
        self.batch_bytes = made.nbytes

    def _retire(self, *, at_end: bool) -> None:
        """End the source of this process, and the actors, except for another pass if this one came to its end."""
        for actor in list(self._actors):
            self._past += actor.counts
            if at_end:  # also one that has not started, for passes shorter than its start
                self._cluster.idle.append(actor.handle)
            else:
                kill(actor.handle)
        self._actors.clear()
        self._pending.clear()
        if self._local is not None:
            self._past += self._local.counts()
            self._local.close()
            self._local = None

    # --- statistics ---

    def stats(self) -> Stats:
        """Return the counts so far, or the final ones once closed. Not for a forked child."""
        cpus = self._cluster.cpus_per_actor
        local = self._local
        actors = sum((actor.counts for actor in list(self._actors)), SourceCounts())
        total = actors + self._past + (SourceCounts() if local is None else local.counts())
        ended = self._ended if self._ended is not None else time.perf_counter()
        return Stats(
            **delivery_counts(self._channel, self.bad, self._recipe),
            samples=self._samples,
            wall_s=ended - self._started,
            python_s=self._python_s,
            idle_s=max(0.0, total.wall_s * cpus - total.cpu_s),
            threads=self._tally.actors * cpus or self._recipe.threads,
            batch_bytes=self.batch_bytes,
            retries=total.retries,
            prefetch=self._prefetch,
            stages={name: StageStats(0.0, 0, 0) for name in STAGES} | total.stages,
            ray=replace(self._tally, cpu_s=total.cpu_s),
        )
