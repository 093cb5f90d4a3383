"""timm's policies by the strings of its --aa option, such as "rand-m9-mstd0.5-inc1" and "augmix-m5-w4-d2"."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass

from headrace.augment.geometry import Interpolation, sampling_of
from headrace.augment.pixels import is_number
from headrace.augment.policies import SHARE, Policy, mixture, pairs_of
from headrace.augment.program import (
    AUTOCONTRAST,
    BRIGHTNESS,
    CHOICE,
    CONTRAST,
    EQUALIZE,
    GAUSSIAN_BLUR,
    INVERT,
    POSTERIZE,
    SATURATION,
    SEQUENCE,
    SHARPNESS,
    SOLARIZE,
    SOLARIZE_ADD,
    Drawn,
    Fill,
    Node,
    group,
    with_weight,
)
from headrace.errors import UsageError

_FULL = 10.0
"""Level at which an operation's argument reaches the end of its range."""

_V0 = """
Equalize .8 1, ShearY .8 4; Color .4 9, Equalize .6 3; Color .4 1, Rotate .6 8; Solarize .8 3, Equalize .4 7;
Solarize .4 2, Solarize .6 2; Color .2 0, Equalize .8 8; Equalize .4 8, SolarizeAdd .8 3; ShearX .2 9, Rotate .6 8;
Color .6 1, Equalize 1 2; Invert .4 9, Rotate .6 0; Equalize 1 9, ShearY .6 3; Color .4 7, Equalize .6 0;
Posterize .4 6, AutoContrast .4 7; Solarize .6 8, Color .6 9; Solarize .2 4, Rotate .8 9;
Rotate 1 7, TranslateYRel .8 9; ShearX 0 0, Solarize .8 4; ShearY .8 0, Color .6 4; Color 1 0, Rotate .6 2;
Equalize .8 4, Equalize 0 8; Equalize 1 4, AutoContrast .6 2; ShearY .4 7, SolarizeAdd .6 7;
Posterize .8 2, Solarize .6 10; Solarize .6 8, Equalize .6 1; Color .8 6, Rotate .4 5
"""
_ORIGINAL = """
PosterizeOriginal .4 8, Rotate .6 9; Solarize .6 5, AutoContrast .6 5; Equalize .8 8, Equalize .6 3;
PosterizeOriginal .6 7, PosterizeOriginal .6 6; Equalize .4 7, Solarize .2 4; Equalize .4 4, Rotate .8 8;
Solarize .6 3, Equalize .6 7; PosterizeOriginal .8 5, Equalize 1 2; Rotate .2 3, Solarize .6 8;
Equalize .6 8, PosterizeOriginal .4 6; Rotate .8 8, Color .4 0; Rotate .4 9, Equalize .6 2;
Equalize 0 7, Equalize .8 8; Invert .6 4, Equalize 1 8; Color .6 4, Contrast 1 8; Rotate .8 8, Color 1 2;
Color .8 8, Solarize .8 7; Sharpness .4 7, Invert .6 8; ShearX .6 5, Equalize 1 9; Color .4 0, Equalize .6 3;
Equalize .4 7, Solarize .2 4; Solarize .6 5, AutoContrast .6 5; Invert .6 4, Equalize 1 8; Color .6 4, Contrast 1 8;
Equalize .8 8, Equalize .6 3
"""
AUTO_POLICIES = {
    "v0": _V0,
    "v0r": _V0.replace("Posterize ", "PosterizeIncreasing "),
    "original": _ORIGINAL,
    "originalr": _ORIGINAL.replace("PosterizeOriginal ", "PosterizeIncreasing "),
    "3a": "Solarize 1 5; Desaturate 1 10; GaussianBlurRand 1 10",
}

