"""The `Image` field: decoded and resampled pictures, with antialiasing by default."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Literal, TypeAlias, get_args

from headrace._core import MAX_COPIES
from headrace.augment import Augmentation, compile_augment
from headrace.errors import UsageError
from headrace.foreign_arguments import KnownArguments
from headrace.views import MAX_SIDE_PX, View, compile_view


def is_number(value: object) -> bool:
    """Return True for an int or float in the finite range of a double; False for a bool."""
    most = sys.float_info.max
    return isinstance(value, int | float) and not isinstance(value, bool) and -most <= value <= most


def check_choice(field: object, name: str, allowed: tuple[str, ...]) -> None:
    """Raise UsageError unless the field's argument is one of `allowed`, or a torch or NumPy dtype of that name."""
    if name == "dtype":
        object.__setattr__(field, name, type_name(getattr(field, name)))
    if getattr(field, name) not in allowed:
        raise UsageError(
            f"{type(field).__name__}: expected {name} to be one of {allowed}, got {getattr(field, name)!r}"
        )


def type_name(dtype: object) -> object:
    """Return the name of a torch or NumPy dtype, such as "float32"; return anything else unchanged."""
    home = getattr(dtype if isinstance(dtype, type) else type(dtype), "__module__", "").partition(".")[0]
    if home not in ("torch", "numpy"):
        return dtype
    return dtype.__name__ if isinstance(dtype, type) else str(dtype).removeprefix("torch.")


def check_bool(field: str, name: str, value: object) -> None:
    """Raise UsageError unless `value` is True or False: "no", for instance, would count as true."""
    if not isinstance(value, bool):
        raise UsageError(f"{field}: expected {name} to be True or False, got {value!r}")


DType: TypeAlias = Literal["uint8", "float32", "float16", "bfloat16"]
ImageDType: TypeAlias = Literal["uint8", "uint16", "float32", "float16", "bfloat16"]
Floats: TypeAlias = Literal["float32", "float16", "bfloat16"]
Mode: TypeAlias = Literal["RGB", "L"]
Nearest: TypeAlias = Literal["nearest", "nearest-exact", "nearest-opencv", "nearest-torch"]
Filter: TypeAlias = Literal["triangle", "bicubic", "linear", "lanczos", Nearest]

DTYPES: tuple[DType, ...] = get_args(DType)
MOST_SCALE = 64
MOST_CHANNELS = 512
"""Maximum number of channels of an image (core/dense/wide_sampler.hpp)."""


@dataclass(frozen=True)
class Normalize(KnownArguments):
    """Per-channel `(value - mean) / std` on values 0…1, with one number per channel: three for RGB, one for grey."""

    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __post_init__(self) -> None:
        for name in ("mean", "std"):
            values = getattr(self, name)
            if not isinstance(values, Sequence) or not values or not all(map(is_number, values)):
                raise UsageError(
                    f"Normalize: expected {name} to be finite numbers, one a channel, such as (0.5,) for grey, got "
                    f"{values!r}"
                )
            object.__setattr__(self, name, tuple(values))
        if len(self.mean) != len(self.std):
            raise UsageError(
                f"Normalize: expected as many numbers in mean as in std, got {len(self.mean)} and {len(self.std)}"
            )
        if any(value <= 0 for value in self.std):
            raise UsageError(f"Normalize: expected every std above 0, got {self.std!r}")


def as_normalize(place: str, given: object) -> Normalize:
    """Convert a Normalize or a (mean, std) pair to a Normalize. The text of a UsageError begins with `place`."""
    if isinstance(given, Normalize):
        return given
    if isinstance(given, Sequence) and len(given) == 2 and all(isinstance(each, Sequence) for each in given):
        return Normalize(mean=tuple(given[0]), std=tuple(given[1]))
    raise UsageError(
        f"{place}: expected None, hr.IMAGENET or (mean, std) on the scale 0…1, such as ((0.5,) * 3, (0.5,) * 3), got "
        f"{given!r}"
    )


IMAGENET = Normalize(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))
"""Channel statistics that models trained on ImageNet expect."""


