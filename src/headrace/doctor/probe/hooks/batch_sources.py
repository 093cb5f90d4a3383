"""Batches that come from no DataLoader: what the loop waits for at whatever it calls for one.

Iterators of libraries that are known are hooked as these are imported. Where steps are taken and no batch was received,
the loop's own source shows what it calls for one (`source_search`), and that is hooked from then on. What cannot be
hooked, such as a generator that runs already, is named in a note, and its wait is nobody's part of a step.
"""

from __future__ import annotations

import functools
import sys
from threading import get_ident
from types import FrameType, FunctionType, ModuleType
from typing import Any, Callable

from ..patches import Function, Patches
from ..stack_sampler import call_site, is_users
from ..training.step_records import FetchedBatch
from ..training.training import TrainingObserver
from .batch_shapes import BatchShapes
from .source_search import BatchSource, sources_in

SOURCE_LIBRARIES: dict[str, tuple[str, ...]] = {
    "nvidia.dali.plugin.pytorch": ("DALIGenericIterator.__next__", "DALIRaggedIterator.__next__"),
    "nvidia.dali.pipeline": ("Pipeline.run",),
    "spdl.pipeline._pipeline": ("PipelineIterator.__next__", "Pipeline.get_item"),
    "spdl.dataloader._dataloader": ("DataLoader.__iter__",),
    "spdl.dataloader._pytorch_dataloader": ("PyTorchDataLoader.__iter__",),
    "spdl.dataloader._cache_dataloader": ("CacheDataLoader.__iter__",),
    "spdl.pipeline._iter_utils._subprocess": ("_SubprocessIterable.__iter__",),
    "grain._src.python.data_loader": ("DataLoaderIterator.__next__",),
    "tensorflow.python.data.ops.iterator_ops": ("OwnedIterator.__next__",),
    "tensorflow.python.data.ops.dataset_ops": ("NumpyIterator.__next__", "_NumpyIterator.__next__"),
    "webdataset.pipeline": ("DataPipeline.__iter__",),
    "ffcv.loader.epoch_iterator": ("EpochIterator.__next__",),
    "torchdata.nodes.loader": ("LoaderIterator.__next__",),
}
"""What gives batches, by the module that defines it: a method that gives one, or an `__iter__`."""
SOURCE_FAMILIES: dict[str, tuple[str, str]] = {
    "grain": ("grain._src.python.dataset.dataset", "DatasetIterator"),
}
"""Base classes whose subclasses each have a `__next__` of their own, of which the outermost counts: module and name, by
the package that has them all once it is imported."""
MOST_LOOKS = 5
"""Backward passes at which the loop's source is looked at: some begin before the first batch of their own."""
MOST_FRAMES = 8


def install_search(patches: Patches, training: TrainingObserver, torch: ModuleType) -> None:
    """Look for sources in the training thread whenever a backward pass begins, while none is known."""
    looks = 0

    def look() -> None:
        nonlocal looks
        looks += 1
        if training.counter.passes or training.elsewhere.threads or looks > MOST_LOOKS:
            training.seek = None
            return
        try:
            found = _sources_around()
        except Exception as error:
            training.seek = None
            training.fault("search for what gives batches", error)
            return
        if found:
            training.seek = None
        for source in found:
            calls = _Calls(training, source.name, source.file, source.line)
            if source.owner is None or not patches.around(source.owner, source.attribute, calls.call):
                where = f"{source.name} ({source.file}:{source.line})"
                training.say("not-seen", f"Batches come from {where}: the wait for them was not seen.")

    training.seek = look


def _sources_around() -> list[BatchSource]:
    """Return those of the innermost loop around the caller that has any.

    What a function calls outside of a loop counts where a loop calls it.
    """
    frame: FrameType | None = sys._getframe(1)
    outside: list[BatchSource] = []
    for _ in range(MOST_FRAMES):
        while frame is not None and not is_users(frame.f_code.co_filename):
            frame = frame.f_back
        if frame is None:
            break
        found, is_loop = sources_in(frame)
        if is_loop and (found or outside):
            return outside or found
        outside = outside or found
        frame = frame.f_back
    return []


def install_source_library(patches: Patches, training: TrainingObserver, module: ModuleType) -> None:
    """Hook one of SOURCE_LIBRARIES. Those of another version may lack a name: the loop's source says the rest."""
    for path in SOURCE_LIBRARIES[module.__name__]:
        kind, _, method = path.partition(".")
        owner = getattr(module, kind, None)
        if isinstance(owner, type):
            name = f"{module.__name__.partition('.')[0]}.{kind}"
            patches.around(owner, method, _Calls(training, name, None, None).call)


def install_source_family(patches: Patches, training: TrainingObserver, package: ModuleType) -> None:
    """Hook all classes of one of SOURCE_FAMILIES."""
    module, name = SOURCE_FAMILIES[package.__name__]
    base = getattr(sys.modules.get(module), name, None)
    kinds: list[Any] = [base] if isinstance(base, type) else []
    calls = _Calls(training, f"{package.__name__}.{name}", None, None)
    for kind in kinds:  # which grows
        kinds += [one for one in kind.__subclasses__() if one not in kinds]
        if isinstance(vars(kind).get("__next__"), FunctionType):
            patches.around(kind, "__next__", calls.call)


