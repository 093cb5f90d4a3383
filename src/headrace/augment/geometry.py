"""Geometric augmentations, with the names and arguments of torchvision.transforms.v2."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from headrace.augment.pixels import check_probability, is_number
from headrace.augment.program import AFFINE, ELASTIC, PERSPECTIVE, Augmentation, Drawn, Fill, Node

Interpolation: TypeAlias = Literal["nearest", "bilinear"]
Pair: TypeAlias = float | Sequence[float]

_ROUNDED_SHARE = 1
_MOST_SIGMA_PX = 100.0


def sampling_of(augmentation: Any) -> tuple[float, ...]:
    """Return the constants for an operation's interpolation and fill. Raises UsageError if either is unsupported."""
    if augmentation.interpolation not in ("nearest", "bilinear"):
        raise augmentation.refuse("interpolation", '"nearest" or "bilinear"', "others are not in the core")
    fill = augmentation.fill
    values = tuple(fill) if isinstance(fill, list | tuple) else (fill,)
    if len(values) not in (1, 3) or not all(is_number(value) and 0 <= value <= 255 for value in values):
        raise augmentation.refuse("fill", "a number 0..255, or three of them", "give it on the scale of uint8")
    return (float(augmentation.interpolation == "bilinear"), *map(float, values * (3 // len(values))))


def numbers_of(value: object) -> tuple[float, ...] | None:
    """Return a list or tuple of numbers as a tuple; None for anything else."""
    if not isinstance(value, list | tuple) or not all(map(is_number, value)):
        return None
    return tuple(map(float, value))


def _degrees(augmentation: Augmentation) -> tuple[float, float]:
    value = augmentation.degrees  # type: ignore[attr-defined]
    pair = (-float(value), float(value)) if is_number(value) and value >= 0 else numbers_of(value)
    if pair is None or len(pair) != 2 or pair[0] > pair[1]:
        raise augmentation.refuse("degrees", "a number d of at least 0, which means (-d, d), or (low, high)")
    return pair[0], pair[1]


def _refuse_centre(augmentation: Any) -> None:
    if augmentation.center is not None:
        raise augmentation.refuse("center", "None, which is the middle of the image", "leave it out")


@dataclass(frozen=True)
class RandomAffine(Augmentation):
    """Random rotation, translation, scaling and shear about the centre of the image.

    `degrees` d draws a clockwise angle from -d to d; a pair draws from low to high. `translate` (a, b) moves by up to
    these fractions of the width and height, in whole pixels. `scale` is a range of factors. `shear` draws degrees along
    x: a number s from -s to s, two numbers from low to high; four numbers are ranges along x and y. `fill` is the value
    of pixels from outside the image.
    """

    degrees: Pair
    translate: Sequence[float] | None = None
    scale: Sequence[float] | None = None
    shear: Pair | None = None
    interpolation: Interpolation = "bilinear"
    fill: Fill = 0
    center: None = None

    def __post_init__(self) -> None:
        _refuse_centre(self)
        self.nodes()

    def nodes(self) -> tuple[Node, ...]:
        across, down = self._translate()
        drawn = (
            Drawn.uniform(*_degrees(self)),
            Drawn.uniform(-across, across),
            Drawn.uniform(-down, down),
            Drawn.uniform(*self._scale()),
            *self._shear(),
        )
        return (Node(AFFINE, drawn, (*sampling_of(self), _ROUNDED_SHARE)),)

    def _translate(self) -> tuple[float, float]:
        if self.translate is None:
            return 0.0, 0.0
        shares = numbers_of(self.translate)
        if shares is None or len(shares) != 2 or not all(0 <= share <= 1 for share in shares):
            raise self.refuse("translate", "None, or two shares of the width and height from 0 to 1")
        return shares[0], shares[1]

    def _scale(self) -> tuple[float, float]:
        if self.scale is None:
            return 1.0, 1.0
        pair = numbers_of(self.scale)
        if pair is None or len(pair) != 2 or not 0 < pair[0] <= pair[1] <= 1000:
            raise self.refuse("scale", "None, or (low, high) with 0 < low <= high <= 1000")
        return pair[0], pair[1]

    def _shear(self) -> tuple[Drawn, Drawn]:
        shear = 0.0 if self.shear is None else self.shear
        ranges = (-float(shear), float(shear)) if is_number(shear) and shear >= 0 else numbers_of(shear)  # type: ignore[operator, arg-type]
        fits = ranges is not None and len(ranges) in (2, 4) and all(abs(degrees) < 90 for degrees in ranges)
        if ranges is None or not fits or ranges[0] > ranges[1] or ranges[-2] > ranges[-1]:
            raise self.refuse(
                "shear", "None, a number s for (-s, s), (low, high) or two such pairs, in degrees between -90 and 90"
            )
        low, high = ranges[2:] or (0.0, 0.0)
        return Drawn.uniform(ranges[0], ranges[1]), Drawn.uniform(low, high)


@dataclass(frozen=True)
class RandomRotation(Augmentation):
    """Rotation about the centre of the image by a counter-clockwise angle drawn from `degrees`.

    `degrees` d draws from -d to d; a pair draws from low to high. The size does not change; `fill` is the value of
    pixels from outside the image.
    """

    degrees: Pair
    interpolation: Interpolation = "bilinear"
    expand: bool = False
    center: None = None
    fill: Fill = 0

    def __post_init__(self) -> None:
        _refuse_centre(self)
        if self.expand is not False:
            raise self.refuse("expand", "False", "images of a batch have one size")
        self.nodes()

    def nodes(self) -> tuple[Node, ...]:
        low, high = _degrees(self)
        turn = Drawn.fixed(-low) if low == high else Drawn(-low, -high, 1)
        drawn = (turn, Drawn.fixed(0.0), Drawn.fixed(0.0), Drawn.fixed(1.0))
        return (Node(AFFINE, drawn, sampling_of(self)),)


@dataclass(frozen=True)
class RandomPerspective(Augmentation):
    """Perspective map with probability `p`: each corner moves inwards by up to `distortion_scale` / 2 of the side."""

    distortion_scale: float = 0.5
    p: float = 0.5
    interpolation: Interpolation = "bilinear"
    fill: Fill = 0

    def __post_init__(self) -> None:
        check_probability(self)
        check_probability(self, "distortion_scale")
        self.nodes()

    def nodes(self) -> tuple[Node, ...]:
        return (Node(PERSPECTIVE, (), (*sampling_of(self), self.distortion_scale), probability=self.p),)


@dataclass(frozen=True)
class ElasticTransform(Augmentation):
    """Displacement of each pixel by uniform noise, blurred by a Gaussian of `sigma` pixels, times half of `alpha`.

    `alpha` and `sigma` take a number, or a pair for x and y. Displacements along x and y are drawn independently; both
    are blurred horizontally with sigma x and vertically with sigma y.
    """

    alpha: Pair = 50.0
    sigma: Pair = 5.0
    interpolation: Interpolation = "bilinear"
    fill: Fill = 0

    def __post_init__(self) -> None:
        self.nodes()

    def nodes(self) -> tuple[Node, ...]:
        drawn = (*self._pair("alpha", 1e5), *self._pair("sigma", _MOST_SIGMA_PX))
        return (Node(ELASTIC, tuple(map(Drawn.fixed, drawn)), sampling_of(self)),)

    def _pair(self, name: str, most: float) -> tuple[float, ...]:
        value = getattr(self, name)
        pair = (float(value),) * 2 if is_number(value) else numbers_of(value)
        if pair is None or len(pair) not in (1, 2) or not all(0 <= number <= most for number in pair):
            raise self.refuse(name, f"a number from 0 to {most:g}, or a pair of them for x and y")
        return pair * (2 // len(pair))
