"""Headrace keeps GPUs fed in PyTorch training."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from headrace import compat
from headrace._core import Limits
from headrace.buckets import Buckets, Budget
from headrace.data import Dataset
from headrace.errors import HeadraceError
from headrace.fields import (
    IMAGENET,
    Array,
    Boxes,
    Depth,
    Geometry,
    Image,
    Keypoints,
    Label,
    Mask,
    Normalize,
    Normals,
    Quantiles,
    Raw,
    Text,
)
from headrace.loader import Loader
from headrace.mixing import mix
from headrace.opening import open_dataset as open
from headrace.packing import Pack
from headrace.random_scale import RandomScale
from headrace.view import (
    CenterCrop,
    Letterbox,
    RandomCrop,
    RandomHorizontalFlip,
    RandomResizedCrop,
    RandomVerticalFlip,
    Resize,
)

if TYPE_CHECKING:
    from headrace import distributed, doctor
    from headrace.compat import (
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
    from headrace.memory.fit_budget import fit_budget

__version__ = "0.1.0"

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
    "Keypoints",
    "Label",
    "Letterbox",
    "Limits",
    "Loader",
    "Mask",
    "Normalize",
    "Normals",
    "Pack",
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


def __getattr__(name: str) -> Any:
    """The drop-ins and what needs torch, imported when they are asked for: `import headrace` brings no torch."""
    if name in ("distributed", "doctor"):
        return import_module(f"headrace.{name}")
    if name == "fit_budget":
        return import_module("headrace.memory.fit_budget").fit_budget
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(compat, name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
