"""Views: windows of a source, with their output size, flip and padding."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from enum import Enum
from numbers import Integral, Real
from typing import Any, TypeAlias

from headrace._core import ViewKind
from headrace.errors import UsageError
from headrace.foreign_arguments import KnownArguments

Size: TypeAlias = int | tuple[int, int]
"""Pixels: an int for a square (the short side in `Resize`), or (height, width)."""

Fill: TypeAlias = int | tuple[int, ...]
"""Value of padding, 0..255: one for all channels, or one per channel."""

Padding: TypeAlias = int | tuple[int, int, int, int]
"""Pixels added: one int for every side, or (left, top, right, bottom)."""

MAX_SIDE_PX = 1 << 24  # the core's bound on every length in a program
MAX_RATIO = 1e6


class Pads(Enum):
    """Cases in which a view pads."""

    NEVER = 0
    IF_SMALL = 1  # only if the source is smaller than the crop
    YES = 2


class View(KnownArguments, ABC, of="view"):
    """One step of geometry. Views are frozen; a list of them composes from left to right."""

    fill: Fill = 0
    flip: float = 0.0
    resizes: bool = False
    drawn_per_step: bool = False
    """True if one of `choices` is drawn for all samples of a step. Such a view comes first."""
    multiple_of: int = 1
    copies: int | None = None
    """Windows that the view cuts of each sample, one for each copy of a field; None leaves their number open."""

    def __post_init__(self) -> None:
        """Check the common arguments of views: a size, a fill, and the probability of a flip."""
        size = getattr(self, "size", 1)
        sides = size if isinstance(size, tuple | list) else (size, size)
        if len(sides) != 2 or not all(map(is_length, sides)):
            room = f"an int or (height, width), each 1 to {MAX_SIDE_PX} pixels"
            raise self.refused("size", room, "give whole pixels")
        values = fill_channels(self.fill)
        if len(values) not in (1, 3) or not all(is_length(value, low=0) and value <= 255 for value in values):
            raise self.refused("fill", "an int 0..255, or three of them", "give it on the scale of uint8")
        for name in ("flip", "p"):
            value = getattr(self, name, 0)
            if not _is_probability(value):
                raise self.refused(name, "a probability from 0 to 1", "0 never flips, 1 always does")

    @abstractmethod
    def op(self) -> tuple[float, ...]:
        """Return the step as the core's numbers: its `ViewKind`, then its parameters."""

    def choices(self) -> tuple[tuple[float, ...], ...]:
        """Return all values that `op` may have."""
        return (self.op(),)

    def pads(self, size: tuple[int, int] | None) -> Pads:
        """Return whether the step can pad an image of this (height, width); None: of any size."""
        return Pads.NEVER

    def refused(self, name: str, expected: str, hint: str) -> UsageError:
        got = getattr(self, name)
        return UsageError(f"{type(self).__name__}: expected {name} to be {expected}, got {got!r}; {hint}")


@dataclass(frozen=True)
class RandomResizedCrop(View):
    """Crop of a random share of the area at a random aspect ratio, resized to `size`.

    `scale` bounds the share of the area, uniform; `ratio` bounds width / height, uniform in its logarithm. After ten
    attempts it takes the largest central crop with a ratio within bounds. `flip` is the probability of a horizontal
    flip. Method: Szegedy et al., "Going deeper with convolutions", CVPR 2015, as in torchvision.
    """

    size: Size
    _: KW_ONLY
    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    flip: float = 0.0

    resizes = True

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_range(self, "scale", high=1.0, hint="it is a share of the image's area")
        _check_range(self, "ratio", low=1 / MAX_RATIO, high=MAX_RATIO, hint="it is width / height, 1 for a square")

    def op(self) -> tuple[float, ...]:
        return (ViewKind.RANDOM_RESIZED_CROP, *pair_of(self.size), *self.scale, *self.ratio)


