"""`StepActor`: the Ray actor that makes steps on another machine."""

from __future__ import annotations

import importlib.metadata
import socket
import threading
import time
import warnings
from contextlib import suppress
from dataclasses import replace
from queue import Empty, SimpleQueue
from typing import Any

from headrace import _core
from headrace.loader.batch_memory import ProcessBlocks
from headrace.loader.decoding.pixels import all_parts
from headrace.loader.ray_workers.cluster import CALLS
from headrace.loader.ray_workers.made_step import Parts, SourceCounts, StepSource, unpicklable
from headrace.loader.recipe import Recipe


class StepActor:
    """Sources of steps in an actor's process. Ray calls it from `CALLS` threads and ends it by killing the process."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._lock, self._number = threading.Lock(), -1
        self._sources: list[StepSource] = []
        self._warned: SimpleQueue[tuple[str, str]] = SimpleQueue()
        warnings.showwarning = self._note

    def _note(self, message: Any, category: type[Warning], *rest: Any, **named: Any) -> None:
        self._warned.put((category.__name__, str(message)))

    def begin(self, recipe: Recipe, number: int) -> tuple[str, str]:
        """Begin a pass, after all calls of the last one. Return the machine's name and its versions.

        Passes that ended before the actor had started may be begun late: a pass of a lower `number` is left out.
        """
        with self._lock:
            if number > self._number:
                self._number = number
                self._start(recipe)
        return socket.gethostname(), core_versions()

    def _start(self, recipe: Recipe) -> None:
        for source in self._sources:
            source.close()
        self._began, self._cpu_s = time.perf_counter(), time.process_time()
        recipe = replace(recipe, threads=self._threads)
        memory = ProcessBlocks(most_idle=CALLS * max(1, len(all_parts(recipe.images))))
        self._sources = [StepSource(recipe, memory) for _ in range(CALLS)]
        self._idle: SimpleQueue[StepSource] = SimpleQueue()
        for source in self._sources:
            self._idle.put(source)

    def make(self, epoch: int, step: int) -> Parts:
        source = self._idle.get()
        try:
            made = source.make(epoch, step)
        finally:
            self._idle.put(source)
        warned = []
        with suppress(Empty):
            while True:
                warned.append(self._warned.get_nowait())
        made = replace(made, warned=tuple(warned), counts=self._counts())
        try:
            return made.pack()
        except Exception as error:  # the user's values may raise anything
            return replace(made, batch=None, error=unpicklable(error)).pack()

    def _counts(self) -> SourceCounts:
        both = sum((source.counts() for source in self._sources), SourceCounts())
        return replace(both, cpu_s=time.process_time() - self._cpu_s, wall_s=time.perf_counter() - self._began)


def core_versions() -> str:
    """Return the versions of Headrace and its codecs, which have to be the same on all machines."""
    return f"headrace {importlib.metadata.version('headrace')}, {_core.codec_versions()}"
