"""Headrace keeps GPUs fed in PyTorch training."""

from headrace._core import Limits
from headrace.data import Dataset, open
from headrace.errors import HeadraceError
from headrace.fields import IMAGENET, Image, Label, Normalize, Raw
from headrace.loader import Loader
from headrace.view import (
    CenterCrop,
    Letterbox,
    RandomCrop,
    RandomHorizontalFlip,
    RandomResizedCrop,
    RandomVerticalFlip,
    Resize,
)

__version__ = "0.1.0"

__all__ = [
    "IMAGENET",
    "CenterCrop",
    "Dataset",
    "HeadraceError",
    "Image",
    "Label",
    "Letterbox",
    "Limits",
    "Loader",
    "Normalize",
    "RandomCrop",
    "RandomHorizontalFlip",
    "RandomResizedCrop",
    "RandomVerticalFlip",
    "Raw",
    "Resize",
    "open",
]
