"""Explanation of depth maps and other planes of numbers: scale, valid range, and normalisation by sample."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from headrace.doctor.explain.masks import NEAREST, least_wrong, shown_values
from headrace.doctor.explain.pictures import layouts, sided
from headrace.doctor.explain.placements import Array, LeafPlacement, Sighting, every_placement
from headrace.doctor.explain.resampling import Floats

_LEAST_VALID = 50
"""Minimum number of pixels for a fit."""
_REPEATED = 0.002
"""Share of a leaf's pixels above which a value counts as a fill, or as an end of a clip."""
_RANGES = ((-1.0, 1.0), (0.0, 1.0))
_MOST_ERROR = 1e-3
"""Maximum difference from the fit of 99.9 % of valid pixels, as a share of the leaf's range."""
_SAME_QUANTILE = 0.004


@dataclass(frozen=True)
class Normalisation:
    """Normalisation of each sample by its own quantiles: `low` becomes `range[0]`, `high` `range[1]`."""

    low: float
    high: float
    range: tuple[float, float]
    is_of_window: bool
    """True if quantiles are over the visible pixels; otherwise over the whole file."""


class Bound(NamedTuple):
    """Bound between a valid and an invalid value of the file."""

    least: float
    most: float

    @property
    def middle(self) -> float:
        return (self.least + self.most) / 2

    def roundest(self, scale: float) -> float:
        """Return the number with the fewest digits between both values times `scale`."""
        ends = self.least * scale, self.most * scale
        for digits in range(1, 10):
            number = float(f"{self.middle * scale:.{digits}g}")
            if ends[0] <= number <= ends[1]:
                return number
        return self.middle * scale


@dataclass(frozen=True)
class PlaneExplanation:
    """Recipe of a numeric leaf from a file's values, the same in all samples except for the placements."""

    layout: str
    filter: str | None
    placements: tuple[LeafPlacement, ...]
    is_validity: bool
    """True if the leaf marks valid pixels; otherwise it holds their values."""
    near: Bound | None
    """File values below `near` and above `far` are invalid; None if no such value was seen."""
    far: Bound | None
    fill: float | None = None
    """Leaf value of invalid pixels; None if all are valid."""
    scale: float = 1.0
    shift: float = 0.0
    """Leaf = scale * file + shift, without a `normalisation`."""
    normalisation: Normalisation | None = None


_ABOVE_ZERO = Bound(0.0, 1.0)


class _Fit(NamedTuple):
    scale: float
    shift: float
    fill: float | None
    valid: Array
    """Mask of leaf pixels made from the file's."""
    error: float
    """Mean difference of the fitted pixels, as a share of their range."""


def explain_plane(seen: Sequence[Sighting], shared: Sequence[LeafPlacement] | None = None) -> PlaneExplanation | None:
    """Return how single-channel leaves are made from such files, maybe at `shared` placements; None if unknown."""
    if any(each.source.ndim != 2 or not each.leaf.size for each in seen):
        return None
    for layout in layouts(seen[0].leaf):
        if sided(seen[0].leaf, layout).shape[2] != 1:
            continue
        leaves = [sided(each.leaf, layout)[..., 0] for each in seen]
        tried = _placed(seen, leaves) if shared is None else shared
        if tried is not None:
            best = least_wrong(_by_filter(name, layout, seen, leaves, tried) for name in NEAREST)
            if best is not None:
                return best
    return None


def _by_filter(
    name: str, layout: str, seen: Sequence[Sighting], leaves: Sequence[Array], tried: Sequence[LeafPlacement]
) -> tuple[float, PlaneExplanation] | None:
    """Return the error and the explanation by a filter and the placements of all samples."""
    shown = [
        shown_values(each.source, placement, name, leaf.shape)
        for each, placement, leaf in zip(seen, tried, leaves, strict=True)
    ]
    if any(one is None for one in shown):
        return None
    found = _of_values(leaves, [one for one in shown if one is not None], seen)
    if found is None:
        return None
    is_resampled = any(one.is_resampled for one in tried)
    by = PlaneExplanation(layout, name if is_resampled else None, tuple(tried), **found[1])
    return found[0] if is_resampled else 0, by