_PLAIN = "AutoContrast Equalize Invert Rotate Posterize Solarize SolarizeAdd Color Contrast Brightness Sharpness"
_INCREASING = (
    "AutoContrast Equalize Invert Rotate PosterizeIncreasing SolarizeIncreasing SolarizeAdd ColorIncreasing "
    "ContrastIncreasing BrightnessIncreasing SharpnessIncreasing"
)
_MOVES = " ShearX ShearY TranslateXRel TranslateYRel"
RAND_SETS: Mapping[str, Mapping[str, float]] = {
    "": dict.fromkeys((_PLAIN + _MOVES).split(), 1.0),
    "inc1": dict.fromkeys((_INCREASING + _MOVES).split(), 1.0),
    "t3a": dict.fromkeys(["SolarizeIncreasing", "Desaturate", "GaussianBlur"], 1.0),
    "t3aw": {
        **dict.fromkeys(["SolarizeIncreasing", "Desaturate", "GaussianBlur"], 6.0),
        "Rotate": 3.0,
        "ShearX": 2.0,
        "ShearY": 2.0,
        "PosterizeIncreasing": 1.0,
        "AutoContrast": 1.0,
        **dict.fromkeys(["ColorIncreasing", "SharpnessIncreasing", "ContrastIncreasing"], 1.0),
        **dict.fromkeys(["BrightnessIncreasing", "Equalize", "Invert"], 1.0),
    },
    "tweights": {
        "Rotate": 3.0,
        "ShearX": 2.0,
        "ShearY": 2.0,
        "TranslateXRel": 1.0,
        "TranslateYRel": 1.0,
        **dict.fromkeys(["ColorIncreasing", "SharpnessIncreasing", "AutoContrast"], 0.25),
        **dict.fromkeys(["SolarizeIncreasing", "SolarizeAdd", "ContrastIncreasing", "BrightnessIncreasing"], 0.05),
        **dict.fromkeys(["Equalize", "PosterizeIncreasing", "Invert"], 0.05),
    },
}
WEIGHTED = ("t3aw", "tweights")
AUGMIX_OPERATIONS = (
    "AutoContrast ColorIncreasing ContrastIncreasing BrightnessIncreasing SharpnessIncreasing Equalize Rotate "
    "PosterizeIncreasing SolarizeIncreasing" + _MOVES
).split()

_PLAIN_KINDS = {"AutoContrast": AUTOCONTRAST, "Equalize": EQUALIZE, "Invert": INVERT}
_FACTOR_KINDS = {"Color": SATURATION, "Contrast": CONTRAST, "Brightness": BRIGHTNESS, "Sharpness": SHARPNESS}
_DOWN, _UP = 1, 2  # the core's rounding modes
_BLUR_PX = 13


@dataclass(frozen=True)
class _Level:
    """Level of operations, up to `most`: `magnitude`, normal around it, or uniform up to it (infinite `deviation`)."""

    magnitude: float
    deviation: float = 0.0
    most: float = _FULL

    def pieces(self, value: Callable[[float], float], cap: float, **extra: float) -> list[tuple[float, Drawn]]:
        """Return the distribution of `value(level)`, with levels clipped to 0…`cap`, as weighted parts."""
        top, mean = min(self.most, cap), self.magnitude
        if self.deviation == math.inf and mean > top > 0:
            spread = Drawn(value(0), value(top), 1, **extra)  # type: ignore[arg-type]
            return [(top / mean, spread), (1 - top / mean, Drawn.fixed(value(top), **extra))]  # type: ignore[arg-type]
        if self.deviation == math.inf and mean > 0:
            return [(1.0, Drawn(value(0), value(mean), 1, **extra))]  # type: ignore[arg-type]
        if 0 < self.deviation < math.inf:
            return [(1.0, Drawn(value(0), value(top), 3, mean / top, self.deviation / top, **extra))]  # type: ignore[arg-type]
        return [(1.0, Drawn.fixed(value(min(mean, top)), **extra))]  # type: ignore[arg-type]


