"""`Image`: a picture for people's eyes, resampled with antialiasing."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass
from typing import Literal, TypeAlias

from headrace.errors import UsageError
from headrace.view import MAX_SIDE_PX

DType: TypeAlias = Literal["uint8", "float32", "float16", "bfloat16"]
Floats: TypeAlias = Literal["float32", "float16", "bfloat16"]
Mode: TypeAlias = Literal["RGB", "L"]
Filter: TypeAlias = Literal["triangle", "nearest"]

DTYPES: tuple[DType, ...] = ("uint8", "float32", "float16", "bfloat16")


@dataclass(frozen=True)
class Normalize:
    """Per-channel `(value - mean) / std`, on values of 0…1. Three numbers each."""

    mean: tuple[float, float, float]
    std: tuple[float, float, float]

    def __post_init__(self) -> None:
        for name in ("mean", "std"):
            values = tuple(getattr(self, name))
            if len(values) != 3 or not all(math.isfinite(value) for value in values):
                raise UsageError(f"Normalize: expected {name} to be 3 finite numbers, got {values!r}")
        if any(value <= 0 for value in self.std):
            raise UsageError(f"Normalize: expected every std above 0, got {self.std!r}")


IMAGENET = Normalize(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))
"""Statistics that models trained on ImageNet expect."""


@dataclass(frozen=True)
class Image:
    """An image column: decoded, cut by the sample's view, resampled.

    In the batch: [N, C, H, W] of `dtype`, C = 3 for mode "RGB" and 1 for "L". Memory is channels-last unless
    `channels_last` is False. uint8 holds 0…255; floats hold 0…1, or what `normalize` makes of that. Alpha is
    dropped, palettes are looked up, of 16 bits a channel the high byte is taken.

    `dct_scaling` lets a JPEG be decoded at 1/2, 1/4 or 1/8 where its window is at least that much larger than the
    output: faster, and the only option that changes pixels for speed. `exif` turns the image as its EXIF orientation
    says (JPEG). `filter` "triangle" is antialiased bilinear, as Pillow's BILINEAR; "nearest" is nearest-exact.
    `shrink_to` lets the pixels be taken from a copy of the image whose short side is at most that many pixels: what is
    cut stays the same, its detail is bounded. With `cache=` that copy is what is kept, where the view is random.
    `source` names the column where it is not the field's own name.
    """

    _: KW_ONLY
    source: str | None = None
    dtype: DType = "uint8"
    normalize: Normalize | None = None
    mode: Mode = "RGB"
    filter: Filter = "triangle"
    channels_last: bool = True
    dct_scaling: bool = True
    exif: bool = False
    shrink_to: int | None = None

    def __post_init__(self) -> None:
        for name, allowed in (("dtype", DTYPES), ("mode", ("RGB", "L")), ("filter", ("triangle", "nearest"))):
            if getattr(self, name) not in allowed:
                raise UsageError(f"Image: expected {name} to be one of {allowed}, got {getattr(self, name)!r}")
        if self.shrink_to is not None and (type(self.shrink_to) is not int or not 0 < self.shrink_to <= MAX_SIDE_PX):
            raise UsageError(
                f"Image: expected shrink_to to be None or the pixels of a short side, 1 to {MAX_SIDE_PX}, got "
                f"{self.shrink_to!r}; take about 1.2 times the size that the view cuts"
            )
        if self.normalize is not None and self.dtype == "uint8":
            raise UsageError('Image: normalize gives fractions, got dtype="uint8"; use dtype="float32"')
        if self.normalize is not None and self.mode == "L":
            raise UsageError('Image: normalize has three channels, got mode="L"; use batch_map= to normalise grey')

    @property
    def channels(self) -> int:
        return 3 if self.mode == "RGB" else 1
