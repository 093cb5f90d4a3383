"""Pixel augmentations: colour, blur, sharpness and erasing, named as in torchvision.transforms.v2."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace

from headrace.augment.program import (
    AUTOCONTRAST,
    BRIGHTNESS,
    CONTRAST,
    EQUALIZE,
    ERASE,
    GAUSSIAN_BLUR,
    GRAYSCALE,
    HUE,
    INVERT,
    ORDER,
    PERMUTE_CHANNELS,
    POSTERIZE,
    SATURATION,
    SEQUENCE,
    SHARPNESS,
    SOLARIZE,
    Augmentation,
    Drawn,
    Node,
    group,
)
from headrace.augment.program import CHOICE as CHOICE

Range = float | Sequence[float]

MOST_ERASURES = 16
_NORMAL_VALUES = {"random": 1, "random_color": 2}


def is_number(value: object) -> bool:
    """Return True for an int or float of magnitude at most 1e6; False for a bool."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= 1e6


def check_probability(augmentation: Augmentation, name: str = "p") -> None:
    value = getattr(augmentation, name)
    if not is_number(value) or not 0 <= value <= 1:
        raise augmentation.refuse(name, "a probability from 0 to 1")


def _bounds(augmentation: Augmentation, name: str, *, centre: float, low: float, high: float) -> tuple[float, float]:
    """Return (low, high) of a factor: a number v means centre - v to centre + v, clipped at `low`."""
    value = getattr(augmentation, name)
    pair = (max(low, centre - value), centre + value) if is_number(value) and value >= 0 else value
    fits = isinstance(pair, list | tuple) and len(pair) == 2 and all(map(is_number, pair))
    if not fits or not low <= pair[0] <= pair[1] <= high:
        most = "" if high == float("inf") else f" <= {high:g}"
        raise augmentation.refuse(name, f"a number of at least 0, or (low, high) with {low:g} <= low <= high{most}")
    return float(pair[0]), float(pair[1])


@dataclass(frozen=True)
class ColorJitter(Augmentation):
    """Random brightness, contrast, saturation and hue, in a random order.

    A number v draws a factor from max(0, 1 - v) to 1 + v; for `hue`, a shift from -v to v turns (at most 0.5). A pair
    draws from low to high. 0 leaves a property unchanged.
    """

    brightness: Range = 0.0
    contrast: Range = 0.0
    saturation: Range = 0.0
    hue: Range = 0.0

    def __post_init__(self) -> None:
        self.nodes()

    def nodes(self) -> tuple[Node, ...]:
        parts = []
        for name, kind in (("brightness", BRIGHTNESS), ("contrast", CONTRAST), ("saturation", SATURATION)):
            low, high = _bounds(self, name, centre=1.0, low=0.0, high=float("inf"))
            if (low, high) != (1.0, 1.0):
                parts.append(Node(kind, (Drawn.uniform(low, high),)))
        low, high = _bounds(self, "hue", centre=0.0, low=-0.5, high=0.5)
        if (low, high) != (0.0, 0.0):
            parts.append(Node(HUE, (Drawn.uniform(low, high),)))
        return (group(ORDER, parts),) if parts else ()


@dataclass(frozen=True)
class _WithProbability(Augmentation):
    """Operation without parameters, run with probability `p`."""

    p: float = 0.5
    _kind = 0

    def __post_init__(self) -> None:
        check_probability(self)

    def nodes(self) -> tuple[Node, ...]:
        return (Node(self._kind, probability=self.p),)


@dataclass(frozen=True)
class RandomGrayscale(_WithProbability):
    """Conversion of all channels to grey (0.2989 red, 0.587 green, 0.114 blue), with probability `p`."""

    p: float = 0.1
    _kind = GRAYSCALE


@dataclass(frozen=True)
class RandomInvert(_WithProbability):
    """Inversion of colours, with probability `p`."""

    _kind = INVERT


@dataclass(frozen=True)
class RandomAutocontrast(_WithProbability):
    """Stretching of each channel to the full range, with probability `p`."""

    _kind = AUTOCONTRAST