@dataclass(frozen=True)
class TimmPolicy(Policy):
    """timm policy by its string, such as "rand-m9-mstd0.5-inc1".

    `text` is "rand-…" (m, n, p, mstd, mmax, inc, t), "augmix-…" (m, w, d, a, b, mstd), or one of "v0", "v0r",
    "original", "originalr" and "3a" (mstd). `fill` is the value outside the image; timm uses the mean of the
    normalization. `translate` is the maximum translation as a fraction of the size; None: the default of timm's
    create_transform, 0.45, or 0.3 for augmix.

    timm draws bilinear or bicubic for each operation by default; here `interpolation` decides. A str in a list of
    augmentations means `TimmPolicy(text)`.
    """

    text: str
    _: KW_ONLY
    interpolation: Interpolation = "bilinear"
    fill: Fill = (124, 116, 104)
    translate: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.text, str):
            raise self.refuse("text", 'a str such as "rand-m9-mstd0.5-inc1"')
        if self.translate is not None and (not is_number(self.translate) or not 0 <= self.translate <= 1):
            raise self.refuse("translate", "None or a share from 0 to 1")
        sampling_of(self)
        self.nodes()

    def nodes(self) -> tuple[Node, ...]:
        name, *sections = self.text.split("-")
        if name == "rand":
            return self._rand(self._sections(sections, ("m", "n", "p", "mstd", "mmax", "inc", "t")))
        if name == "augmix":
            return self._augmix(self._sections(sections, ("m", "w", "d", "a", "b", "mstd")))
        if name in AUTO_POLICIES:
            return self._auto(name, self._sections(sections, ("mstd",)))
        raise self._wrong(name, f'"rand", "augmix" or one of {", ".join(map(repr, AUTO_POLICIES))} at the beginning')

    def _rand(self, given: Mapping[str, str]) -> tuple[Node, ...]:
        deviation = self._number(given, "mstd", 0.0)
        most = self._number(given, "mmax", _FULL, whole=True, low=1) or _FULL
        level = _Level(self._number(given, "m", _FULL, whole=True), math.inf if deviation > 100 else deviation, most)
        count = int(self._number(given, "n", 2, whole=True, low=1, high=16))
        probability = self._number(given, "p", 0.5, high=1)
        increasing = self._number(given, "inc", 0, whole=True)
        chosen = f"t{given['t']}" if "t" in given else "inc1" if increasing else ""
        if chosen not in RAND_SETS:
            raise self._wrong(chosen, '"tweights", "t3a" or "t3aw"')
        operations = RAND_SETS[chosen]
        if chosen in WEIGHTED and count > len(operations):
            raise self._wrong(f"n{count}", f"at most {len(operations)}, since these are drawn without replacement")
        children = [with_weight(self._node(name, level, probability), by) for name, by in operations.items()]
        return (group(CHOICE, children, constants=(count, float(chosen in WEIGHTED))),)

    def _augmix(self, given: Mapping[str, str]) -> tuple[Node, ...]:
        level = _Level(self._number(given, "m", 3, whole=True), self._number(given, "mstd", math.inf))
        width = int(self._number(given, "w", 3, whole=True, low=1, high=8))
        depth = int(self._number(given, "d", -1, whole=True, high=8))
        alpha = self._number(given, "a", 1.0, low=0.01, high=1000)
        self._number(given, "b", 0, whole=True)  # timm's successive blending: the same sum, rounded differently
        return mixture([self._node(name, level, 1.0) for name in AUGMIX_OPERATIONS], width, depth, alpha)

    def _auto(self, policy: str, given: Mapping[str, str]) -> tuple[Node, ...]:
        deviation = self._number(given, "mstd", 0.0)
        if policy == "3a" and deviation > 0:
            raise self._wrong("mstd", '"3a" without mstd, since its blur is drawn already')
        lines = [
            group(SEQUENCE, [self._node(name, _Level(level, deviation), p) for name, p, level in line])
            for line in pairs_of(AUTO_POLICIES[policy])
        ]
        return (group(CHOICE, lines, constants=(1,)),)

    def _node(self, name: str, level: _Level, probability: float) -> Node:
        if name in _PLAIN_KINDS:
            return Node(_PLAIN_KINDS[name], probability=probability)
        stem = name.removesuffix("Increasing")
        if stem in _FACTOR_KINDS:
            parts = [(by, Node(_FACTOR_KINDS[stem], (drawn,))) for by, drawn in _factors(level, stem != name)]
        elif stem in ("Rotate", "ShearX", "ShearY") or name.startswith("Translate"):
            most = 30.0 if stem == "Rotate" else 0.3 if stem.startswith("Shear") else self._most_translation()
            drawn_levels = level.pieces(lambda at: at / _FULL * most, math.inf, signed=True)
            parts = [(by, self.moved(stem.removesuffix("Rel"), drawn, SHARE)) for by, drawn in drawn_levels]
        else:
            parts = _colours(name, level)
        if len(parts) == 1:
            return Node(parts[0][1].kind, parts[0][1].parameters, parts[0][1].constants, probability=probability)
        nodes = [with_weight(node, by) for by, node in parts]
        return group(CHOICE, nodes, probability=probability, constants=(1,))

    def _most_translation(self) -> float:
        if self.translate is not None:
            return self.translate
        return 0.3 if self.text.startswith("augmix") else 0.45

    def _sections(self, sections: Sequence[str], known: tuple[str, ...]) -> dict[str, str]:
        """Return each section's value by its key. Raises UsageError for unknown sections, which timm ignores."""
        found = {}
        for section in sections:
            match = re.fullmatch(r"t(.+)" if section.startswith("t") else r"([a-z]+)(\d.*)", section)
            key, value = ("", "") if match is None else ("t", match[1]) if len(match.groups()) == 1 else match.groups()
            if key not in known or key in found:
                raise self._wrong(section, f"sections of {', '.join(known)}, each once and with its value")
            found[key] = value
        return found

    def _number(
        self,
        given: Mapping[str, str],
        key: str,
        default: float,
        *,
        whole: bool = False,
        low: float = 0,
        high: float = 1000,
    ) -> float:
        if key not in given:
            return default
        try:
            value = float(int(given[key])) if whole else float(given[key])
        except ValueError:
            value = math.nan
        if not low <= value <= high:
            raise self._wrong(
                key + given[key], f"{key} to be {'an int' if whole else 'a number'} from {low} to {high:g}"
            )
        return value

    def _wrong(self, section: str, expected: str) -> UsageError:
        return UsageError(
            f"augmentation {self.text!r}: expected {expected}, got {section!r}; timm's form is meant here"
        )


