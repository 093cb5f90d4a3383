"""Batches of libraries without a DataLoader: their calls are timed, replayed with copies, and repeated to drain."""

from __future__ import annotations

import functools
import sys
import weakref
from multiprocessing.process import current_process
from threading import get_ident
from types import ModuleType
from typing import Any, Callable, NamedTuple

from ..look.leaves import BatchShapes
from ..patches import Followed, Function, Patches
from ..stack_sampler import call_site
from ..training.loader_sources import HeldIterator
from ..training.replay import is_grad_enabled, replayed
from ..training.state import ObservedPass
from ..training.steps import FetchedBatch
from ..training.training import TrainingObserver, now


class SourceLibrary(NamedTuple):
    """Sources of batches in one module of a library."""

    methods: tuple[str, ...]
    """Methods that return a batch, or an `__iter__`."""
    ahead: int = 1
    """1 if threads or processes of the library prefetch batches, else 0."""
    settings: tuple[str, ...] = ()
    """Attribute paths, from the called object, of settings such as the thread count.

    The last part is the setting's name.
    """


SOURCE_LIBRARIES: dict[str, SourceLibrary] = {
    "nvidia.dali.plugin.pytorch": SourceLibrary(
        ("DALIGenericIterator.__next__", "DALIRaggedIterator.__next__"),
        settings=("_pipes.0.num_threads", "_pipes.0.prefetch_queue_depth", "_pipes.0.device_id"),
    ),
    "nvidia.dali.pipeline": SourceLibrary(
        ("Pipeline.run",), settings=("num_threads", "prefetch_queue_depth", "device_id")
    ),
    "webdataset.pipeline": SourceLibrary(("DataPipeline.__iter__",), ahead=0),
}
"""Methods that return batches, by the module that defines them."""


def install_source_library(patches: Patches, training: TrainingObserver, module: ModuleType) -> None:
    """Hook one of SOURCE_LIBRARIES, as far as the installed version has its names."""
    library = SOURCE_LIBRARIES[module.__name__]
    for path in library.methods:
        kind, _, method = path.partition(".")
        owner = getattr(module, kind, None)
        if isinstance(owner, type):
            name = f"{module.__name__.partition('.')[0]}.{kind}"
            patches.around(owner, method, SourceCalls(training, name, library).call)