@dataclass(frozen=True)
class RandomEqualize(_WithProbability):
    """Histogram equalization of each channel, with probability `p`."""

    _kind = EQUALIZE


@dataclass(frozen=True)
class RandomChannelPermutation(Augmentation):
    """Random permutation of the channels."""

    def nodes(self) -> tuple[Node, ...]:
        return (Node(PERMUTE_CHANNELS),)


@dataclass(frozen=True)
class RandomSolarize(Augmentation):
    """Inversion of values at or above `threshold` (0…255), with probability `p`."""

    threshold: float
    p: float = 0.5

    def __post_init__(self) -> None:
        check_probability(self)
        if not is_number(self.threshold) or not 0 <= self.threshold <= 255:
            raise self.refuse("threshold", "a number from 0 to 255")

    def nodes(self) -> tuple[Node, ...]:
        return (Node(SOLARIZE, (Drawn.fixed(self.threshold),), probability=self.p),)


@dataclass(frozen=True)
class RandomPosterize(Augmentation):
    """Reduction of values to their highest `bits` bits, with probability `p`."""

    bits: int
    p: float = 0.5

    def __post_init__(self) -> None:
        check_probability(self)
        if type(self.bits) is not int or not 0 <= self.bits <= 8:
            raise self.refuse("bits", "an int from 0 to 8")

    def nodes(self) -> tuple[Node, ...]:
        return (Node(POSTERIZE, (Drawn.fixed(self.bits),), probability=self.p),)


@dataclass(frozen=True)
class RandomAdjustSharpness(Augmentation):
    """Sharpness scaled by `sharpness_factor` (0 blurs, 1 changes nothing, 2 doubles), with probability `p`."""

    sharpness_factor: float
    p: float = 0.5

    def __post_init__(self) -> None:
        check_probability(self)
        if not is_number(self.sharpness_factor) or self.sharpness_factor < 0:
            raise self.refuse("sharpness_factor", "a number of at least 0")

    def nodes(self) -> tuple[Node, ...]:
        return (Node(SHARPNESS, (Drawn.fixed(self.sharpness_factor),), probability=self.p),)


@dataclass(frozen=True)
class GaussianBlur(Augmentation):
    """Gaussian blur of `kernel_size` pixels (odd, or (width, height)), with its sigma drawn from `sigma`, in pixels."""

    kernel_size: int | Sequence[int]
    sigma: Range = (0.1, 2.0)

    def __post_init__(self) -> None:
        sizes = self._sizes()
        if len(sizes) != 2 or not all(type(size) is int and 1 <= size <= 255 and size % 2 for size in sizes):
            raise self.refuse("kernel_size", "an odd int from 1 to 255, or a pair (width, height)")
        low, high = self._sigmas()
        if not is_number(low) or not is_number(high) or not 0 < low <= high <= 100:
            raise self.refuse("sigma", "a number, or (low, high) with 0 < low <= high <= 100")

    def nodes(self) -> tuple[Node, ...]:
        return (Node(GAUSSIAN_BLUR, (Drawn.uniform(*self._sigmas()),), self._sizes()),)

    def _sizes(self) -> tuple[int, ...]:
        return tuple(self.kernel_size) if isinstance(self.kernel_size, list | tuple) else (self.kernel_size,) * 2  # type: ignore[return-value]

    def _sigmas(self) -> tuple[float, float]:
        if isinstance(self.sigma, list | tuple):
            return tuple(self.sigma) if len(self.sigma) == 2 else (0.0, 0.0)
        return (self.sigma, self.sigma)  # type: ignore[return-value]


