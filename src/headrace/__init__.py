"""Headrace keeps GPUs fed in PyTorch training."""

from __future__ import annotations

from importlib import import_module as _import_module
from typing import TYPE_CHECKING as _TYPE_CHECKING

from headrace import errors as errors
from headrace.errors import HeadraceError

if _TYPE_CHECKING:
    from headrace import distributed, doctor
    from headrace._core import Limits
    from headrace.data import Dataset, open
    from headrace.device import fit_budget
    from headrace.dropins import (
        BucketBatchSampler,
        DevicePrefetcher,
        ImageReader,
        IndexedTar,
        IndexedZip,
        ResumableBatchSampler,
        ResumableSampler,
        ThreadDataLoader,
        cached,
        decode_image,
        read_images,
        sample_random,
        shared_list,
    )
    from headrace.fields import (
        IMAGENET,
        Array,
        Boxes,
        Depth,
        Geometry,
        Image,
        InstanceMasks,
        Keypoints,
        Label,
        Mask,
        Normalize,
        Normals,
        Quantiles,
        Raw,
        Text,
    )
    from headrace.loader import Loader, mix
    from headrace.plan import Buckets, Budget, SequencePacking
    from headrace.views import (
        CenterCrop,
        Letterbox,
        RandomCrop,
        RandomHorizontalFlip,
        RandomResizedCrop,
        RandomScale,
        RandomVerticalFlip,
        Resize,
    )

__version__ = "0.1.0"

_HOMES = {
    "headrace._core": ("Limits",),
    "headrace.plan": ("Buckets", "Budget", "SequencePacking"),
    "headrace.dropins": (
        "BucketBatchSampler",
        "DevicePrefetcher",
        "ImageReader",
        "IndexedTar",
        "IndexedZip",
        "ResumableBatchSampler",
        "ResumableSampler",
        "ThreadDataLoader",
        "cached",
        "decode_image",
        "read_images",
        "sample_random",
        "shared_list",
    ),
    "headrace.data": ("Dataset", "open"),
    "headrace.fields": (
        "IMAGENET",
        "Array",
        "Boxes",
        "Depth",
        "Geometry",
        "Image",
        "InstanceMasks",
        "Keypoints",
        "Label",
        "Mask",
        "Normalize",
        "Normals",
        "Quantiles",
        "Raw",
        "Text",
    ),
    "headrace.loader": ("Loader", "mix"),
    "headrace.device": ("fit_budget",),
    "headrace.views": (
        "CenterCrop",
        "Letterbox",
        "RandomCrop",
        "RandomHorizontalFlip",
        "RandomResizedCrop",
        "RandomScale",
        "RandomVerticalFlip",
        "Resize",
    ),
}
"""Modules, and the names that each gives. They are imported when they are asked for: a loader's two hundred modules
take 150 ms, also in a process that only wants a drop-in or the doctor, and some need torch. No name is kept here: the
doctor puts functions of its own in place of some where they are defined, and takes them back."""

_PACKAGES = ("compat", "data", "dropins", "fields")
"""Attributes too, though no public names: `import headrace` used to import them."""

__all__ = [
    "IMAGENET",
    "Array",
    "Boxes",
    "BucketBatchSampler",
    "Buckets",
    "Budget",
    "CenterCrop",
    "Dataset",
    "Depth",
    "DevicePrefetcher",
    "Geometry",
    "HeadraceError",
    "Image",
    "ImageReader",
    "IndexedTar",
    "IndexedZip",
    "InstanceMasks",
    "Keypoints",
    "Label",
    "Letterbox",
    "Limits",
    "Loader",
    "Mask",
    "Normalize",
    "Normals",
    "Quantiles",
    "RandomCrop",
    "RandomHorizontalFlip",
    "RandomResizedCrop",
    "RandomScale",
    "RandomVerticalFlip",
    "Raw",
    "Resize",
    "ResumableBatchSampler",
    "ResumableSampler",
    "SequencePacking",
    "Text",
    "ThreadDataLoader",
    "cached",
    "decode_image",
    "distributed",
    "doctor",
    "fit_budget",
    "mix",
    "open",
    "read_images",
    "sample_random",
    "shared_list",
]


_RENAMED = {"Pack": "SequencePacking"}
"""Old public names, which warn for one release."""


def __getattr__(name: str) -> object:
    if name in _RENAMED:
        import warnings

        warnings.warn(f"headrace.{name} is called headrace.{_RENAMED[name]} now", DeprecationWarning, stacklevel=2)
        name = _RENAMED[name]
    if name not in __all__ and name not in _PACKAGES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    for module, names in _HOMES.items():
        if name in names:
            return getattr(_import_module(module), name)
    return _import_module(f"headrace.{name}")  # a package of its own, such as distributed


def __dir__() -> list[str]:
    return sorted([*__all__, "__all__", "__doc__", "__file__", "__name__", "__path__", "__version__", "errors"])