@dataclass(frozen=True)
class Image(KnownArguments, of="field"):
    """Image column: decoded, cropped and resampled by the sample's view.

    In the batch: [N, C, H, W] of `dtype`, C = 3 for mode "RGB" and 1 for "L". Memory is channels-last unless
    `channels_last` is False. uint8 holds 0…255; floats hold 0…1, or normalized values with `normalize`. Palettes are
    expanded. 16-bit channels are reduced to their high byte, with one warning. Alpha is dropped, with one warning where
    it varies, unless `background` (red, green and blue of 0…255) is given: transparent images are composited over it.

    `channels` preserves more. With `channels` and a float dtype, or with `dtype="uint16"`, values are not reduced to
    bytes: they are resampled in double precision and rounded once. uint16 holds 0…65535 (8-bit values times 257).
    Floats hold 0…1 of the range of the file's type; a float file's values are unchanged. `channels` is the batch's
    number of channels: for pictures, 1 is grey, 3 RGB and 4 RGBA, whatever the file has (alpha is 255 if absent). An
    array, or a TIFF of several bands, must have that number. PNG and JPEG are decoded natively; `.npy`, `.npz` and EXR
    as arrays; TIFFs other than 8-bit colour by tifffile. `channels=3` and `channels=1` in uint8 are mode "RGB" and "L".

    `dct_scaling` controls whether a JPEG may be decoded at 1/2, 1/4 or 1/8 of its size, which is faster. By default,
    only if the decoded window still has 4 times the output's pixels each way: 99.9 % of values are then within 2 levels
    of a full decode. True requires only the output's size (within 19 levels); False never scales. `exif` turns the
    image by its EXIF orientation, as browsers, OpenCV and torchcodec do (in a PNG: an eXIf chunk before the pixels).
    False leaves the stored pixels, as Pillow's `open` does. `filter` is the resampling filter.
    "triangle" is antialiased bilinear, like Pillow's BILINEAR; "bicubic" and "lanczos" are Pillow's BICUBIC and
    LANCZOS, torch's and torchvision's with `antialias=True`. "linear" blends two pixels each way without antialiasing,
    like OpenCV's INTER_LINEAR and torch's `antialias=False`; "nearest" and the others of that name blend no pixels: see
    `Mask`. With "linear" and these, a JPEG is always decoded at full size. `shrink_to` allows sampling from a copy of
    the image whose short side is at most `shrink_to` pixels: the crop stays the same, its detail is bounded. With
    `cache=` and a random view, that copy is cached. `source` names the column if it differs from the field's name.

    `view`, of one fixed size, replaces the Loader's view for this field; boxes, masks and keypoints do not follow it.
    With `copies` the batch is [N, copies, C, H, W], and each copy draws its own view, from `view` or from the Loader's.
    FiveCrop, TenCrop and Tiles set the number of copies. Fields share one decode if they read one column with the same
    mode and `shrink_to`, and have their own views or copies, or the same `filter` and `dct_scaling`: a file is decoded
    once for all their windows, a JPEG at the finest DCT scale that any of them needs.

    `scale` is for pairs of two resolutions, such as `{"lq": hr.Image(), "hq": hr.Image(scale=4)}`: the same window at
    `scale` times the size of the Loader's view, which is drawn from the first field of scale 1. A view that crops,
    flips and turns without resizing cuts whole pixels of both files; an image that is not exactly `scale` times as
    large as the first field's is a bad sample. Masks, boxes and keypoints have scale 1.

    `augment` is an augmentation or a list of them, such as `hr.ColorJitter(0.4)`. They run on the window's pixels after
    the Loader's augmentations and before conversion to float, with separate random draws for each image.
    """

    _: KW_ONLY
    source: str | None = None
    dtype: ImageDType = "uint8"
    normalize: Normalize | None = None
    mode: Mode = "RGB"
    channels: int | None = None
    filter: Filter = "triangle"
    channels_last: bool = True
    dct_scaling: bool | None = None
    exif: bool = True
    background: tuple[int, int, int] | None = None
    shrink_to: int | None = None
    augment: Augmentation | str | Sequence[Augmentation | str] | None = None
    view: View | Sequence[View] | None = None
    copies: int | None = None
    scale: int = 1

    def __post_init__(self) -> None:
        for name, allowed in (("dtype", ImageDType), ("mode", Mode), ("filter", Filter)):
            check_choice(self, name, get_args(allowed))
        if self.dct_scaling is not None:
            check_bool("Image", "dct_scaling", self.dct_scaling)
        if self.shrink_to is not None and (type(self.shrink_to) is not int or not 0 < self.shrink_to <= MAX_SIDE_PX):
            raise UsageError(
                f"Image: expected shrink_to to be None or the pixels of a short side, 1 to {MAX_SIDE_PX}, got "
                f"{self.shrink_to!r}; take about 1.2 times the size that the view cuts"
            )
        self._check_channels()
        self._check_background()
        self._check_augment()
        self._check_copies()
        self._check_scale()
        if self.normalize is None:
            return
        object.__setattr__(self, "normalize", as_normalize("Image: normalize", self.normalize))
        if self.dtype in ("uint8", "uint16"):
            raise UsageError(f'Image: normalize gives fractions, got dtype="{self.dtype}"; use dtype="float32"')
        if len(self.normalize.mean) != self.channel_count:
            raise UsageError(
                f"Image: expected normalize= with a number for each of {self.channel_count} channels, got "
                f"{len(self.normalize.mean)}; pass Normalize(mean=(…), std=(…)) of as many, or mode= or channels="
            )

    def _check_channels(self) -> None:
        count = self.channels
        if count is not None and (type(count) is not int or not 1 <= count <= MOST_CHANNELS):
            raise UsageError(f"Image: expected channels to be None or an int from 1 to {MOST_CHANNELS}, got {count!r}")
        if self.mode == "L" and count not in (None, 1):
            raise UsageError(f'Image: expected mode="L" with one channel, got channels={count}; leave mode out')
        if self.wide and self.shrink_to is not None:
            raise UsageError(
                f"Image: expected shrink_to=None with dtype={self.dtype!r} and channels={count!r}, got "
                f"{self.shrink_to}; what is shrunk is kept in bytes"
            )

    def _check_background(self) -> None:
        colour = self.background
        if colour is None:
            return
        values = tuple(colour) if isinstance(colour, tuple | list) else ()
        if len(values) != 3 or not all(type(value) is int and 0 <= value <= 255 for value in values):
            raise UsageError(f"Image: expected background to be None or three ints 0…255, got {colour!r}")
        if self.wide:
            raise UsageError(
                f"Image: expected background=None with dtype={self.dtype!r} and channels={self.channels!r}, got "
                f"{colour!r}; leave channels out, as images of 8 bits without alpha are composited"
            )
        object.__setattr__(self, "background", values)

    def _check_augment(self) -> None:
        program = compile_augment("Image: augment", self.augment)
        if program is None:
            return
        if self.wide:
            raise UsageError(
                f"Image: expected augment=None with dtype={self.dtype!r} and channels={self.channels!r}, got "
                f"{self.augment!r}; augmentations work on 8 bits a channel: take uint8 or floats of 1 or 3 channels"
            )
        if self.dtype == "uint8" and program.makes_noise:
            raise UsageError(
                'Image: expected RandomErasing(value="random") with a dtype of floats, got "uint8": its values are '
                'normal; take another value, or dtype="float32"'
            )

    def _check_copies(self) -> None:
        count = self.copies
        if count is not None and (type(count) is not int or not 1 <= count <= MAX_COPIES):
            raise UsageError(f"Image: expected copies to be None or an int from 1 to {MAX_COPIES}, got {count!r}")
        if self.view is not None:
            if isinstance(self.view, list):  # so that it cannot change
                object.__setattr__(self, "view", tuple(self.view))
            program = compile_view(self.view)
            if program.output_size is None or program.drawn_per_step:
                raise UsageError(
                    f"Image: expected view= to give every image one size, got {self.view!r}; give a size of (height, "
                    "width), or let a crop follow"
                )
            if program.copies is not None and count not in (None, program.copies):
                raise UsageError(
                    f"Image: expected copies={program.copies}, as {self.view!r} makes, got {count}; leave copies out"
                )
        if self.copy_count is not None and self.wide:
            raise UsageError(
                f"Image: expected copies of a picture of 8 bits, got dtype={self.dtype!r} and channels="
                f"{self.channels!r}; take mode= and leave channels out, or a field for each view"
            )

    def _check_scale(self) -> None:
        if type(self.scale) is not int or not 1 <= self.scale <= MOST_SCALE:
            raise UsageError(
                f"Image: expected scale to be an int from 1 to {MOST_SCALE}, got {self.scale!r}; give it to the field "
                "of the higher resolution"
            )
        if self.scale > 1 and self.draws_view:
            raise UsageError(
                f"Image: expected scale=1 with view= or copies=, got {self.scale}; scale= follows the Loader's view"
            )

    @property
    def draws_view(self) -> bool:
        """True if the field draws its own view instead of following the Loader's."""
        return self.view is not None or self.copies is not None

    @property
    def copy_count(self) -> int | None:
        """Copies of each sample in the batch; None if the batch has no such dimension."""
        return self.copies if self.copies is not None or self.view is None else compile_view(self.view).copies

    @property
    def erases(self) -> bool:
        """True if the field's own augmentations may erase with values of the batch, which bytes cannot represent."""
        program = compile_augment("Image: augment", self.augment)
        return program is not None and program.erases

    @property
    def channel_count(self) -> int:
        """Number of channels in the batch."""
        if self.channels is not None:
            return self.channels
        return 3 if self.mode == "RGB" else 1

    @property
    def wide(self) -> bool:
        """True if 8 bits cannot hold the values."""
        if self.dtype == "uint16":
            return True
        return self.channels is not None and (self.channels not in (1, 3) or self.dtype != "uint8")
