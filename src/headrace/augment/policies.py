"""Augmentation policies of torchvision.transforms.v2."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from headrace.augment.geometry import Interpolation, sampling_of
from headrace.augment.pixels import is_number
from headrace.augment.program import (
    AFFINE,
    AUGMIX,
    AUTOCONTRAST,
    BRIGHTNESS,
    CHOICE,
    CONTRAST,
    EQUALIZE,
    INVERT,
    POSTERIZE,
    SATURATION,
    SEQUENCE,
    SHARPNESS,
    SOLARIZE,
    Augmentation,
    Drawn,
    Fill,
    Node,
    group,
)

Magnitudes: TypeAlias = Mapping[str, tuple[float, float] | None]
"""Magnitudes at the first and last bin, by operation; None for an operation without magnitude."""

_KINDS = {
    "Brightness": BRIGHTNESS,
    "Color": SATURATION,
    "Contrast": CONTRAST,
    "Sharpness": SHARPNESS,
    "Posterize": POSTERIZE,
    "Solarize": SOLARIZE,
    "AutoContrast": AUTOCONTRAST,
    "Equalize": EQUALIZE,
    "Invert": INVERT,
}
_FACTORS = ("Brightness", "Color", "Contrast", "Sharpness")
_MAPS = ("ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate")

WHOLE_SHARE, WHOLE_PIXELS, SHARE = 2, 3, 4
"""Units of a translation (core/augment/geometry.hpp)."""


def _space(shear: float, translate: float, rotate: float, factor: float, bits: tuple[float, float]) -> Magnitudes:
    return {
        "ShearX": (0.0, shear),
        "ShearY": (0.0, shear),
        "TranslateX": (0.0, translate),
        "TranslateY": (0.0, translate),
        "Rotate": (0.0, rotate),
        **dict.fromkeys(_FACTORS, (0.0, factor)),
        "Posterize": bits,
        "Solarize": (255.0, 0.0),
        "AutoContrast": None,
        "Equalize": None,
    }


_AUTO_SPACE: Magnitudes = {**_space(0.3, 150 / 331, 30.0, 0.9, (8, 4)), "Invert": None}
_RAND_SPACE: Magnitudes = {"Identity": None, **_space(0.3, 150 / 331, 30.0, 0.9, (8, 4))}
_WIDE_SPACE: Magnitudes = {"Identity": None, **_space(0.99, 32.0, 135.0, 0.99, (8, 2))}
_MIX_SPACE = _space(0.3, 1 / 3, 30.0, 0.9, (4, 0))
_MIX_BINS = 10

_IMAGENET = """
Posterize .4 8, Rotate .6 9; Solarize .6 5, AutoContrast .6; Equalize .8, Equalize .6; Posterize .6 7, Posterize .6 6;
Equalize .4, Solarize .2 4; Equalize .4, Rotate .8 8; Solarize .6 3, Equalize .6; Posterize .8 5, Equalize 1;
Rotate .2 3, Solarize .6 8; Equalize .6, Posterize .4 6; Rotate .8 8, Color .4 0; Rotate .4 9, Equalize .6;
Equalize 0, Equalize .8; Invert .6, Equalize 1; Color .6 4, Contrast 1 8; Rotate .8 8, Color 1 2;
Color .8 8, Solarize .8 7; Sharpness .4 7, Invert .6; ShearX .6 5, Equalize 1; Color .4 0, Equalize .6;
Equalize .4, Solarize .2 4; Solarize .6 5, AutoContrast .6; Invert .6, Equalize 1; Color .6 4, Contrast 1 8;
Equalize .8, Equalize .6
"""
_CIFAR10 = """
Invert .1, Contrast .2 6; Rotate .7 2, TranslateX .3 9; Sharpness .8 1, Sharpness .9 3; ShearY .5 8, TranslateY .7 9;
AutoContrast .5, Equalize .9; ShearY .2 7, Posterize .3 7; Color .4 3, Brightness .6 7; Sharpness .3 9, Brightness .7 9;
Equalize .6, Equalize .5; Contrast .6 7, Sharpness .6 5; Color .7 7, TranslateX .5 8; Equalize .3, AutoContrast .4;
TranslateY .4 3, Sharpness .2 6; Brightness .9 6, Color .2 8; Solarize .5 2, Invert 0; Equalize .2, AutoContrast .6;
Equalize .2, Equalize .6; Color .9 9, Equalize .6; AutoContrast .8, Solarize .2 8; Brightness .1 3, Color .7 0;
Solarize .4 5, AutoContrast .9; TranslateY .9 9, TranslateY .7 9; AutoContrast .9, Solarize .8 3;
Equalize .8, Invert .1; TranslateY .7 9, AutoContrast .9
"""
_SVHN = """
ShearX .9 4, Invert .2; ShearY .9 8, Invert .7; Equalize .6, Solarize .6 6; Invert .9, Equalize .6;
Equalize .6, Rotate .9 3; ShearX .9 4, AutoContrast .8; ShearY .9 8, Invert .4; ShearY .9 5, Solarize .2 6;
Invert .9, AutoContrast .8; Equalize .6, Rotate .9 3; ShearX .9 4, Solarize .3 3; ShearY .8 8, Invert .7;
Equalize .9, TranslateY .6 6; Invert .9, Equalize .6; Contrast .3 3, Rotate .8 4; Invert .8, TranslateY 0 2;
ShearY .7 6, Solarize .4 8; Invert .6, Rotate .8 4; ShearY .3 7, TranslateX .9 3; ShearX .1 6, Invert .6;
Solarize .7 2, TranslateY .6 7; ShearY .8 4, Invert .8; ShearX .7 9, TranslateY .8 3; ShearY .8 5, AutoContrast .7;
ShearX .7 2, Invert .1
"""
_POLICIES = {"imagenet": _IMAGENET, "cifar10": _CIFAR10, "svhn": _SVHN}


def pairs_of(policy: str) -> list[list[tuple[str, float, int]]]:
    """Parse "name probability level, …; …" into a list of operations per sub-policy. A missing level is 0."""
    lines = [[step.split() for step in line.split(",")] for line in policy.split(";")]
    return [[(name, float(p), int(*level or (0,))) for name, p, *level in line] for line in lines]


class Policy(Augmentation):
    """Base of policies that choose among geometric and colour operations."""

    interpolation: Interpolation
    fill: Fill

    def check_int(self, name: str, low: int, high: int) -> None:
        value = getattr(self, name)
        if type(value) is not int or not low <= value <= high:
            raise self.refuse(name, f"an int from {low} to {high}")

    def moved(self, name: str, drawn: Drawn, unit: int, *, probability: float = 1.0) -> Node:
        """Return the node of a shear (a tangent, about the top left corner), a translation or a rotation (degrees)."""
        places = {"Rotate": 0, "TranslateX": 1, "TranslateY": 2, "ShearX": 4, "ShearY": 5}
        parameters = [Drawn.fixed(value) for value in (0.0, 0.0, 0.0, 1.0, 0.0, 0.0)]
        parameters[places[name]] = drawn
        shears = float(name.startswith("Shear"))
        constants = (*sampling_of(self), unit, shears, shears)
        return Node(AFFINE, tuple(parameters), constants, probability=probability)


class _BinnedPolicy(Policy):
    """Policy with equally spaced magnitude bins and a random sign for operations that have one."""

    def _node(self, space: Magnitudes, name: str, bins: int, drawn: int | range, *, probability: float = 1.0) -> Node:
        """Return an operation at a fixed bin, or at a bin drawn from `range(n)`."""
        if name == "Identity":
            return group(SEQUENCE, ())
        ends = space[name]
        if ends is None:
            return Node(_KINDS[name], probability=probability)
        low, high = ends
        signed, offset = name in _FACTORS or name in _MAPS, float(name in _FACTORS)

        def at(number: int) -> float:
            return low + (high - low) * number / (bins - 1)

        if isinstance(drawn, int):
            parameter = Drawn.fixed(at(drawn), signed=signed, offset=offset)
        else:
            parameter = Drawn.steps(low, at(len(drawn) - 1), len(drawn), signed=signed, offset=offset)
        if name in _MAPS:
            unit = WHOLE_SHARE if name.startswith("Translate") and high < 1 else WHOLE_PIXELS
            return self.moved(name, parameter, unit, probability=probability)
        return Node(_KINDS[name], (parameter,), probability=probability)


@dataclass(frozen=True)
class RandAugment(_BinnedPolicy):
    """Sequence of `num_ops` operations drawn from fourteen, all at bin `magnitude` of `num_magnitude_bins`.

    Method: Cubuk et al., "RandAugment: Practical automated data augmentation with a reduced search space", NeurIPS
    2020, as implemented in torchvision. timm's variant is a str, such as "rand-m9-mstd0.5-inc1".
    """

    num_ops: int = 2
    magnitude: int = 9
    num_magnitude_bins: int = 31
    interpolation: Interpolation = "nearest"
    fill: Fill = 0

    def __post_init__(self) -> None:
        self.check_int("num_ops", 0, 16)
        self.check_int("num_magnitude_bins", 2, 1000)
        self.check_int("magnitude", 0, self.num_magnitude_bins - 1)
        sampling_of(self)

    def nodes(self) -> tuple[Node, ...]:
        bins = self.num_magnitude_bins
        children = [self._node(_RAND_SPACE, name, bins, self.magnitude) for name in _RAND_SPACE]
        return (group(CHOICE, children, constants=(self.num_ops,)),) if self.num_ops else ()


@dataclass(frozen=True)
class TrivialAugmentWide(_BinnedPolicy):
    """One operation of fourteen, with a magnitude drawn from `num_magnitude_bins` bins.

    Method: Müller and Hutter, "TrivialAugment: Tuning-free yet state-of-the-art data augmentation", ICCV 2021, as
    implemented in torchvision.
    """

    num_magnitude_bins: int = 31
    interpolation: Interpolation = "nearest"
    fill: Fill = 0

    def __post_init__(self) -> None:
        self.check_int("num_magnitude_bins", 2, 1000)
        sampling_of(self)

    def nodes(self) -> tuple[Node, ...]:
        bins = self.num_magnitude_bins
        children = [self._node(_WIDE_SPACE, name, bins, range(bins)) for name in _WIDE_SPACE]
        return (group(CHOICE, children, constants=(1,)),)


@dataclass(frozen=True)
class AutoAugment(_BinnedPolicy):
    """One of 25 pairs of operations, learned on "imagenet", "cifar10" or "svhn"; each runs with its own probability.

    Method: Cubuk et al., "AutoAugment: Learning augmentation strategies from data", CVPR 2019, as in torchvision.
    """

    policy: str = "imagenet"
    interpolation: Interpolation = "nearest"
    fill: Fill = 0

    def __post_init__(self) -> None:
        if self.policy not in _POLICIES:
            raise self.refuse("policy", f"one of {', '.join(map(repr, _POLICIES))}")
        sampling_of(self)

    def nodes(self) -> tuple[Node, ...]:
        pairs = [
            group(SEQUENCE, [self._node(_AUTO_SPACE, name, 10, level, probability=p) for name, p, level in pair])
            for pair in pairs_of(_POLICIES[self.policy])
        ]
        return (group(CHOICE, pairs, constants=(1,)),)


@dataclass(frozen=True)
class AugMix(_BinnedPolicy):
    """Mixture of the image with the results of `mixture_width` chains of operations on it.

    A chain has `chain_depth` operations (1 to 3 if not positive), with magnitudes up to `severity` of ten. The chains'
    weights are drawn from Dirichlet(alpha), the weight of their sum from Beta(alpha, alpha). Without `all_ops`,
    brightness, colour, contrast and sharpness are excluded. Method: Hendrycks et al., "AugMix: A simple data processing
    method to improve robustness and uncertainty", ICLR 2020, as implemented in torchvision.
    """

    severity: int = 3
    mixture_width: int = 3
    chain_depth: int = -1
    alpha: float = 1.0
    all_ops: bool = True
    interpolation: Interpolation = "bilinear"
    fill: Fill = 0

    def __post_init__(self) -> None:
        self.check_int("severity", 1, _MIX_BINS)
        self.check_int("mixture_width", 1, 8)
        self.check_int("chain_depth", -1, 8)
        if not is_number(self.alpha) or not 0.01 <= self.alpha <= 1000:
            raise self.refuse("alpha", "a number from 0.01 to 1000")
        if not isinstance(self.all_ops, bool):
            raise self.refuse("all_ops", "True or False")
        sampling_of(self)

    def nodes(self) -> tuple[Node, ...]:
        names = [name for name in _MIX_SPACE if self.all_ops or name not in _FACTORS]
        children = [self._node(_MIX_SPACE, name, _MIX_BINS, range(self.severity)) for name in names]
        return mixture(children, self.mixture_width, self.chain_depth, self.alpha)


def mixture(children: Sequence[Node], width: int, depth: int, alpha: float) -> tuple[Node, ...]:
    """Return an AugMix of chains of operations drawn from `children`."""
    choice = group(CHOICE, children, constants=(1,))
    return (group(AUGMIX, [choice], constants=(width, depth if depth > 0 else -1, alpha)),)