def _factors(level: _Level, increasing: bool) -> list[tuple[float, Drawn]]:
    """Return the weighted parts of a factor's distribution; timm clips the factors of increasing operations at 0.1."""
    if not increasing:
        return level.pieces(lambda at: at / _FULL * 1.8 + 0.1, math.inf)
    if level.most <= _FULL:
        return level.pieces(lambda at: at / _FULL * 0.9, math.inf, signed=True, offset=1.0)
    above = level.pieces(lambda at: 1 + at / _FULL * 0.9, math.inf)
    below = level.pieces(lambda at: 1 - at / _FULL * 0.9, _FULL)
    return [(by / 2, drawn) for by, drawn in above + below]


def _colours(name: str, level: _Level) -> list[tuple[float, Node]]:
    """Return another colour operation as (weight, operation) for each part of the level's distribution."""

    def all_of(kind: int, value: Callable[[float], float], cap: float, *constants: float) -> list[tuple[float, Node]]:
        return [(by, Node(kind, (drawn,), constants)) for by, drawn in level.pieces(value, cap)]

    if name == "Posterize":
        return all_of(POSTERIZE, lambda at: at / _FULL * 4, 2 * _FULL, _DOWN)
    if name == "PosterizeIncreasing":
        return all_of(POSTERIZE, lambda at: 4 - at / _FULL * 4, _FULL, _UP)
    if name == "PosterizeOriginal":
        return all_of(POSTERIZE, lambda at: at / _FULL * 4 + 4, _FULL, _DOWN)
    if name == "Solarize":
        return all_of(SOLARIZE, lambda at: at / _FULL * 256, _FULL, _DOWN)
    if name == "SolarizeIncreasing":
        return all_of(SOLARIZE, lambda at: 256 - at / _FULL * 256, _FULL)
    if name == "SolarizeAdd":
        return all_of(SOLARIZE_ADD, lambda at: at / _FULL * 110, 11.64, 128)  # 128.04, which the core truncates to 128
    if name == "Desaturate":
        return all_of(SATURATION, lambda at: 0.5 - 0.5 * at / _FULL, _FULL)
    if name == "GaussianBlur":
        return all_of(GAUSSIAN_BLUR, lambda at: 0.1 + 1.9 * at / _FULL, _FULL, _BLUR_PX, _BLUR_PX)
    return [(1.0, Node(GAUSSIAN_BLUR, (Drawn.uniform(0.1, 2 * level.magnitude / _FULL),), (_BLUR_PX, _BLUR_PX)))]


def as_augmentation(step: object) -> object:
    """Convert a str to a TimmPolicy; return anything else unchanged."""
    return TimmPolicy(step) if isinstance(step, str) else step