def _placed(seen: Sequence[Sighting], leaves: Sequence[Array]) -> list[LeafPlacement] | None:
    """Return a placement of each sample that fits it separately; None if one has none."""
    chosen = []
    for each, leaf in zip(seen, leaves, strict=True):
        best = next((one for one in every_placement(leaf[..., None], each) if _follows(leaf, each.source, one)), None)
        if best is None:
            return None
        chosen.append(best)
    return chosen


def _follows(leaf: Array, source: Array, placement: LeafPlacement) -> bool:
    shown = shown_values(source, placement, NEAREST[0], leaf.shape)
    if shown is None:
        return False
    return _bounds(leaf, shown) is not None if leaf.dtype == np.bool_ else _fitted(leaf, shown) is not None


def _of_values(
    leaves: Sequence[Array], shown: Sequence[Array], seen: Sequence[Sighting]
) -> tuple[float, dict[str, Any]] | None:
    """Return the error, and the attributes of an explanation; None if the leaves are not of these values."""
    if all(leaf.dtype == np.bool_ or (leaf.dtype.kind in "fiu" and set(np.unique(leaf)) <= {0, 1}) for leaf in leaves):
        return _validity(leaves, shown)
    fits = [_fitted(leaf, each) for leaf, each in zip(leaves, shown, strict=True)]
    found = [one for one in fits if one is not None]
    if len(found) < len(leaves):
        return None
    near, far = _bounds_of([one.valid for one in found], shown)
    fills = {one.fill for one in found} - {None}
    if len(fills) > 1:
        return None
    made: dict[str, Any] = {"is_validity": False, "near": near, "far": far, "fill": next(iter(fills), None)}
    error = sum(one.error for one in found)
    scales, shifts = (np.array([getattr(one, name) for one in found]) for name in ("scale", "shift"))
    if np.ptp(scales) <= 2e-3 * np.abs(scales).mean() and np.ptp(shifts) <= 2e-3 * max(
        float(np.ptp(leaf[np.isfinite(leaf)])) for leaf in leaves
    ):
        return error, made | {"scale": float(np.median(scales)), "shift": float(np.median(shifts))}
    least = min(float(leaf[np.isfinite(leaf)].min()) for leaf in leaves)
    ranges = [each for each in _RANGES if least >= each[0] - _MOST_ERROR]
    normalisation = _normalisation(found, shown, seen, (near, far), ranges)
    return None if normalisation is None else (error, made | {"normalisation": normalisation})


def _validity(leaves: Sequence[Array], shown: Sequence[Array]) -> tuple[float, dict[str, Any]] | None:
    valid = [leaf.astype(bool) for leaf in leaves]
    near, far = _bounds_of(valid, shown)
    is_plain = all(each.all() for each in valid) or not any(each.any() for each in valid)
    if is_plain:
        return None
    errors = [float((_within(values, near, far) != each).mean()) for each, values in zip(valid, shown, strict=True)]
    return None if max(errors) > _MOST_ERROR else (sum(errors), {"is_validity": True, "near": near, "far": far})


def _bounds(leaf: Array, shown: Array) -> tuple[float, float] | None:
    """Return the minimum and maximum valid value, if invalid values lie outside; None otherwise."""
    if not leaf.any() or leaf.all():
        return None
    least, most = float(shown[leaf].min()), float(shown[leaf].max())
    others = shown[~leaf]
    return None if ((others >= least) & (others <= most)).mean() > _MOST_ERROR else (least, most)


def _within(values: Array, near: Bound | None, far: Bound | None) -> Array:
    within: Array = np.isfinite(values)
    if near is not None:
        within = within & (values >= near.middle)
    return within if far is None else within & (values <= far.middle)


def _bounds_of(valid: Sequence[Array], shown: Sequence[Array]) -> tuple[Bound | None, Bound | None]:
    """Return the bounds between valid and invalid values over all samples, each None if there is none."""
    taken = np.concatenate([values[each] for each, values in zip(valid, shown, strict=True)]).astype(np.float64)
    others = np.concatenate([values[~each] for each, values in zip(valid, shown, strict=True)]).astype(np.float64)
    least, most = taken.min(initial=np.inf), taken.max(initial=-np.inf)
    below, above = others[others < least], others[others > most]
    near = Bound(float(below.max()), float(least)) if len(below) else None
    return near, Bound(float(most), float(above.min())) if len(above) else None


