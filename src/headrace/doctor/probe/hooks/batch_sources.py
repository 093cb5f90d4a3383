"""Batches that come from no DataLoader: from iterators of libraries, or from a function that the loop calls.

Iterators of known libraries are hooked on import. If steps run and no batch was received, the return values of the
loop's calls show which call returns batches (`source_watch`), and that call is hooked from then on. A note names a
source that cannot be hooked, such as a running generator; its wait is part of `not seen`.
"""

from __future__ import annotations

import sys
from types import FunctionType, ModuleType
from typing import Any

from ..patches import Patches
from ..training.training import TrainingObserver
from .source_calls import SourceCalls, SourceLibrary, is_no_batch
from .source_watch import BatchSource, SourceWatch

SOURCE_LIBRARIES: dict[str, SourceLibrary] = {
    "nvidia.dali.plugin.pytorch": SourceLibrary(
        ("DALIGenericIterator.__next__", "DALIRaggedIterator.__next__"),
        settings=("_pipes.0.num_threads", "_pipes.0.prefetch_queue_depth", "_pipes.0.device_id"),
    ),
    "nvidia.dali.pipeline": SourceLibrary(
        ("Pipeline.run",), settings=("num_threads", "prefetch_queue_depth", "device_id")
    ),
    "spdl.pipeline._pipeline": SourceLibrary(("PipelineIterator.__next__", "Pipeline.get_item")),
    "spdl.dataloader._dataloader": SourceLibrary(("DataLoader.__iter__",), settings=("_num_threads", "_buffer_size")),
    "spdl.dataloader._pytorch_dataloader": SourceLibrary(
        ("PyTorchDataLoader.__iter__",), settings=("_num_workers", "_buffer_size")
    ),
    "spdl.dataloader._cache_dataloader": SourceLibrary(("CacheDataLoader.__iter__",)),
    "spdl.pipeline._iter_utils._subprocess": SourceLibrary(("_SubprocessIterable.__iter__",)),
    "grain._src.python.data_loader": SourceLibrary(
        ("DataLoaderIterator.__next__",),
        iterable="DataLoader.__iter__",
        settings=(
            "_data_loader._multiprocessing_options.num_workers",
            "_data_loader._read_options.num_threads",
            "_data_loader._read_options.prefetch_buffer_size",
        ),
    ),
    "tensorflow.python.data.ops.iterator_ops": SourceLibrary(("OwnedIterator.__next__",)),
    "tensorflow.python.data.ops.dataset_ops": SourceLibrary(("NumpyIterator.__next__", "_NumpyIterator.__next__")),
    "webdataset.pipeline": SourceLibrary(("DataPipeline.__iter__",), ahead=0),
    "ffcv.loader.epoch_iterator": SourceLibrary(
        ("EpochIterator.__next__",), settings=("loader.num_workers", "loader.batches_ahead")
    ),
    "torchdata.nodes.loader": SourceLibrary(("LoaderIterator.__next__",), iterable="Loader.__iter__"),
}
"""Methods that return batches, by the module that defines them."""
SOURCE_FAMILIES: dict[str, tuple[str, str]] = {
    "grain": ("grain._src.python.dataset.dataset", "DatasetIterator"),
}
"""Module and name of base classes with a `__next__` in each subclass, by the package that imports them all.

Only the outermost call counts.
"""
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
    is_hooked = source.owner is not None and patches.around(source.owner, source.attribute, calls.call)

    def say() -> None:
        if not calls.has_given:
            where = f"{source.name} ({source.file}:{source.line})"
            training.say("not-seen", f"Batches come from {where}: the wait for them was not seen.")

    if not is_hooked:
        say()
    elif source.is_generator:
        training.at_finish.append(say)


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
            iterable, _, begin = library.iterable.partition(".")
            if path == library.methods[0] and isinstance(getattr(module, iterable, None), type):
                patches.around(getattr(module, iterable), begin, calls.call)


def install_source_family(patches: Patches, training: TrainingObserver, package: ModuleType) -> None:
    """Hook all classes of one of SOURCE_FAMILIES."""
    module, name = SOURCE_FAMILIES[package.__name__]
    base = getattr(sys.modules.get(module), name, None)
    kinds: list[Any] = [base] if isinstance(base, type) else []
    calls = SourceCalls(training, f"{package.__name__}.{name}", SourceLibrary(()))
    for kind in kinds:  # the list grows
        kinds += [one for one in kind.__subclasses__() if one not in kinds]
        if isinstance(vars(kind).get("__next__"), FunctionType):
            patches.around(kind, "__next__", calls.call)