@dataclass(frozen=True)
class Resize(View):
    """Resize to `size`: an int sets the short side and preserves the aspect ratio, (height, width) sets both.

    The long side is int(size * long / short). `max_size` (pixels, with an int `size` only) bounds it; the short side
    then shrinks in proportion. `flip` is the probability of a horizontal flip.
    """

    size: Size
    _: KW_ONLY
    max_size: int | None = None
    flip: float = 0.0

    resizes = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_size is None:
            return
        if not isinstance(self.size, Integral):
            raise self.refused("max_size", "None where size is (height, width)", "leave it out, or give size as an int")
        if not is_length(self.max_size) or self.max_size <= int(self.size):
            raise self.refused(
                "max_size", f"an int above size={self.size}", "it bounds the long side; raise it or lower size"
            )

    def op(self) -> tuple[float, ...]:
        if isinstance(self.size, tuple | list):
            return (ViewKind.RESIZE, *self.size)
        return (ViewKind.RESIZE_SHORT, self.size, 0 if self.max_size is None else self.max_size)


@dataclass(frozen=True)
class CenterCrop(View):
    """Crop of the middle `size`; a smaller image is first padded with `fill` to `size`.

    An odd remainder is treated as in torchvision: offsets round half to even, the odd pixel of padding goes to the
    right and bottom. `flip` is the probability of a horizontal flip.
    """

    size: Size
    _: KW_ONLY
    fill: Fill = 0
    flip: float = 0.0

    def op(self) -> tuple[float, ...]:
        return (ViewKind.CENTER_CROP, *pair_of(self.size))

    def pads(self, size: tuple[int, int] | None) -> Pads:
        if size is None:
            return Pads.IF_SMALL
        return Pads.YES if exceeds(self.size, size) else Pads.NEVER


@dataclass(frozen=True)
class RandomCrop(View):
    """Crop of `size` at a uniformly random place.

    `padding` is added around the image first. With `pad_if_needed`, an image that is still smaller is padded on both
    sides by the missing pixels; without, it is a bad sample. Padding has the value `fill`. `flip` is the probability of
    a horizontal flip.
    """

    size: Size
    _: KW_ONLY
    padding: Padding | None = None
    pad_if_needed: bool = False
    fill: Fill = 0
    flip: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.pad_if_needed, bool):
            raise self.refused("pad_if_needed", "True or False", "give a bool")
        sides = self._sides()
        if len(sides) != 4 or not all(is_length(side, low=0) for side in sides):
            raise self.refused("padding", "None, an int or (left, top, right, bottom), each 0 or more", "give pixels")

    def op(self) -> tuple[float, ...]:
        return (ViewKind.RANDOM_CROP, *pair_of(self.size), *self._sides(), self.pad_if_needed)

    def pads(self, size: tuple[int, int] | None) -> Pads:
        left, top, right, bottom = self._sides()
        if size is not None and not self.pad_if_needed:
            height, width = size[0] + top + bottom, size[1] + left + right
            if exceeds(self.size, (height, width)):
                room = f"at most the {height} x {width} (height x width) that it is given, padding included"
                raise self.refused("size", room, "set pad_if_needed=True, or resize to more first")
        if left or top or right or bottom:
            return Pads.YES
        if not self.pad_if_needed:
            return Pads.NEVER
        return Pads.IF_SMALL if size is None else Pads.YES if exceeds(self.size, size) else Pads.NEVER

    def _sides(self) -> tuple[int, ...]:
        if self.padding is None:
            return (0, 0, 0, 0)
        return tuple(self.padding) if isinstance(self.padding, tuple | list) else (self.padding,) * 4


@dataclass(frozen=True)
class Letterbox(View):
    """Resize of the whole image to fit inside `size` at its aspect ratio, centred on `fill`.

    Small images are enlarged. The odd pixel of padding goes to the right and the bottom. `flip` is the probability of a
    horizontal flip.
    """

    size: Size
    _: KW_ONLY
    fill: Fill = 0
    flip: float = 0.0

    resizes = True

    def op(self) -> tuple[float, ...]:
        return (ViewKind.LETTERBOX, *pair_of(self.size))

    def pads(self, size: tuple[int, int] | None) -> Pads:
        return Pads.YES


@dataclass(frozen=True)
class RandomHorizontalFlip(View):
    """Horizontal flip (left to right) with probability `p`."""

    p: float = 0.5

    def op(self) -> tuple[float, ...]:
        return (ViewKind.HORIZONTAL_FLIP, self.p)


@dataclass(frozen=True)
class RandomVerticalFlip(View):
    """Vertical flip (top to bottom) with probability `p`."""

    p: float = 0.5

    def op(self) -> tuple[float, ...]:
        return (ViewKind.VERTICAL_FLIP, self.p)


