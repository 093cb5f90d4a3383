"""Installation of the probe's hooks, and of the remedies that a proof injects around them.

Functions are replaced in the module that defines them right after its import, so a later `from ... import` gets the
hooked function.
"""

from __future__ import annotations

import os
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Any, Callable

from ..look.digests import ReceivedDigests
from ..look.first_batches import ModelInputs
from ..scratch_saves import ScratchSaves
from . import (
    batch_making,
    dataloader,
    file_libraries,
    image_libraries,
    lifecycle,
    loop_calls,
    remote_libraries,
    training_calls,
)

if TYPE_CHECKING:
    from ..probe import Probe

Hook = tuple[str, Callable[[ModuleType], object]]
"""Module name, and function to call with the module once it is imported."""


def attach(probe: Probe) -> None:
    """Register hooks for torch and for every library with stages, to be installed on import."""
    probe.imports.attach()
    if probe.settings.digests or probe.settings.orders:
        probe.digests = ReceivedDigests(probe.training.state, probe.evidence, probe.fault)
        for module, install in probe.digests.hooks(probe.patches):
            probe.when_imported(module, install)
    if probe.settings.scratch:
        saves = ScratchSaves(os.path.join(probe.settings.scratch, "saves"), probe.note, probe.fault)
        probe.training.replay.before_copies.append(saves.begin)
        for module, install in saves.hooks(probe.patches):
            probe.when_imported(module, install)
        if probe.settings.proves or probe.settings.shortens:
            saves.begin()
    _inject(probe, "BENEATH")
    for module, install in hooks_of(probe):
        probe.when_imported(module, install)
    _inject(probe, "AROUND")
    probe.patches.rebind()


def _inject(probe: Probe, where: str) -> None:
    """Inject the remedies of one layer. Only a run that proves remedies imports them."""
    if probe.settings.changes:
        from .. import remedies

        remedies.inject(probe, getattr(remedies, where))


def hooks_of(probe: Probe) -> list[Hook]:
    """List all hooks; hooks of one module are installed in this order."""
    patches, training, batches, timer = probe.patches, probe.training, probe.batches, probe.timer
    evidence, clock, last, fault = probe.evidence, probe.clock, probe.last, probe.fault
    write_facts = partial(lifecycle.write_facts, evidence, clock, probe.used)
    loaders = (patches, training)
    inputs = None if probe.settings.observe else ModelInputs(evidence, clock, compares=training.short.is_on)
    training.inputs = inputs
    fetches = (timer, batches, training, None if probe.settings.observe else evidence)
    workers = partial(batch_making.install_workers, patches, batches, evidence, clock, fault)
    return [
        ("sys", partial(lifecycle.install_exit, last)),
        ("os", partial(lifecycle.install_forks, patches, probe.forking, fault)),
        ("torch", partial(lifecycle.install_torch, patches, evidence, last, clock, write_facts)),
        ("torch", partial(training_calls.install_optimizers, patches, training, last)),
        ("torch", partial(loop_calls.install_device, patches, training, write_facts)),
        ("torch", partial(training_calls.install_end, training)),
        ("torch", partial(loop_calls.install_model_calls, patches, training, inputs)),
        ("torch", partial(training_calls.install_backward, patches, training)),
        ("torch", partial(training_calls.install_collectives, patches, training)),
        ("torch.utils.data.dataloader", partial(dataloader.install_dataloader, *loaders)),
        ("torchdata.stateful_dataloader.stateful_dataloader", partial(dataloader.install_stateful, *loaders)),
        ("torch.amp.grad_scaler", partial(training_calls.install_scaler, patches, training)),
        ("torch.cuda.amp.grad_scaler", partial(training_calls.install_scaler, patches, training)),
        ("torch.nn.parallel.data_parallel", partial(training_calls.install_data_parallel, patches, training)),
        ("torch._dynamo.eval_frame", training_calls.install_compiler),
        ("queue", partial(loop_calls.install_queue, patches, training)),
        ("headrace.device.prefetcher", partial(loop_calls.install_prefetcher, patches, training)),
        *(
            (module, partial(loop_calls.install_own_loader, *names, probe.when_imported, *loaders))
            for module, names in loop_calls.OWN_LOADERS.items()
        ),
        ("multiprocessing.util", partial(lifecycle.install_children, patches, last)),
        ("torch.utils.data._utils.fetch", partial(batch_making.install_fetchers, *fetches)),
        ("torch.utils.data._utils.worker", workers),
        ("torchdata.stateful_dataloader.worker", workers),
        *library_hooks_of(probe),
    ]


def library_hooks_of(probe: Probe) -> list[Hook]:
    """List the hooks of libraries with calls that are stages, as documented in docs/doctor/internals.md."""
    timer, opened = probe.timer, probe.batches.opened
    calls = {**file_libraries.FILE_CALLS, **image_libraries.IMAGE_CALLS, **remote_libraries.REMOTE_CALLS}
    counter = remote_libraries.RequestCounter(timer, probe.batches, probe.fault)
    return [
        *((module, partial(install, counter)) for module, install in remote_libraries.REMOTE_HOOKS),
        # These count a path or mark a call under the timed stand-in.
        ("h5py._hl.files", partial(file_libraries.install_hdf5, timer, opened)),
        ("cv2", partial(image_libraries.install_opencv, timer, opened, probe.used)),
        *((module, partial(file_libraries.time_calls, timer, named)) for module, named in calls.items()),
        *((module, partial(image_libraries.install_pillow, timer)) for module in image_libraries.PILLOW_LOADERS),
        ("tarfile", partial(file_libraries.install_tarfile, timer, opened)),
        ("torchvision.io.image", partial(image_libraries.install_torchvision_io, timer, opened)),
        ("torchvision.io.video", partial(image_libraries.install_torchvision_io, timer, opened)),
        *(
            (f"torchvision.transforms.{name}", partial(install, timer))
            for name, install in image_libraries.TORCHVISION_TRANSFORMS.items()
        ),
        ("torch.utils.data._utils.fetch", partial(file_libraries.install_files, timer, opened)),
    ]
