"""Which modules are hooked, by what. A hook's file is named after what it hooks."""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING, Callable

from . import (
    backward,
    batch_sources_old,
    compiler,
    cuda,
    dataloader,
    engines,
    fetchers,
    handoffs,
    lifecycle,
    optimizer,
    own_loaders,
    ranges,
    saving,
    scaler,
    schedulers,
    training_calls,
    worker_queues,
)
from .libraries import LIBRARIES

if TYPE_CHECKING:
    from ..probe import Probe

HOOKS: list[tuple[str, Callable[[Probe, ModuleType], None]]] = [
    ("sys", lifecycle.watch_process),
    ("os", lifecycle.watch_forks),
    ("torch", lifecycle.watch_torch),
    ("torch", optimizer.install),
    ("torch", cuda.install),
    ("torch", ranges.install),
    ("torch", engines.watch_end),
    ("torch", batch_sources_old.install),
    ("torch", backward.install),
    ("torch", training_calls.install),
    ("torch.serialization", saving.install_torch),
    ("torch.jit._serialization", saving.install_torch),
    ("torch.jit._script", saving.install_script_module),
    ("torch.package.package_exporter", saving.install_package),
    ("safetensors", saving.install_safetensors),
    ("cv2", saving.install_opencv),
    ("h5py._hl.files", saving.install_hdf5),
    ("torch.utils.data.dataloader", dataloader.install),
    ("torchdata.stateful_dataloader.stateful_dataloader", dataloader.install_stateful),
    ("torch.amp.grad_scaler", scaler.install),
    ("torch.cuda.amp.grad_scaler", scaler.install),
    ("torch.optim.lr_scheduler", schedulers.install),
    ("torch.nn.parallel.data_parallel", engines.watch_data_parallel),
    ("deepspeed.runtime.engine", engines.watch_deepspeed),
    ("torch._dynamo.eval_frame", compiler.install),
    ("queue", handoffs.watch_queues),
    ("headrace.device.prefetcher", handoffs.watch_prefetcher),
    ("headrace.loader.position", own_loaders.watch_loader),
    ("headrace.dropins.thread_loader.thread_dataloader", own_loaders.watch_thread_loader),
    ("headrace.dropins.thread_loader.batch_task", own_loaders.watch_thread_tasks),
    *((module, batch_sources_old.watch_library) for module in batch_sources_old.LIBRARIES),
    ("multiprocessing.util", lifecycle.watch_children),
    ("torch.utils.data._utils.fetch", fetchers.install),
    ("torch.utils.data._utils.worker", worker_queues.install),
    ("torchdata.stateful_dataloader.worker", worker_queues.install),
    *LIBRARIES,
]
"""A module's name, and what to call with it once it has been imported, in this order."""
