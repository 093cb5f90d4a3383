"""Libraries whose calls are stages: docs/doctor/stages.md says which.

Functions are replaced in the module that defines them, as soon as it has been imported, so that whoever takes them from
there by a name of his own has the timed ones.
"""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING, Callable

from . import (
    albumentations,
    drop_ins,
    files,
    hdf5,
    imageio,
    lmdb,
    opencv,
    pillow,
    tars,
    tokenizers,
    torchvision,
    waits,
    zips,
)

if TYPE_CHECKING:
    from ...probe import Probe

LIBRARIES: list[tuple[str, Callable[[Probe, ModuleType], None]]] = [
    ("PIL.Image", pillow.install_image),
    ("PIL.ImageFile", pillow.install_file),
    *((f"PIL.{name}ImagePlugin", pillow.install_plugin) for name in pillow.LOADERS),
    ("tarfile", tars.install),
    ("zipfile", zips.install),
    ("h5py._hl.files", hdf5.install_files),
    ("h5py._hl.group", hdf5.install_groups),
    ("h5py._hl.dataset", hdf5.install_datasets),
    ("lmdb", lmdb.install),
    ("cv2", opencv.install),
    ("torchvision.io.image", torchvision.install_io),
    ("torchvision.io.video", torchvision.install_io),
    ("torchvision.transforms.transforms", torchvision.install_transforms),
    ("torchvision.transforms.functional", torchvision.install_functional),
    ("torchvision.transforms.v2", torchvision.install_transforms_v2),
    ("torchvision.transforms.v2.functional", torchvision.install_functional_v2),
    ("albumentations.core.transforms_interface", albumentations.install),
    ("imageio.v2", imageio.install),
    ("imageio.v3", imageio.install),
    ("tokenizers", tokenizers.install),
    ("transformers.tokenization_utils_base", tokenizers.install_transformers),
    ("transformers.image_processing_utils", tokenizers.install_image_processing),
    ("numpy", files.install_numpy),
    ("torch.serialization", files.install_torch),
    ("torch.utils.data._utils.fetch", files.install),
    ("concurrent.futures._base", waits.install_futures),
    ("multiprocessing.pool", waits.install_pool),
    ("fcntl", waits.install_locks),
    ("headrace.compat.images.decoding", drop_ins.install_decoding),
    ("headrace.compat.images.reader", drop_ins.install_reader),
    ("headrace.compat.images.batch", drop_ins.install_batch),
    ("headrace.compat.archives.indexed_archive", drop_ins.install_archives),
    ("headrace.compat.archives.indexed_tar", drop_ins.install_tar),
    ("headrace.compat.archives.indexed_zip", drop_ins.install_zip),
]