@dataclass(frozen=True)
class RandomErasing(Augmentation):
    """Erasure of a random rectangle with `value`, with probability `p`. Must be the last augmentation.

    `scale` bounds the fraction of the area and `ratio` height / width, drawn log-uniformly. `value` is in the batch's
    units: 0 is the mean of normalized floats, as after torchvision's Normalize. It is one number, one per channel, or
    (in float batches) standard normal values: "random" for each pixel, "random_color" for each rectangle. `count` is
    the number of rectangles, or (low, high) to draw it; each then has 1 / count of the area, as in timm. Method: Zhong
    et al., "Random erasing data augmentation", AAAI 2020.
    """

    p: float = 0.5
    scale: tuple[float, float] = (0.02, 0.33)
    ratio: tuple[float, float] = (0.3, 3.3)
    value: float | Sequence[float] | str = 0.0
    _: KW_ONLY
    count: int | tuple[int, int] = 1

    def __post_init__(self) -> None:
        check_probability(self)
        counts = self._counts()
        if not all(type(each) is int for each in counts) or not 1 <= counts[0] <= counts[-1] <= MOST_ERASURES:
            raise self.refuse("count", f"an int from 1 to {MOST_ERASURES}, or (low, high) of such")
        for name, high in (("scale", 1.0), ("ratio", 1e6)):
            pair = getattr(self, name)
            fits = isinstance(pair, list | tuple) and len(pair) == 2 and all(map(is_number, pair))
            if not fits or not 0 <= pair[0] <= pair[1] <= high or (name == "ratio" and pair[0] == 0):
                raise self.refuse(name, f"(low, high) with 0 <= low <= high <= {high:g}")
        values = self._values()
        if len(values) != 3 or not all(map(is_number, values)):
            raise self.refuse("value", 'a number, one a channel, "random" or "random_color"')

    def nodes(self) -> tuple[Node, ...]:
        low, high = self._counts()
        counted = [group(SEQUENCE, self._rectangles(count)) for count in range(low, high + 1)]
        if len(counted) > 1:
            return (group(CHOICE, counted, constants=(1,), probability=self.p),)
        return (replace(counted[0], probability=self.p),)

    def _rectangles(self, count: int) -> list[Node]:
        low, high = self.scale
        normal = _NORMAL_VALUES.get(self.value, 0) if isinstance(self.value, str) else 0
        return [Node(ERASE, constants=(low / count, high / count, *self.ratio, *self._values(), float(normal)))] * count

    def _counts(self) -> tuple[int, int]:
        pair = self.count if isinstance(self.count, list | tuple) else (self.count, self.count)
        if len(pair) != 2:
            raise self.refuse("count", f"an int from 1 to {MOST_ERASURES}, or (low, high) of such")
        return pair[0], pair[1]

    def _values(self) -> tuple[float, ...]:
        if self.value in _NORMAL_VALUES:
            return (0.0, 0.0, 0.0)
        if isinstance(self.value, list | tuple):
            return tuple(self.value) * (3 if len(self.value) == 1 else 1)
        return (self.value,) * 3  # type: ignore[return-value]


@dataclass(frozen=True)
class RandomPhotometricDistort(Augmentation):
    """SSD's photometric distortion: brightness, contrast, saturation, hue, channel order, each with probability `p`.

    Contrast runs before or after saturation and hue, with equal probability. Method: Liu et al., "SSD", ECCV 2016, as
    implemented in torchvision.
    """

    brightness: tuple[float, float] = (0.875, 1.125)
    contrast: tuple[float, float] = (0.5, 1.5)
    saturation: tuple[float, float] = (0.5, 1.5)
    hue: tuple[float, float] = (-0.05, 0.05)
    _: KW_ONLY
    p: float = 0.5

    def __post_init__(self) -> None:
        check_probability(self)
        self.nodes()

    def nodes(self) -> tuple[Node, ...]:
        def part(name: str, kind: int) -> Node:
            centre, low, high = (0.0, -0.5, 0.5) if kind == HUE else (1.0, 0.0, float("inf"))
            bounds = _bounds(self, name, centre=centre, low=low, high=high)
            return Node(kind, (Drawn.uniform(*bounds),), probability=self.p)

        contrast = part("contrast", CONTRAST)
        colour = [part("saturation", SATURATION), part("hue", HUE)]
        orders = [group(SEQUENCE, [contrast, *colour]), group(SEQUENCE, [*colour, contrast])]
        return (
            part("brightness", BRIGHTNESS),
            group(CHOICE, orders, constants=(1,)),
            Node(PERMUTE_CHANNELS, probability=self.p),
        )
