"""Per-pixel fields with values that must not be blended: masks, depth maps, normals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import ClassVar, Literal, TypeAlias, get_args

from headrace.errors import UsageError
from headrace.fields.image import Floats, Nearest, check_bool, check_choice, is_number
from headrace.foreign_arguments import KnownArguments

MaskDType: TypeAlias = Literal["uint8", "int16", "int32", "int64"]

MASK_DTYPES: tuple[MaskDType, ...] = get_args(MaskDType)

MOST_FINITE = {"float32": (2 - 2.0**-23) * 2.0**127, "float16": 65504.0, "bfloat16": (2 - 2.0**-7) * 2.0**127}
"""Largest finite value by dtype."""

_LEAST = {"uint8": 0, "int16": -1 << 15, "int32": -1 << 31, "int64": 1 - (1 << 63)}
"""Smallest value by dtype. The core reserves int64's minimum as its "no value" marker (core/dense/mask_target.hpp)."""
_MOST = {"uint8": 255, "int16": (1 << 15) - 1, "int32": (1 << 31) - 1, "int64": (1 << 63) - 1}


@dataclass(frozen=True)
class Mask(KnownArguments, of="field"):
    """Segmentation mask: one class per pixel, a PNG's palette index or grey value. Never blended: see `filter`.

    In the batch: [N, H, W] of `dtype`, as `torch.nn.functional.cross_entropy` takes it (int64, or uint8 and `.long()`
    on the device). Padding is `ignore`. The file's own value for "no class" is unchanged unless `remap` maps it:
    `Mask(ignore=-100, remap={255: -100}, dtype="int64")`.

    `remap` replaces values: a mapping replaces its keys and leaves other values unchanged; a sequence holds the new
    values of 0, 1, 2, … A mask with a value past the end of the sequence is a bad sample. So is a mask with several
    channels, and a JPEG, since JPEG blends values. Grey of 1, 2 or 4 bits is scaled to 0…255, like Pillow's mode "L".
    An EXIF orientation of the mask's own file is applied.

    `filter` names the library whose pixels a resize picks. "nearest" is Pillow's NEAREST, "nearest-exact" torch's: the
    pixel under each output's centre; they differ where a centre lies between two pixels, as at the scale 1.6.
    "nearest-opencv" is OpenCV's INTER_NEAREST, "nearest-torch" torch's "nearest": the pixel under each output's upper
    left corner, up to half an output pixel away.
    """

    exif: ClassVar[bool] = True
    _: KW_ONLY
    source: str | None = None
    ignore: int = 255
    remap: Mapping[int, int] | Sequence[int] | None = None
    dtype: MaskDType = "uint8"
    filter: Nearest = "nearest"

    def __post_init__(self) -> None:
        check_choice(self, "dtype", MASK_DTYPES)
        check_choice(self, "filter", get_args(Nearest))
        self._check_value("ignore", self.ignore)
        if self.remap is None:
            return
        old, new = _pairs(self.remap)
        if not all(type(value) is int and 0 <= value <= 0xFFFF for value in old):
            raise UsageError(f"Mask: expected remap to change values from 0 to 65535, got {self.remap!r}")
        for value in new:
            self._check_value("remap", value)

    def _check_value(self, name: str, value: object) -> None:
        low, high = _LEAST[self.dtype], _MOST[self.dtype]
        if type(value) is not int or not low <= value <= high:
            raise UsageError(
                f"Mask: expected {name} to be an int from {low} to {high} for dtype={self.dtype!r}, got "
                f"{value!r}; name another dtype of {MASK_DTYPES}"
            )


def _pairs(remap: Mapping[int, int] | Sequence[int]) -> tuple[list[object], list[object]]:
    if isinstance(remap, Mapping):
        return list(remap.keys()), list(remap.values())
    if isinstance(remap, Sequence) and not isinstance(remap, str | bytes) and len(remap) <= 1 << 16:
        return list(range(len(remap))), list(remap)
    raise UsageError(f"Mask: expected remap to be a mapping or a sequence of ints, got {type(remap).__name__}")