def _fitted(leaf: Array, shown: Array) -> _Fit | None:
    """Fit the leaf by the file's values, excluding fills and clipped values; None if they do not fit."""
    values, counts = np.unique(leaf[np.isfinite(leaf)], return_counts=True)
    if len(values) < 8:
        return None
    repeated = values[counts > max(8, _REPEATED * leaf.size)]
    inner = np.isfinite(leaf) & ~np.isin(leaf, repeated if len(repeated) <= 3 else repeated[:0])
    if inner.sum() < _LEAST_VALID:
        return None
    x, y = shown[inner].astype(np.float64), leaf[inner].astype(np.float64)
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        return None
    scale, shift = np.polyfit(x - x.mean(), y, 1)
    shift -= scale * x.mean()
    error = np.abs(y - (scale * x + shift))
    if np.quantile(error, 0.999) > _MOST_ERROR * np.ptp(y):
        return None
    made = scale * shown.astype(np.float64) + shift
    ends = leaf[np.isfinite(leaf)].min(), leaf[np.isfinite(leaf)].max()
    valid = np.abs(leaf - np.clip(made, *ends)) <= _MOST_ERROR * np.ptp(y)
    rest = leaf[~valid]
    fill = None
    if rest.size > _MOST_ERROR * leaf.size:
        fills, often = np.unique(rest, return_counts=True, equal_nan=True)
        fill = float(fills[often.argmax()])
    return _Fit(float(scale), float(shift), fill, valid, float(error.mean() / np.ptp(y)))


def _normalisation(
    found: Sequence[_Fit],
    shown: Sequence[Array],
    seen: Sequence[Sighting],
    bounds: tuple[Bound | None, Bound | None],
    ranges: Sequence[tuple[float, float]],
) -> Normalisation | None:
    """Return the common quantiles by which the samples' own values are scaled; None if there are none.

    A value of 0 may be invalid without showing: its fill may equal the end of the range to which it would be clipped.
    """
    fitting: list[tuple[float, Normalisation]] = []
    for is_of_window, near in itertools.product((False, True), (bounds[0], _ABOVE_ZERO)):
        of = list(shown) if is_of_window else [each.source for each in seen]
        taken = [np.sort(each[_within(each, near, bounds[1])].astype(np.float64)) for each in of]
        for range_ in ranges:
            ranks = np.array([_ranks(one, values, range_) for one, values in zip(found, taken, strict=True)])
            least, most = ranks[..., 0].max(axis=0), ranks[..., 1].min(axis=0)
            apart = float((least - most).max())
            if apart <= _SAME_QUANTILE and (least >= 0).all() and (most <= 1).all():
                low, high = (_roundest(*ends) for ends in zip(least, most, strict=True))
                fitting.append((max(0.0, round(apart, 4)), Normalisation(low, high, range_, is_of_window)))
    return min(fitting, key=lambda each: each[0])[1] if fitting else None


def _ranks(fit: _Fit, values: Floats, range_: tuple[float, float]) -> list[tuple[float, float]]:
    """Return, per end of the range, the interval of quantiles that become it: wide for a sensor's maximum."""
    shares, slack = np.linspace(0, 1, len(values)), 1e-6 * max(1.0, float(np.ptp(values)))
    found = []
    for end in range_:
        value = (end - fit.shift) / fit.scale
        reach = _MOST_ERROR * float(np.ptp(values))
        if values[0] - reach <= value <= values[-1] + reach:
            value = float(np.clip(value, values[0], values[-1]))
        ends = np.searchsorted(values, value - slack, "left"), np.searchsorted(values, value + slack, "right") - 1
        between = float(np.interp(value, values, shares, left=-1.0, right=2.0))
        least, most = (float(shares[place]) if ends[0] <= ends[1] else between for place in ends)
        found.append((least, most))
    return found


def _roundest(least: float, most: float) -> float:
    """Return the share between both, or closest to both, with the fewest digits."""
    middle = (least + most) / 2
    rounded = (round(middle, digits) for digits in range(1, 4))
    return float(next((one for one in rounded if least - _SAME_QUANTILE <= one <= most + _SAME_QUANTILE), middle))
