"""Libraries whose calls are stages: docs/doctor/stages.md says which.

Functions are replaced in the module that defines them, as soon as it has been imported, so that whoever takes them from
there by a name of his own has the timed ones.
"""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING, Callable

from .. import file_libraries, image_libraries
from . import albumentations, drop_ins, hdf5, imageio, lmdb, opencv, pillow, tars, tokenizers, waits, zips

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
    ("torchvision.io.image", image_libraries.install_io),
    ("torchvision.io.video", image_libraries.install_io),
    ("torchvision.transforms.transforms", image_libraries.install_transforms),
    ("torchvision.transforms.functional", image_libraries.install_functional),
    ("torchvision.transforms.v2", image_libraries.install_transforms_v2),
    ("torchvision.transforms.v2.functional", image_libraries.install_functional_v2),
    ("albumentations.core.transforms_interface", albumentations.install),
    ("imageio.v2", imageio.install),
    ("imageio.v3", imageio.install),
    ("tokenizers", tokenizers.install),
    ("transformers.tokenization_utils_base", tokenizers.install_transformers),
    ("transformers.image_processing_utils", tokenizers.install_image_processing),
    ("numpy", file_libraries.install_numpy),
    ("torch.serialization", file_libraries.install_torch),
    ("torch.utils.data._utils.fetch", file_libraries.install),
    ("concurrent.futures._base", waits.install_futures),
    ("multiprocessing.pool", waits.install_pool),
    ("fcntl", waits.install_locks),
    ("headrace.compat.images.decoding", drop_ins.install_decoding),
    ("headrace.dropins.image_reader", drop_ins.install_reader),
    ("headrace.compat.images.batch", drop_ins.install_batch),
    ("headrace.dropins.indexed_archive", drop_ins.install_archives),
    ("headrace.dropins.indexed_tar", drop_ins.install_tar),
    ("headrace.dropins.indexed_zip", drop_ins.install_zip),
]