@dataclass(frozen=True)
class Quantiles(KnownArguments):
    """Linear normalization that maps a depth map's `low` quantile to `range[0]` and its `high` quantile to `range[1]`.

    Quantiles are exact and computed over the valid depths of the whole map, before any view, so a crop does not change
    the normalized depth. They interpolate between order statistics, like torch.quantile's default. `clip` clamps the
    result to `range`. A map with a single depth becomes `range[0]`. Method: Ke et al., "Repurposing diffusion-based
    image generators for monocular depth estimation", CVPR 2024 (Marigold).
    """

    low: float = 0.02
    high: float = 0.98
    _: KW_ONLY
    range: tuple[float, float] = (-1.0, 1.0)
    clip: bool = True

    def __post_init__(self) -> None:
        if not (is_number(self.low) and is_number(self.high) and 0 <= self.low < self.high <= 1):
            raise UsageError(f"Quantiles: expected 0 <= low < high <= 1, got low={self.low!r}, high={self.high!r}")
        bounds = self.range
        if not (isinstance(bounds, tuple | list) and len(bounds) == 2 and all(map(is_number, bounds))):
            raise UsageError(f"Quantiles: expected range to be two finite numbers, got {bounds!r}")
        if bounds[0] == bounds[1]:
            raise UsageError(f"Quantiles: expected range to be two different numbers, got {bounds!r}")
        check_bool("Quantiles", "clip", self.clip)


@dataclass(frozen=True)
class Depth(KnownArguments, of="field"):
    """Depth map: one distance per pixel. Never blended: `filter` is that of `Mask`.

    In the batch: [N, 1, H, W] of `dtype`, the file's value times `scale` (millimetres to metres: 1 / 1000), normalized
    if `normalize` is set. Unless `valid` is False, the batch also has bool [N, 1, H, W] under the field's name +
    "_valid".

    A pixel is invalid if it equals `invalid` in the file, is not finite (in `dtype`: float16 ends at 65,504), or is
    outside `near` to `far` (in units after `scale`; None: no bound). Invalid pixels and padding have the depth
    `invalid`. The core reads depth from 16-bit grey PNG; libraries read float TIFF, PFM, EXR, `.npy` and `.npz`. 8-bit
    files are bad samples. With `normalize`, so is a map without a valid pixel. An EXIF orientation is applied.
    """

    exif: ClassVar[bool] = True
    scale: float = 1.0
    _: KW_ONLY
    source: str | None = None
    invalid: float = 0
    near: float | None = None
    far: float | None = None
    normalize: Quantiles | None = None
    valid: bool = True
    dtype: Floats = "float32"
    filter: Nearest = "nearest"

    def __post_init__(self) -> None:
        if not is_number(self.scale) or self.scale <= 0:
            raise UsageError(f"Depth: expected scale to be a finite number above 0, got {self.scale!r}")
        if not is_number(self.invalid):
            raise UsageError(f"Depth: expected invalid to be a finite number, got {self.invalid!r}; NaN is never valid")
        for name in ("near", "far"):
            if getattr(self, name) is not None and not is_number(getattr(self, name)):
                raise UsageError(f"Depth: expected {name} to be None or a finite number, got {getattr(self, name)!r}")
        if self.near is not None and self.far is not None and self.near >= self.far:
            raise UsageError(f"Depth: expected near below far, got near={self.near!r}, far={self.far!r}")
        if self.normalize is not None and not isinstance(self.normalize, Quantiles):
            raise UsageError(f"Depth: expected normalize to be None or Quantiles(low, high), got {self.normalize!r}")
        check_bool("Depth", "valid", self.valid)
        check_choice(self, "dtype", get_args(Floats))
        check_choice(self, "filter", get_args(Nearest))
        self._expect_held("invalid", self.invalid)
        for bound in () if self.normalize is None else self.normalize.range:
            self._expect_held("normalize.range", bound)

    def _expect_held(self, name: str, value: float) -> None:
        most = MOST_FINITE[self.dtype]
        if abs(value) > most:
            raise UsageError(
                f"Depth: expected {name} to be within what dtype={self.dtype!r} holds, up to {most:g}, got {value!r}; "
                "take another dtype"
            )


@dataclass(frozen=True)
class Normals(KnownArguments, of="field"):
    """Surface normals: one direction per pixel, x to the right and y down, up if `y="up"`. Resampled like a Mask.

    In the batch: [N, 3, H, W] of `dtype`, in channels-last memory. A PNG's red, green and blue bytes 0…255 become
    -1…1; floats from EXR, `.npy` and `.npz` are unchanged. A horizontal flip negates x, a vertical flip negates y; a
    quarter turn and a geometric augmentation rotate (x, y) as they do the image. Padding is 0. An EXIF orientation is
    ignored.
    """

    exif: ClassVar[bool] = False
    _: KW_ONLY
    source: str | None = None
    dtype: Floats = "float32"
    y: Literal["down", "up"] = "down"

    def __post_init__(self) -> None:
        check_choice(self, "dtype", get_args(Floats))
        check_choice(self, "y", ("down", "up"))
