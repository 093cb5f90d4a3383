"""Batches that come from no DataLoader: from iterators of libraries, or from a function that the loop calls.

Iterators of known libraries are hooked on import. If steps run and no batch was received, the return values of the
loop's calls show which call returns batches (`source_watch`), and that call is hooked from then on. A note names a
source that cannot be hooked, such as a running generator; its wait is part of `not seen`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any, Callable, NamedTuple

from ..batch_shapes import bytes_and_shape
from ..patches import Patches
from ..stack_sampler import is_users
from ..training.training import TrainingObserver
from .source_calls import SourceCalls, SourceLibrary, is_no_batch

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
MOST_LOOKS = 5
"""Backward passes between which the loop is watched. Some begin before their own first batch."""


def install_search(patches: Patches, training: TrainingObserver, torch: ModuleType) -> None:
    """Watch the training thread between backward passes until a source of batches is known."""
    looks = 0
    watch: SourceWatch | None = None

    def look() -> None:
        nonlocal looks, watch
        found = watch.end() if watch is not None else []
        watch = None
        looks += 1
        if found or training.counter.passes or training.elsewhere.threads or looks > MOST_LOOKS:
            training.seek = None
            for source in found:
                _hook(patches, training, source)
            return
        watch = SourceWatch(is_no_batch)

    def seek() -> None:
        try:
            look()
        except Exception as error:
            training.seek = None
            training.fault("search for what gives batches", error)

    def end() -> None:
        if watch is not None:
            watch.end()

    training.seek = seek
    training.at_finish.append(end)


def _hook(patches: Patches, training: TrainingObserver, source: BatchSource) -> None:
    calls = SourceCalls(training, source.name, SourceLibrary((), 0), (source.file, source.line))
    if source.owner is None or not patches.around(source.owner, source.attribute, calls.call):
        where = f"{source.name} ({source.file}:{source.line})"
        training.say("not-seen", f"Batches come from {where}: the wait for them was not seen.")


def install_source_library(patches: Patches, training: TrainingObserver, module: ModuleType) -> None:
    """Hook one of SOURCE_LIBRARIES. If another version uses other names, the watch of the loop finds the source."""
    library = SOURCE_LIBRARIES[module.__name__]
    for path in library.methods:
        kind, _, method = path.partition(".")
        owner = getattr(module, kind, None)
        if isinstance(owner, type):
            name = f"{module.__name__.partition('.')[0]}.{kind}"
            calls = SourceCalls(training, name, library)
            patches.around(owner, method, calls.call)


MOST_FUNCTIONS = 8
"""User functions around the backward pass that are watched, innermost first."""
MOST_EVENTS = 1_000_000
"""Calls and returns after which a watch ends. Some steps make millions."""
_NOT_SOURCES = ("torch", "builtins", "math", "time", "tqdm")
"""Packages without functions that return batches."""


class BatchSource(NamedTuple):
    """Function that the loop calls for a batch."""

    name: str
    owner: Any
    """Module or class in which the function can be replaced; None if there is none, as for a nested function."""
    attribute: str
    file: str
    line: int


class SourceWatch:
    def __init__(self, is_none: Callable[[Any], bool]) -> None:
        """`is_none` returns True for a value with tensors that is no batch."""
        self._is_none = is_none
        self._callers = _callers()
        self._left = MOST_EVENTS
        self._given: set[FrameType] = set()
        """Calls in progress that received a value returned since the watch began."""
        self._made: dict[int, Any] = {}
        """Values returned since the watch began, by id."""
        self._found: dict[CodeType, BatchSource] = {}
        if self._callers and sys.getprofile() is None:
            sys.setprofile(self._watch)

    def end(self) -> list[BatchSource]:
        if sys.getprofile() == self._watch:
            sys.setprofile(None)
        self._made.clear()
        self._given.clear()
        return list(self._found.values())

    def _watch(self, frame: FrameType, event: str, value: Any) -> None:
        self._left -= 1
        if self._left < 0:
            sys.setprofile(None)
        caller = frame.f_back
        if caller is None or caller.f_code not in self._callers or frame.f_code in self._callers:
            return
        try:
            if event == "call":
                if any(id(one) in self._made for argument in frame.f_locals.values() for one in _parts(argument)):
                    self._given.add(frame)
            elif event == "return" and value is not None:
                self._returned(frame, caller, value)
        except Exception:  # a user value may do anything
            sys.setprofile(None)

    def _returned(self, frame: FrameType, caller: FrameType, value: Any) -> None:
        is_derived = frame in self._given
        self._given.discard(frame)
        if bytes_and_shape(value)[0] is None:
            return
        self._made.update((id(one), one) for one in _parts(value))
        package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        if not is_derived and package not in _NOT_SOURCES and not self._is_none(value):
            self._found.setdefault(frame.f_code, _source_of(frame, caller))


def _callers() -> set[CodeType]:
    """Return the code of the user functions on the calling thread's stack."""
    frame: FrameType | None = sys._getframe(2)
    callers: set[CodeType] = set()
    while frame is not None and len(callers) < MOST_FUNCTIONS:
        if is_users(frame.f_code.co_filename):
            callers.add(frame.f_code)
        frame = frame.f_back
    return callers


def _parts(value: Any) -> Iterator[Any]:
    """Yield a value, and the members of dicts and sequences two levels deep."""
    yield value
    for inner in _items(value):
        yield inner
        yield from _items(inner)


def _items(value: Any) -> Any:
    return value.values() if type(value) is dict else value if type(value) in (tuple, list) else ()


def _source_of(frame: FrameType, caller: FrameType) -> BatchSource:
    """Return the place at which a frame's function can be replaced: its module, or the class of its first argument."""
    code, name = frame.f_code, frame.f_code.co_name
    place = (caller.f_code.co_filename, caller.f_lineno)
    module = sys.modules.get(frame.f_globals.get("__name__", ""))
    if _is_of(vars(module).get(name) if module is not None else None, code):
        return BatchSource(name, module, name, *place)
    first = frame.f_locals.get(code.co_varnames[0]) if code.co_argcount else None
    kind: type = first if isinstance(first, type) else type(first)
    owner = next((one for one in kind.__mro__ if _is_of(vars(one).get(name), code)), None)
    shown = kind.__name__ if name.startswith("__") else f"{kind.__name__}.{name}"
    return BatchSource(name if owner is None else shown, owner, name, *place)


def _is_of(value: Any, code: CodeType) -> bool:
    return isinstance(value, FunctionType) and value.__code__ is code
