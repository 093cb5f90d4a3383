"""Hooks: which modules are hooked, and by what."""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING, Callable

from . import (
    batch_sources,
    compiler,
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


# -- from doctor/probe/hooks/libraries/__init__.py: Libraries whose calls are stages: docs/doctor/stages.md says
# which.
#
# Functions are replaced in the module that defines them, as soon as it has been imported, so that whoever takes them
# from
# there by a name of his own has the timed ones.


LIBRARIES: list[tuple[str, Callable[[Probe, ModuleType], None]]] = [
    ("PIL.Image", image_libraries.install_pillow),
    ("PIL.ImageFile", image_libraries.install_pillow_file),
    *((f"PIL.{name}ImagePlugin", image_libraries.install_pillow_plugin) for name in image_libraries.PILLOW_LOADERS),
    ("tarfile", file_libraries.install_tarfile),
    ("zipfile", file_libraries.install_zipfile),
    ("h5py._hl.files", file_libraries.install_hdf5_files),
    ("h5py._hl.group", file_libraries.install_hdf5_groups),
    ("h5py._hl.dataset", file_libraries.install_hdf5_datasets),
    ("lmdb", file_libraries.install_lmdb),
    ("cv2", image_libraries.install_opencv),
    ("torchvision.io.image", image_libraries.install_torchvision_io),
    ("torchvision.io.video", image_libraries.install_torchvision_io),
    ("torchvision.transforms.transforms", image_libraries.install_torchvision_transforms),
    ("torchvision.transforms.functional", image_libraries.install_torchvision_functional),
    ("torchvision.transforms.v2", image_libraries.install_torchvision_transforms_v2),
    ("torchvision.transforms.v2.functional", image_libraries.install_torchvision_functional_v2),
    ("albumentations.core.transforms_interface", image_libraries.install_albumentations),
    ("imageio.v2", image_libraries.install_imageio),
    ("imageio.v3", image_libraries.install_imageio),
    ("tokenizers", image_libraries.install_tokenizers),
    ("transformers.tokenization_utils_base", image_libraries.install_transformers),
    ("transformers.image_processing_utils", image_libraries.install_image_processing),
    ("numpy", file_libraries.install_numpy),
    ("torch.serialization", file_libraries.install_torch),
    ("torch.utils.data._utils.fetch", file_libraries.install_files),
    ("concurrent.futures._base", file_libraries.install_futures),
    ("multiprocessing.pool", file_libraries.install_pool),
    ("fcntl", file_libraries.install_locks),
    ("headrace.dropins.image_reader", file_libraries.install_decoding),
    ("headrace.dropins.image_reader", file_libraries.install_image_reader),
    ("headrace.dropins.image_reader", file_libraries.install_read_images),
    ("headrace.dropins.indexed_archive", file_libraries.install_indexed_archives),
    ("headrace.dropins.indexed_tar", file_libraries.install_indexed_tar),
    ("headrace.dropins.indexed_zip", file_libraries.install_indexed_zip),
]


# -- from doctor/probe/hooks/__init__.py: Which modules are hooked, by what. A hook's file is named after what it
# hooks.


HOOKS: list[tuple[str, Callable[[Probe, ModuleType], None]]] = [
    ("sys", lifecycle.watch_process),
    ("os", lifecycle.watch_forks),
    ("torch", lifecycle.watch_torch),
    ("torch", training_calls.install_optimizers),
    ("torch", device.install_cuda),
    ("torch", device.install_ranges),
    ("torch", training_calls.watch_end),
    ("torch", batch_sources.install_search),
    ("torch", training_calls.install_backward),
    ("torch", training_calls.install_collectives),
    ("torch.serialization", lifecycle.watch_torch_save),
    ("torch.jit._serialization", lifecycle.watch_torch_save),
    ("torch.jit._script", lifecycle.watch_script_module),
    ("torch.package.package_exporter", lifecycle.watch_package),
    ("safetensors", lifecycle.watch_safetensors),
    ("cv2", lifecycle.watch_imwrite),
    ("h5py._hl.files", lifecycle.watch_hdf5),
    ("torch.utils.data.dataloader", dataloader.install_dataloader),
    ("torchdata.stateful_dataloader.stateful_dataloader", dataloader.install_stateful),
    ("torch.amp.grad_scaler", training_calls.install_scaler),
    ("torch.cuda.amp.grad_scaler", training_calls.install_scaler),
    ("torch.optim.lr_scheduler", training_calls.install_schedulers),
    ("torch.nn.parallel.data_parallel", training_calls.watch_data_parallel),
    ("deepspeed.runtime.engine", training_calls.watch_deepspeed),
    ("torch._dynamo.eval_frame", compiler.install_compiler),
    ("queue", own_loaders.watch_queues),
    ("headrace.device.prefetcher", own_loaders.watch_prefetcher),
    ("headrace.loader.position", own_loaders.watch_loader),
    ("headrace.dropins.thread_loader.thread_dataloader", own_loaders.watch_thread_loader),
    ("headrace.dropins.thread_loader.batch_task", own_loaders.watch_thread_tasks),
    *((module, batch_sources.watch_library) for module in batch_sources.SOURCE_LIBRARIES),
    ("multiprocessing.util", lifecycle.watch_children),
    ("torch.utils.data._utils.fetch", fetchers.install_fetchers),
    ("torch.utils.data._utils.worker", worker_queues.install_workers),
    ("torchdata.stateful_dataloader.worker", worker_queues.install_workers),
    *LIBRARIES,
]
"""A module's name, and what to call with it once it has been imported, in this order."""