@dataclass(frozen=True)
class RandomQuarterTurn(View):
    """Turn by 0, 90, 180 or 270 degrees counterclockwise, like `numpy.rot90`; by default, all are equally likely.

    With a horizontal flip of probability 0.5, so are the eight flips and turns, as in BasicSR and EDSR. A turn does not
    resample. Boxes, keypoints, masks and the directions of normals turn along. Turns by 90 and 270 degrees swap height
    and width, so the turn follows a view of square size, or comes before the view that sets the output's size.
    """

    probabilities: tuple[float, float, float, float] = (0.25, 0.25, 0.25, 0.25)

    def __post_init__(self) -> None:
        super().__post_init__()
        shares = tuple(self.probabilities) if isinstance(self.probabilities, tuple | list) else ()
        if len(shares) != 4 or not all(map(_is_probability, shares)) or not math.isclose(sum(shares), 1):
            room = "four numbers with the sum 1, of 0, 90, 180 and 270 degrees"
            raise self.refused("probabilities", room, "(0.5, 0, 0.5, 0), for instance, turns upside down or not at all")
        object.__setattr__(self, "probabilities", shares)

    def op(self) -> tuple[float, ...]:
        return (ViewKind.QUARTER_TURN, *self.probabilities)


def fill_channels(fill: Fill) -> tuple[int, ...]:
    return tuple(fill) if isinstance(fill, tuple | list) else (fill,)


def pair_of(size: Size) -> tuple[int, int]:
    return (size[0], size[1]) if isinstance(size, tuple | list) else (size, size)


def exceeds(crop: Size, size: tuple[int, int]) -> bool:
    height, width = pair_of(crop)
    return height > size[0] or width > size[1]


def is_length(value: object, low: int = 1) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool) and low <= int(value) <= MAX_SIDE_PX


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)


def _is_probability(value: Any) -> bool:
    return _is_number(value) and 0 <= value <= 1


def _check_range(view: View, name: str, *, low: float = 0.0, high: float, hint: str) -> None:
    """Check (first, second) with low <= first <= second <= high and first > 0."""
    bounds = getattr(view, name)
    pair = isinstance(bounds, tuple | list) and len(bounds) == 2 and all(_is_number(bound) for bound in bounds)
    if not pair or not (low <= bounds[0] <= bounds[1] <= high and bounds[0] > 0):
        at_least = "0 <" if low == 0 else f"{low:g} <="
        raise view.refused(name, f"(low, high) with {at_least} low <= high <= {high:g}", hint)


@dataclass(frozen=True)
class RandomScale(View):
    """Resize of all images of a global batch to one short side, drawn from `short_sides`, at each image's aspect ratio.

    All scales are equally likely, and each sample gets each of them equally often. `long_max` bounds the long side,
    like Resize's `max_size`. Images of one batch that still differ in size are centred on `fill`, up to the largest of
    the global batch, with sides rounded up to a multiple of `multiple_of`. Every rank has the same shape. It comes
    first in a list of views; after a view of fixed size, such as RandomCrop, nothing is padded. `flip` is the
    probability of a horizontal flip.
    """

    short_sides: Sequence[int]
    _: KW_ONLY
    long_max: int | None = None
    multiple_of: int = 1
    flip: float = 0.0
    fill: Fill = 0

    resizes = True
    drawn_per_step = True

    def __post_init__(self) -> None:
        super().__post_init__()
        sides = self.short_sides
        whole = isinstance(sides, list | tuple) and len(sides) > 0 and all(is_length(side) for side in sides)
        if not whole or list(sides) != sorted(set(sides)):
            raise self.refused("short_sides", "ascending whole numbers of pixels, each once", "such as (300, 450, 600)")
        if self.long_max is not None and (not is_length(self.long_max) or self.long_max < sides[-1]):
            raise self.refused("long_max", f"None or an int of at least {sides[-1]}", "it bounds the long side")
        if not is_length(self.multiple_of) or self.multiple_of > 1 << 12:
            raise self.refused("multiple_of", "an int from 1 to 4096", "it is what sides are rounded up to")

    def op(self) -> tuple[float, ...]:
        return self.choices()[0]

    def choices(self) -> tuple[tuple[float, ...], ...]:
        return tuple((2, side, self.long_max or 0) for side in self.short_sides)

    def pads(self, size: tuple[int, int] | None) -> Pads:
        return Pads.IF_SMALL