class _SourcePass:
    """Batches of one source with, or without, gradients: a pass as long as the run.

    It stores the latest call that returned a batch, without keeping the called iterator alive.
    """

    def __init__(self, pass_: ObservedPass) -> None:
        self.pass_ = pass_
        self._call: tuple[Function, list[Callable[[], Any]], dict[str, Any]] | None = None

    def called(self, original: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.pass_.index += 1
        self._call = original, [_weakly(value) for value in args], kwargs

    def again(self, begin: Callable[[], Any]) -> Any:
        """Repeat the call; at its end, continue with the result of `begin()`.

        Raises StopIteration if there is no more, or the called object no longer exists.
        """
        if self._call is None:
            raise StopIteration
        original, held, kwargs = self._call
        args = [value() for value in held]
        if any(value is None for value in args):
            raise StopIteration
        try:
            return original(*args, **kwargs)
        except StopIteration:
            begun = begin()  # None for a source that may restart by itself, as DALI's iterators do
            if begun is not None:
                args[0] = begun
                self._call = original, [lambda: begun, *held[1:]], kwargs
            return original(*args, **kwargs)


def _weakly(value: Any) -> Callable[[], Any]:
    """Return a weak reference to a value, or a function that returns a value that allows none, such as a string."""
    try:
        return weakref.ref(value)
    except TypeError:
        return lambda: value


class SourceCalls:
    """Calls of one source, which is described by name and call site at its first batch."""

    def __init__(self, training: TrainingObserver, name: str, library: SourceLibrary) -> None:
        self._training, self._name, self._library = training, name, library
        self._settings: dict[str, Any] = {}
        self._shapes = BatchShapes(training.evidence.name)
        self._begin: tuple[Function, Callable[[], Any]] | None = None
        """Function that returned the latest iterator, and its argument."""
        self._passes: dict[tuple[str, bool], _SourcePass] = {}
        """Passes by evidence file and gradient mode. A fork starts with none."""

    def call(self, original: Function, *args: Any, **kwargs: Any) -> Any:
        if original.__name__ != "__iter__":
            return self._timed(original, *args, **kwargs)
        if self._is_elsewhere():
            return original(*args, **kwargs)
        self._settings = self._settings or _settings_of(args[0], self._library.settings)
        self._begin = original, _weakly(args[0])
        given = original(*args, **kwargs)
        take = self._reworked if _has_loader(args[0]) else functools.partial(self._timed, next)
        return Followed(given, take)

    def _reworked(self, generator: Any) -> Any:
        """Return the next item of a pipeline that transforms a loader's batches: data work from here on."""
        self._training.rework()
        try:
            return next(generator)
        except StopIteration:
            self._training.work.drop()
            raise

    def _is_elsewhere(self) -> bool:
        """Return True if this thread does not train, or is inside another part of a step."""
        thread = self._training.thread
        is_busy = get_ident() != thread.observed or thread.is_fetching or self._training.state.steps.is_open
        return is_busy or current_process().daemon  # in a worker, a pipeline makes batches for its trainer

    def _timed(self, original: Function, *args: Any, **kwargs: Any) -> Any:
        """Count the call as the wait for a batch; during replay, return a copy instead."""
        call = functools.partial(original, *args, **kwargs)
        if self._is_elsewhere():
            return call()
        replay, counter = self._training.replay, self._training.counter
        known = self._passes.get((self._training.evidence.path, is_grad_enabled()))
        if replay.is_on and known is not None and replay.serves(known.pass_):
            return replayed(self._training, known.pass_, call)
        passes = counter.passes

        def got(given: Any, start: int, end: int) -> None:
            if passes == counter.passes:  # otherwise a DataLoader began inside it
                self._note(given, start, end, args).called(original, args, kwargs)

        loader = None if known is None else known.pass_.loader
        return self._training.wait("batch source", call, got, loader=loader)

    def _note(self, given: Any, start: int, end: int, args: tuple[Any, ...]) -> _SourcePass:
        """Write the batch, and return its pass."""
        size, shape = self._shapes.of(given)
        with_grad = is_grad_enabled()
        key = (self._training.evidence.path, with_grad)
        source = self._passes.get(key)
        if source is None:
            self._settings = self._settings or _settings_of(next(iter(args), None), self._library.settings)
            source = self._passes[key] = _SourcePass(self._new_pass(start))
        batch = FetchedBatch(
            *(source.pass_.number, source.pass_.index + 1, start, end),
            bytes=size,
            shape=shape,
            loader=source.pass_.loader,
        )
        self._training.record_batch(batch, with_grad)
        if with_grad:
            held = HeldIterator(source, source.pass_, self._take)
            self._training.feed(source.pass_, given, batch, lambda: held)
        return source

    def _take(self, source: _SourcePass, pass_: ObservedPass) -> FetchedBatch:
        """Take the next batch without delivering it. Waits inside the call are not counted."""
        thread = self._training.thread
        is_here = get_ident() == thread.observed
        start = now()
        thread.is_fetching |= is_here
        try:
            source.again(self._begun_anew)
        finally:
            thread.is_fetching &= not is_here
        pass_.index += 1
        return FetchedBatch(pass_.number, pass_.index, start, now())

    def _begun_anew(self) -> Any:
        """Return a new iterator, or None if its origin is unknown or other ranks, which it may involve, train."""
        original, iterable = self._begin or (None, lambda: None)
        if original is None or iterable() is None or self._training.group.world_size() > 1:
            return None
        return original(iterable())

    def _new_pass(self, start: int) -> ObservedPass:
        counter = self._training.counter
        number, loader = counter.next_pass(), counter.next_loader()
        file, line = call_site()
        facts = {"source": self._name, "dataset": self._name, "file": file, "line": line, **self._settings}
        begun = self._training.clock.us(start)
        write = self._training.evidence.write
        write(("loader", loader, begun, facts), ("pass", number, loader, begun, begun, number, []))
        return ObservedPass(
            self._training, number, number, False, loader=loader, owner=lambda: None, makers=self._library.ahead
        )


def _settings_of(owner: Any, paths: tuple[str, ...]) -> dict[str, Any]:
    """Return a library's settings by name. A setting without its attribute in this version is left out."""
    found: dict[str, Any] = {}
    for path in paths:
        value = owner
        try:
            for name in path.split("."):
                value = value[int(name)] if name.isdigit() else getattr(value, name)
        except Exception:  # of another version, or closed meanwhile
            continue
        if value is None or type(value) in (int, str):
            found[path.rpartition(".")[2].lstrip("_")] = value
    return {"settings": found} if found else {}


def _has_loader(pipeline: Any) -> bool:
    """Return True if the pipeline contains a torch DataLoader, whose batches are hooked separately."""
    loader = sys.modules["torch"].utils.data.DataLoader
    parts = list(vars(pipeline).values()) if hasattr(pipeline, "__dict__") else []
    parts += [one for part in parts if type(part) in (list, tuple) for one in part]
    return any(isinstance(part, loader) for part in parts)
