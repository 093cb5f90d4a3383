"""Batches that come from no DataLoader: from iterators of libraries, or from a function that the loop calls.

Iterators of libraries that are known are hooked as these are imported. Where steps are taken and no batch was received,
the loop's own source shows what it calls for one (`source_search`), and that is hooked from then on. A note names what
cannot be hooked, such as a generator that runs already; its wait is part of `not seen`.
"""

from __future__ import annotations

import sys
from types import FrameType, FunctionType, ModuleType
from typing import Any

from ..patches import Patches
from ..stack_sampler import is_users
from ..training.training import TrainingObserver
from .source_calls import SourceCalls, SourceLibrary
from .source_search import BatchSource, sources_in

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
"""What gives batches, by the module that defines it."""
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
            calls = SourceCalls(training, source.name, SourceLibrary((), 0), (source.file, source.line))
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
    for kind in kinds:  # which grows
        kinds += [one for one in kind.__subclasses__() if one not in kinds]
        if isinstance(vars(kind).get("__next__"), FunctionType):
            patches.around(kind, "__next__", calls.call)
