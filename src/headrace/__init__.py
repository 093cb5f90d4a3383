"""Headrace keeps GPUs fed in PyTorch training."""

from __future__ import annotations

from importlib import import_module as _import_module
from itertools import chain as _chain
from typing import TYPE_CHECKING as _TYPE_CHECKING

from headrace import errors as errors
from headrace.errors import HeadraceError

if _TYPE_CHECKING:
    from headrace import distributed as distributed
    from headrace import doctor as doctor
    from headrace import metrics as metrics
    from headrace._core import Limits as Limits
    from headrace.augment import AugMix as AugMix
    from headrace.augment import AutoAugment as AutoAugment
    from headrace.augment import ColorJitter as ColorJitter
    from headrace.augment import CutMix as CutMix
    from headrace.augment import ElasticTransform as ElasticTransform
    from headrace.augment import GaussianBlur as GaussianBlur
    from headrace.augment import MixUp as MixUp
    from headrace.augment import RandAugment as RandAugment
    from headrace.augment import RandomAdjustSharpness as RandomAdjustSharpness
    from headrace.augment import RandomAffine as RandomAffine
    from headrace.augment import RandomApply as RandomApply
    from headrace.augment import RandomAutocontrast as RandomAutocontrast
    from headrace.augment import RandomChannelPermutation as RandomChannelPermutation
    from headrace.augment import RandomChoice as RandomChoice
    from headrace.augment import RandomEqualize as RandomEqualize
    from headrace.augment import RandomErasing as RandomErasing
    from headrace.augment import RandomGrayscale as RandomGrayscale
    from headrace.augment import RandomInvert as RandomInvert
    from headrace.augment import RandomOrder as RandomOrder
    from headrace.augment import RandomPerspective as RandomPerspective
    from headrace.augment import RandomPhotometricDistort as RandomPhotometricDistort
    from headrace.augment import RandomPosterize as RandomPosterize
    from headrace.augment import RandomRotation as RandomRotation
    from headrace.augment import RandomSolarize as RandomSolarize
    from headrace.augment import TimmPolicy as TimmPolicy
    from headrace.augment import TrivialAugmentWide as TrivialAugmentWide
    from headrace.data import Dataset as Dataset
    from headrace.data import open as open
    from headrace.device import fit_budget as fit_budget
    from headrace.dropins import BucketBatchSampler as BucketBatchSampler
    from headrace.dropins import DevicePrefetcher as DevicePrefetcher
    from headrace.dropins import ImageReader as ImageReader
    from headrace.dropins import IndexedTar as IndexedTar
    from headrace.dropins import IndexedZip as IndexedZip
    from headrace.dropins import ResumableBatchSampler as ResumableBatchSampler
    from headrace.dropins import ResumableSampler as ResumableSampler
    from headrace.dropins import ThreadDataLoader as ThreadDataLoader
    from headrace.dropins import cached as cached
    from headrace.dropins import decode_image as decode_image
    from headrace.dropins import read_images as read_images
    from headrace.dropins import sample_random as sample_random
    from headrace.dropins import shared_list as shared_list
    from headrace.fields import IMAGENET as IMAGENET
    from headrace.fields import Array as Array
    from headrace.fields import Boxes as Boxes
    from headrace.fields import Depth as Depth
    from headrace.fields import Geometry as Geometry
    from headrace.fields import Image as Image
    from headrace.fields import InstanceMasks as InstanceMasks
    from headrace.fields import Key as Key
    from headrace.fields import Keypoints as Keypoints
    from headrace.fields import Label as Label
    from headrace.fields import Mask as Mask
    from headrace.fields import Normalize as Normalize
    from headrace.fields import Normals as Normals
    from headrace.fields import Quantiles as Quantiles
    from headrace.fields import Raw as Raw
    from headrace.fields import Text as Text
    from headrace.fields.translation import Translated as Translated
    from headrace.fields.translation import from_albumentations as from_albumentations
    from headrace.fields.translation import from_timm as from_timm
    from headrace.fields.translation import from_torchvision as from_torchvision
    from headrace.loader import Loader as Loader
    from headrace.loader import mix as mix
    from headrace.plan import Buckets as Buckets
    from headrace.plan import Budget as Budget
    from headrace.plan import RepeatFactor as RepeatFactor
    from headrace.plan import SequencePacking as SequencePacking
    from headrace.plan import Windowed as Windowed
    from headrace.views import CenterCrop as CenterCrop
    from headrace.views import FiveCrop as FiveCrop
    from headrace.views import Letterbox as Letterbox
    from headrace.views import RandomCrop as RandomCrop
    from headrace.views import RandomHorizontalFlip as RandomHorizontalFlip
    from headrace.views import RandomResizedCrop as RandomResizedCrop
    from headrace.views import RandomScale as RandomScale
    from headrace.views import RandomVerticalFlip as RandomVerticalFlip
    from headrace.views import Resize as Resize
    from headrace.views import TenCrop as TenCrop
    from headrace.views import Tiles as Tiles


__version__ = "0.1.0"

_HOMES = {
    "headrace.fields.translation": ("Translated", "from_albumentations", "from_timm", "from_torchvision"),
    "headrace._core": ("Limits",),
    "headrace.augment": (
        "AugMix",
        "AutoAugment",
        "ColorJitter",
        "CutMix",
        "ElasticTransform",
        "GaussianBlur",
        "MixUp",
        "RandAugment",
        "RandomAdjustSharpness",
        "RandomAffine",
        "RandomApply",
        "RandomAutocontrast",
        "RandomChannelPermutation",
        "RandomChoice",
        "RandomEqualize",
        "RandomErasing",
        "RandomGrayscale",
        "RandomInvert",
        "RandomOrder",
        "RandomPerspective",
        "RandomPhotometricDistort",
        "RandomPosterize",
        "RandomRotation",
        "RandomSolarize",
        "TimmPolicy",
        "TrivialAugmentWide",
    ),
    "headrace.plan": ("Buckets", "Budget", "RepeatFactor", "SequencePacking", "Windowed"),
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
        "Key",
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
        "FiveCrop",
        "Letterbox",
        "RandomCrop",
        "RandomHorizontalFlip",
        "RandomResizedCrop",
        "RandomScale",
        "RandomVerticalFlip",
        "Resize",
        "TenCrop",
        "Tiles",
    ),
}
"""Public names by module. Names are imported lazily: a loader's two hundred modules take 150 ms, also in a process that
only needs a drop-in or the doctor, and some need torch. Names are not cached here: the doctor patches some functions in
the defining modules and restores them."""

_PACKAGES = ("compat", "data", "dropins", "fields")
"""Packages that remain attributes, though not public: `import headrace` used to import them."""

__all__ = sorted(["HeadraceError", "distributed", "doctor", "metrics", *_chain.from_iterable(_HOMES.values())])


_RENAMED = {"Pack": "SequencePacking"}
"""Deprecated public names, which warn for one release."""


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
