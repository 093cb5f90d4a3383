"""Comparison of two makings of the same samples, value by value. Pure.

Integers, booleans, texts and bytes are equal or they differ. Decoded pixels may differ by one level, as two decoders
and two roundings do, and other floats by 1e-6 of their range; never by a bias.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.compare.observation import SKETCH, Floats, LeafObservation
from headrace.compare.pairing import Bools, Ints, Pairing

_MANY_LEVELS = 48
"""Different values in the usual sample from which an image is decoded pixels, not a mask."""
_SEEN = 200
"""Samples by which levels are counted."""
_BEYOND_ONE, _BEYOND_TWO = 0.02, 0.002
"""Shares of a sample's values that may be off by more than one level, and by more than two.

Between this loader and Pillow they are 0.0003 and 0 at most, between two resize filters usually 0.17 and 0.1.
"""
_BIAS = 0.1
"""Mean difference, in levels, up to which pixels are rounded alike."""


@dataclass(frozen=True)
class ValueScale:
    """Size of a level, and what counts as rounding."""

    step: Floats
    """float64[channels, 1]: one level, or 1/255 of the range."""
    rounding: float
    """Difference by rounding, in steps: 1 for pixels, 0 for integers."""

    is_float: bool

    @property
    def is_pixels(self) -> bool:
        return self.rounding == 1.0


def scale_of(*leaves: LeafObservation) -> ValueScale:
    """Return the scale of a leaf, by both loaders' values of it."""
    sketches = [[sketch for sketch in leaf.sketches[:_SEEN] if sketch.size] for leaf in leaves]
    first = next((sketch for each in sketches for sketch in each), np.empty((1, 0)))
    counts = [len(np.unique(sketch)) for sketch in sketches[0]] if leaves[0].thumbnails else []
    is_picture = bool(counts) and float(np.median(counts)) >= _MANY_LEVELS
    if first.dtype.kind != "f":
        is_pixels = is_picture and first.dtype == np.uint8
        return ValueScale(np.ones((len(first), 1)), float(is_pixels), is_float=False)
    table, names = leaves[0].statistics, [f" of channel {n}" for n in range(len(first))]
    spans = [np.ptp([table[f"lowest{n}"], table[f"highest{n}"]]) for n in names if f"lowest{n}" in table]
    span = np.maximum(np.array(spans or [0.0])[:, None], 1e-12) / 255
    grids = [_grid(each) for each in sketches] if is_picture else []
    grid = next((found for found in grids if found is not None and len(found) == len(first)), None)
    rounding = 1.0 if grid is not None or (is_picture and len(first) == 3) else 255e-6
    return ValueScale(span if grid is None else grid, rounding, is_float=True)


def _grid(sketches: list[npt.NDArray[Any]]) -> Floats | None:
    """Return the distance of levels in each channel, float64[channels, 1], if there are at most 256."""
    if len({len(sketch) for sketch in sketches}) != 1:
        return None
    levels = [np.unique(np.concatenate(planes)) for planes in zip(*sketches, strict=True)]
    if not all(2 <= len(each) <= 256 for each in levels):
        return None
    return np.array([[float(np.median(np.diff(each.astype(np.float64))))] for each in levels])


@dataclass(frozen=True)
class ValueComparison:
    """Pairs of makings whose values differ."""

    is_off: Bools
    """True for each pair that differs by more than rounding."""
    rounded: int
    """Pairs that differ by rounding."""
    bias: float
    """Mean difference of pixels in levels, where it is certain and no rounding; else 0."""
    worst: tuple[str, str]
    """Two values that differ most."""


def compare_values(name: str, pairing: Pairing, pairs: Ints) -> ValueComparison:
    """Compare a leaf of paired makings, int64[pairs, 4] as `Pairing.pairs` gives them."""
    leaves = [epoch.leaves[name] for epoch in pairing.epochs]
    scale = scale_of(leaves[0], leaves[pairing.makings])
    is_same_dtype = leaves[0].kinds.keys() == leaves[pairing.makings].kinds.keys()
    is_off, rounded, biases = np.zeros(len(pairs), bool), 0, []
    worst, texts = -1.0, ("a value", "another value")
    for n, (a, b, c, d) in enumerate(pairs.tolist()):
        if leaves[a].digests[b] == leaves[c].digests[d]:
            continue
        one, other = leaves[a].sketches[b], leaves[c].sketches[d]
        if one.shape != other.shape or not one.size:
            is_off[n] = True
            continue
        steps = _steps(one, other, scale)
        is_elsewhere = one.shape[1] == SKETCH // len(one) and not steps.any()  # rounding would show in the sketch
        is_other = is_same_dtype and not scale.is_pixels and (scale.rounding == 0 or is_elsewhere)
        is_off[n] = is_other or _is_off(steps, scale)
        rounded += not is_off[n]
        if scale.is_pixels and not is_off[n]:
            biases.append(_biases(one, steps))
        if (largest := float(np.abs(steps).max())) > worst:
            place = int(np.abs(steps).argmax())
            worst, texts = largest, (f"{one.flat[place]:.6g}", f"{other.flat[place]:.6g}")
    return ValueComparison(is_off, rounded, _certain_bias(biases), texts)


def _steps(one: npt.NDArray[Any], other: npt.NDArray[Any], scale: ValueScale) -> Floats:
    """Return the differences in steps; of values that are not finite, infinity unless they are the same."""
    first, second = one.astype(np.float64), other.astype(np.float64)
    is_same = (first == second) | (np.isnan(first) & np.isnan(second))
    with np.errstate(invalid="ignore"):
        steps = np.where(is_same, 0.0, (second - first) / scale.step)
    return np.where(np.isnan(steps), np.inf, steps)


def _is_off(steps: Floats, scale: ValueScale) -> bool:
    size = np.abs(steps) * (1 - 1e-4)  # levels of floats are themselves rounded
    if not scale.is_pixels:
        return bool((size > scale.rounding).any())
    return bool((size > 1).mean() > _BEYOND_ONE or (size > 2).mean() > _BEYOND_TWO)


def _biases(values: npt.NDArray[Any], steps: Floats) -> Floats:
    """Return the mean difference among the darker and among the brighter values of each channel."""
    is_bright = values > np.median(values, axis=1, keepdims=True)
    limited = np.clip(steps, -2, 2)
    return np.stack(
        [(limited * part).sum(axis=1) / np.maximum(part.sum(axis=1), 1) for part in (is_bright, ~is_bright)]
    )


def _certain_bias(biases: list[Floats]) -> float:
    """Return the largest bias, if it is beyond rounding by three standard errors."""
    if len(biases) < 10:
        return 0.0
    table = np.stack(biases)
    mean, error = table.mean(axis=0), table.std(axis=0) / np.sqrt(len(table))
    largest = int((np.abs(mean) - 3 * error).argmax())
    found = float(mean.flat[largest])
    return found if abs(found) - 3 * float(error.flat[largest]) > _BIAS else 0.0