class _Calls:
    """The calls of one source, which is described once it has given a batch: by its name and where it is called."""

    def __init__(self, training: TrainingObserver, name: str, file: str | None, line: int | None) -> None:
        self._training = training
        self._name = name
        self._place = file, line
        self._shapes = BatchShapes(training.evidence.name)
        self._passes: dict[tuple[str, bool], list[int]] = {}
        """By the evidence and whether gradients were wanted: the pass's number, and how many batches it had."""

    def call(self, original: Function, *args: Any, **kwargs: Any) -> Any:
        """Stand for a call of the source."""
        call = functools.partial(original, *args, **kwargs)
        if original.__name__ != "__iter__":
            return self.timed(call)
        if self._is_elsewhere():
            return call()
        return _Reworked(call(), self._training) if _has_loader(args[0]) else self._followed(call())

    def _is_elsewhere(self) -> bool:
        """Tell whether the calling thread does not train, or is about something that has its own part of a step."""
        thread = self._training.thread
        return get_ident() != thread.observed or thread.is_fetching or self._training.steps.is_open

    def timed(self, call: Callable[[], Any]) -> Any:
        """Count the call as the wait for a batch, if it gives one."""
        if self._is_elsewhere():
            return call()
        counter = self._training.counter
        passes = counter.passes

        def got(given: Any, start: int, end: int) -> None:
            if passes == counter.passes:  # else a DataLoader began within it
                self._note(given, start, end)

        return self._followed(self._training.wait("batch source", call, got))

    def _followed(self, given: Any) -> Any:
        """Put a generator that was just made behind one that times it."""
        if hasattr(type(given), "__next__") and getattr(type(given), "__name__", "") == "generator":
            return _Followed(given, self)
        return given

    def _note(self, given: Any, start: int, end: int) -> None:
        """Write the batch down.

        What holds no tensor is none, unless a library that is known gave it; nor is what has a gradient of its own.
        """
        size, shape = self._shapes.of(given)
        torch = sys.modules.get("torch")
        if torch is None or given is None or (size is None and self._place[0] is not None) or _is_none(given):
            return
        with_grad = bool(torch.is_grad_enabled())
        # A pass for training and one for evaluation, each as long as the run; a fork counts anew.
        key = (self._training.evidence.path, with_grad)
        number = self._passes.setdefault(key, [-1, 0])
        if number[0] < 0:
            number[0] = self._new_pass(start)
        index, number[1] = number[1], number[1] + 1
        batch = FetchedBatch(number[0], index, start, end, None, None, None, None, size, shape)
        self._training.got(batch, with_grad)

    def _new_pass(self, start: int) -> int:
        counter = self._training.counter
        number, loader = counter.next_pass(), counter.next_loader()
        file, line = call_site() if self._place[0] is None else self._place
        facts = {"source": self._name, "dataset": self._name, "file": file, "line": line}
        begun = self._training.clock.us(start)
        write = self._training.evidence.write
        write(("loader", loader, begun, facts), ("pass", number, loader, begun, begun, number, []))
        return number


class _Followed:
    """A generator, whose `next()` is timed; whatever else is asked of it, it is asked of the generator."""

    def __init__(self, generator: Any, calls: _Calls) -> None:
        self._generator = generator
        self._calls = calls

    def __iter__(self) -> _Followed:
        return self

    def __next__(self) -> Any:
        return self._calls.timed(self._generator.__next__)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._generator, name)


class _Reworked:
    """A generator over a loader's batches that makes others of them: work on data, from its `next()` on."""

    def __init__(self, generator: Any, training: TrainingObserver) -> None:
        self._generator = generator
        self._training = training

    def __iter__(self) -> _Reworked:
        return self

    def __next__(self) -> Any:
        self._training.rework()
        try:
            return next(self._generator)
        except StopIteration:
            self._training.work.drop()
            raise

    def __getattr__(self, name: str) -> Any:
        return getattr(self._generator, name)


def _is_none(given: Any) -> bool:
    """Tell whether it is no batch, for all its tensors: a loss, an output, a model, a dataset or what loads one."""
    torch: Any = sys.modules["torch"]
    others = (torch.nn.Module, torch.optim.Optimizer, torch.utils.data.Dataset, torch.utils.data.DataLoader)
    parts = given.values() if type(given) is dict else given if type(given) in (tuple, list) else (given,)
    return any(isinstance(one, others) or (isinstance(one, torch.Tensor) and one.requires_grad) for one in parts)


def _has_loader(pipeline: Any) -> bool:
    """Tell whether a DataLoader of torch's is a part of it, whose batches are seen by themselves."""
    loader = sys.modules["torch"].utils.data.DataLoader
    parts = list(vars(pipeline).values()) if hasattr(pipeline, "__dict__") else []
    parts += [one for part in parts if type(part) in (list, tuple) for one in part]
    return any(isinstance(part, loader) for part in parts)
