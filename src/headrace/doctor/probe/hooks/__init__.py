"""Hooks: which modules are hooked, by what, and which parts of the probe each hook is given.

Functions are replaced in the module that defines them, as soon as it has been imported, so that whoever takes them from
there by a name of his own has the hooked ones.
"""

from __future__ import annotations

from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Callable

from . import (
    batch_sources,
    dataloader,
    device,
    fetchers,
    file_libraries,
    image_libraries,
    lifecycle,
    own_loaders,
    training_calls,
    worker_queues,
)

if TYPE_CHECKING:
    from ..probe import Probe

__all__ = ["hooks_of", "library_hooks_of"]

Hook = tuple[str, Callable[[ModuleType], object]]
"""A module's name, and what to call with it once it has been imported."""


def hooks_of(probe: Probe) -> list[Hook]:
    """List all hooks, in the order in which those of one module are installed."""
    patches, training, batches, timer = probe.patches, probe.training, probe.batches, probe.timer
    evidence, clock, last, fault = probe.evidence, probe.clock, probe.last, probe.fault
    write_facts = partial(lifecycle.write_facts, evidence, clock, probe.used)
    loaders = (patches, training, probe.comparison, fault)
    scaler = partial(training_calls.install_scaler, patches, training)
    workers = partial(worker_queues.install_workers, patches, batches, evidence, clock, fault)
    source_library = partial(batch_sources.install_source_library, patches, training)
    measured: list[Hook] = []
    if not probe.settings.observe:  # else no scheduler is stepped more often than it would be
        schedulers = partial(training_calls.install_schedulers, patches, training.windows)
        measured.append(("torch.optim.lr_scheduler", schedulers))
    return [
        ("sys", partial(lifecycle.install_exit, last)),
        ("os", partial(lifecycle.install_forks, patches, batches.forking, fault)),
        ("torch", partial(lifecycle.install_torch, patches, evidence, last, clock, probe.note, write_facts)),
        ("torch", partial(training_calls.install_optimizers, patches, training, last)),
        ("torch", partial(device.install_cuda, patches, training, write_facts)),
        ("torch", partial(device.install_ranges, training)),
        ("torch", partial(training_calls.install_end, training)),
        ("torch", partial(batch_sources.install_search, patches, training, fault)),
        ("torch", partial(training_calls.install_backward, patches, training)),
        ("torch", partial(training_calls.install_collectives, patches, training)),
        *((module, partial(lifecycle.install_saves, patches, saves)) for module, saves in lifecycle.SAVES.items()),
        ("torch.utils.data.dataloader", partial(dataloader.install_dataloader, *loaders)),
        (
            "torchdata.stateful_dataloader.stateful_dataloader",
            partial(dataloader.install_stateful, *loaders),
        ),
        ("torch.amp.grad_scaler", scaler),
        ("torch.cuda.amp.grad_scaler", scaler),
        *measured,
        ("torch.nn.parallel.data_parallel", partial(training_calls.install_data_parallel, patches, training)),
        ("deepspeed.runtime.engine", partial(training_calls.install_deepspeed, patches, training)),
        ("torch._dynamo.eval_frame", training_calls.install_compiler),
        ("queue", partial(own_loaders.install_queue, patches, training)),
        ("headrace.device.prefetcher", partial(own_loaders.install_prefetcher, patches, training)),
        *_own_loader_hooks(probe),
        *((module, source_library) for module in batch_sources.SOURCE_LIBRARIES),
        ("multiprocessing.util", partial(lifecycle.install_children, patches, last)),
        (
            "torch.utils.data._utils.fetch",
            partial(
                fetchers.install_fetchers,
                patches,
                timer,
                batches,
                probe.comparison,
                training.thread,
                training.counter,
            ),
        ),
        ("torch.utils.data._utils.worker", workers),
        ("torchdata.stateful_dataloader.worker", workers),
        *library_hooks_of(probe),
    ]


def _own_loader_hooks(probe: Probe) -> list[Hook]:
    """List the hooks on Headrace's own loaders."""
    patches, training, batches = probe.patches, probe.training, probe.batches
    new_hooks = partial(dataloader.LoaderHooks, training, probe.comparison, probe.fault)

    def when_torch(owner: str, iterator: str, module: ModuleType) -> None:
        kinds = {"owner": getattr(module, owner), "iterator": getattr(module, iterator)}
        install = partial(own_loaders.install_own_loader, patches, training, batches, new_hooks, **kinds)
        probe.when_imported("torch", install)

    tasks = partial(own_loaders.install_thread_tasks, patches, probe.timer, batches, probe.evidence, training.counter)
    return [
        # The base of Loader and of mixtures.
        ("headrace.loader.position", partial(when_torch, "LoaderPosition", "LoaderIterator")),
        (
            "headrace.dropins.thread_loader.thread_dataloader",
            partial(when_torch, "ThreadDataLoader", "ThreadLoaderIterator"),
        ),
        ("headrace.dropins.thread_loader.batch_task", tasks),
    ]


def library_hooks_of(probe: Probe) -> list[Hook]:
    """List the hooks on libraries whose calls are stages: docs/doctor/stages.md says which."""
    timer, opened = probe.timer, probe.batches.opened
    looks = image_libraries.DecoderLooks(timer, probe.batches.guard)
    calls = {**file_libraries.FILE_CALLS, **image_libraries.IMAGE_CALLS}
    io = partial(image_libraries.install_torchvision_io, timer, opened)
    return [
        # Within these a path is counted, or a call marked, behind the stand-in that is timed.
        ("h5py._hl.files", partial(file_libraries.install_hdf5, timer, opened)),
        ("cv2", partial(image_libraries.install_opencv, timer, opened, probe.used)),
        *((module, partial(file_libraries.time_calls, timer, calls[module])) for module in calls),
        ("PIL.Image", looks.install),
        ("PIL.ImageFile", looks.install_file),
        *(
            (f"PIL.{name}ImagePlugin", partial(image_libraries.install_pillow_plugin, timer))
            for name in image_libraries.PILLOW_LOADERS
        ),
        ("tarfile", partial(file_libraries.install_tarfile, timer, opened)),
        ("zipfile", partial(file_libraries.install_zipfile, timer)),
        ("torchvision.io.image", io),
        ("torchvision.io.video", io),
        (
            "torchvision.transforms.transforms",
            partial(image_libraries.install_torchvision_transforms, timer),
        ),
        (
            "torchvision.transforms.functional",
            partial(image_libraries.install_torchvision_functional, timer),
        ),
        (
            "torchvision.transforms.v2",
            partial(image_libraries.install_torchvision_transforms_v2, timer),
        ),
        (
            "torchvision.transforms.v2.functional",
            partial(image_libraries.install_torchvision_functional_v2, timer),
        ),
        ("torch.utils.data._utils.fetch", partial(file_libraries.install_files, timer, opened)),
    ]
