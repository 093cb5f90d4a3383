"""Explanation of an array by the image that it was made from: window, size, filter, flip, channels and scale.

A leaf of a batch is `scale * resampled(window of the decoded file) + shift`, in some order of channels and sides. Given
both, each candidate is fitted by least squares on a grid of pixels, and the best is verified on all of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from headrace.doctor.explain.placements import SEARCHES, Find, Rule, Turn, cut, unturned
from headrace.doctor.explain.placements import Array as Array
from headrace.doctor.explain.placements import Box as Box
from headrace.doctor.explain.placements import LeafPlacement as LeafPlacement
from headrace.doctor.explain.placements import Sighting as Sighting
from headrace.doctor.explain.resampling import FILTERS, Floats, Ints, resample

GREY = -1
"""Channel for the brightness of a colour image, as Pillow and OpenCV compute it."""
_LUMA = np.array([19595, 38470, 7471])
"""Pillow's weights of red, green and blue, in units of 1/65536."""
_GRID = 40
"""Rows and columns of the pixel grid on which candidates are fitted."""
MOST_LEVELS = 1.0
"""Maximum difference in source levels of 99 % of pixels: libraries round, some twice."""
_CLOSE = 1.5
"""Multiple of the smallest difference over all samples up to which all pixels decide between candidates."""
_SAME = 0.02
"""Difference in levels of a sample below which candidates are alike."""
_MAY_FIT = 2.0
"""Multiple of `MOST_LEVELS` that a candidate may reach on the grid."""
UNSCALED = "none"
"""Placeholder for a filter if all windows have the leaf's size; if only some have, any filter fits those."""
_ALL = (UNSCALED, *FILTERS)


@dataclass(frozen=True)
class PictureExplanation:
    """Recipe of a leaf from an image, the same in all samples except for the placements."""

    layout: str
    """Dimensions of the leaf, outermost first: "CHW", "HWC" or "HW"."""
    filter: str | None
    """Name in `resampling.FILTERS`; None without resampling."""
    channels: tuple[int, ...]
    """Source channel of each channel of the leaf, or GREY."""
    scale: tuple[float, ...]
    shift: tuple[float, ...]
    """Leaf = scale * source + shift, by channel."""
    is_scaled_by_sample: bool
    """True if scale and shift vary between samples; those here are then their medians."""
    placements: tuple[LeafPlacement, ...]
    levels: float
    """Maximum over the samples of the difference in source levels that 99 % of pixels stay within."""
    fill: tuple[float, ...] | None = None
    """Value of each channel of the leaf in padding; None without padding."""
    by_sample: tuple[tuple[float, float], ...] = ()
    """Scale and shift of the first channel in each sample."""
    crops: str = ""
    """Name of the Loader's view of a stack of crops, whose middle is explained; empty for a single picture."""


class _Fit(NamedTuple):
    levels: float
    channels: tuple[int, ...]
    nearest: Ints
    """Fitted source channel, by channel of the leaf."""
    scale: Floats
    shift: Floats


class _Candidate(NamedTuple):
    filter: str
    placement: LeafPlacement
    fit: _Fit | None
    """Fit on the grid; None for a flat leaf."""

    @property
    def levels(self) -> float:
        return 0.0 if self.fit is None else self.fit.levels


_By = tuple[Rule, str]


def explain_picture(
    seen: Sequence[Sighting], searches: Sequence[tuple[Find, Sequence[Sequence[Turn]]]] = SEARCHES
) -> PictureExplanation | None:
    """Return how the leaves are made from their images; None if no candidate of the searches fits all of them.

    The leaves are from one path in the batch, and have equal dtypes and numbers of dimensions. Rule and filter are
    chosen by all samples together: a smooth photograph fits many.
    """
    if not all(each.leaf.size for each in seen):
        return None
    for layout in layouts(seen[0].leaf):
        leaves = [sided(each.leaf, layout) for each in seen]
        for find, groups in searches:
            agreed = _agreed(find, groups, leaves, seen)
            measured = [_measured(found, leaves, seen, layout) for found in agreed]
            fitting = [one for one in measured if one is not None]
            if fitting:
                least = min(total for total, _ in fitting)
                return next(one for total, one in fitting if total <= least + 1e-4)
    return None


def _agreed(
    find: Find, groups: Sequence[Sequence[Turn]], leaves: Sequence[Array], seen: Sequence[Sighting]
) -> list[list[_Candidate]]:
    """Return the candidates of all samples by each rule and filter that fits all, for those closest to the samples.

    The leaf of most contrast comes first: it leaves the fewest to try. A flat leaf fits whatever the others agree on.
    """
    contrast = [float(leaf.astype(np.float64).std(axis=(0, 1)).min()) for leaf in leaves]
    found: dict[int, dict[_By, _Candidate]] = {}
    alive: set[_By] | None = None
    for number in sorted(range(len(leaves)), key=lambda number: -contrast[number]):
        if contrast[number] > 0 or not found:
            best = _best(find, groups, leaves[number], seen[number], alive)
            alive = {by for by in best if alive is None or by in alive}
        else:
            placed = dict(find(leaves[number], seen[number]))
            best = {(rule, name): _Candidate(name, placed[rule], None) for rule, name in alive or () if rule in placed}
            alive = set(best)
        found[number] = best
        if not alive:
            return []
    totals = {by: sum(best[by].levels for best in found.values()) for by in alive or ()}
    near = max(_CLOSE * min(totals.values()), min(totals.values()) + _SAME * len(leaves))
    chosen = sorted((by for by in totals if totals[by] <= near), key=lambda by: _ALL.index(by[1]))
    agreed: dict[tuple[object, ...], list[_Candidate]] = {}
    for by in chosen:  # several rules may give the same placements, and all filters the same unscaled windows
        candidates = [found[number][by] for number in range(len(leaves))]
        resampled = tuple(one.placement.is_resampled and one.filter for one in candidates)
        agreed.setdefault((resampled, *(one.placement for one in candidates)), candidates)
    return list(agreed.values())


def layouts(leaf: Array) -> Iterator[str]:
    if leaf.ndim == 2:
        yield "HW"
    elif leaf.ndim == 3:
        if leaf.shape[0] in (1, 3, 4):
            yield "CHW"
        if leaf.shape[2] in (1, 3, 4):
            yield "HWC"


def sided(leaf: Array, layout: str) -> Array:
    """Return a leaf as [height, width, channels]."""
    if layout == "HW":
        return leaf[..., None]
    return leaf.transpose(1, 2, 0) if layout == "CHW" else leaf


def _channels(source: Array, count: int) -> Array:
    """Return an image as [height, width, channels], for a leaf of `count` channels.

    For a leaf of one channel, the brightness of a colour image is appended: exact, and rounded before resampling.
    """
    sided = source[..., None] if source.ndim == 2 else source
    if sided.shape[2] < 3 or count > 1:
        return sided[..., :3]
    grey = (sided[..., :3] @ _LUMA)[..., None] / 65536
    return np.concatenate([sided[..., :3], grey, np.floor(grey + 0.5)], axis=2)


def _best(
    find: Find, groups: Sequence[Sequence[Turn]], leaf: Array, each: Sighting, alive: Collection[_By] | None
) -> dict[_By, _Candidate]:
    """Return the best candidate of each rule and filter that fits a leaf, of those `alive`; None: of all."""
    best: dict[_By, _Candidate] = {}
    source = _channels(each.source, leaf.shape[2])
    for turns in groups:
        uprights = [unturned(leaf, turn) for turn in turns]
        rules: dict[LeafPlacement, list[Rule]] = {}
        for rule, placement in find(uprights[0], each):
            rules.setdefault(placement, []).append(rule)
        for placement, those in rules.items():
            names = [name for name in _ALL if alive is None or any((rule, name) in alive for rule in those)]
            turned = {replace(placement, **turn._asdict()): one for turn, one in zip(turns, uprights, strict=True)}
            for candidate in _candidates(turned, source, each.source.dtype, names) if names else ():
                for by in ((rule, candidate.filter) for rule in those):
                    if by not in best or candidate.levels < best[by].levels:
                        best[by] = candidate
        if any(one.levels <= MOST_LEVELS for one in best.values()):
            break
    return best


def _candidates(
    turned: Mapping[LeafPlacement, Array], source: Array, dtype: np.dtype[Any], names: Sequence[str]
) -> Iterator[_Candidate]:
    """Yield the turns that fit, each with its upright leaf, by filter; any filter if nothing is resampled."""
    placement, upright = next(iter(turned.items()))
    rows, columns = shown_part(upright.shape, placement)
    if not len(rows) or not len(columns):
        return
    rows, columns = (np.unique(np.linspace(each[0], each[-1], _GRID).astype(np.int64)) for each in (rows, columns))
    pixels = cut(source, placement.window)
    for name in (each for each in names if each != UNSCALED) if placement.is_resampled else (UNSCALED,):
        made = made_pixels(pixels, placement, name, rows, columns, dtype)
        for one, leaf in turned.items():
            shown = leaf[np.ix_(rows, columns)]
            fit = _fitted(shown, made)
            if name.startswith("nearest") and any(one.turn) and (fit is None or fit.levels > 0):
                first = replace(one, is_turned_first=True)
                again = _fitted(shown, made_pixels(pixels, first, name, rows, columns, dtype))
                if again is not None and (fit is None or again.levels < fit.levels):
                    one, fit = first, again
            if fit is not None and fit.levels < _MAY_FIT * MOST_LEVELS:
                yield from (_Candidate(of, one, fit) for of in ((name,) if placement.is_resampled else names))


def shown_part(shape: tuple[int, ...], placement: LeafPlacement) -> tuple[Ints, Ints]:
    """Return the rows and columns of an upright leaf inside the image, without padding."""
    rows, columns = (
        np.arange(max(0, -at), min(side, size - at))
        for at, side, size in zip(placement.at, shape, placement.size, strict=False)
    )
    return rows, columns


def made_pixels(
    pixels: Array, placement: LeafPlacement, name: str, rows: Array, columns: Array, dtype: np.dtype[Any]
) -> Floats:
    top, left = placement.at
    if name == UNSCALED:
        shown: Floats = pixels[np.ix_(rows + top, columns + left)].astype(np.float64)
        return shown
    made = resample(pixels, placement.size, name, rows + top, columns + left, placement.backward)
    return made.clip(0, 255) if dtype == np.uint8 else made


def _fitted(leaf: Array, made: Floats, nearest: Ints | None = None) -> _Fit | None:
    """Fit each channel of a leaf by its nearest source channel, or by a given one; None if one is constant."""
    values, pixels = leaf.reshape(-1, leaf.shape[2]).astype(np.float64), made.reshape(-1, made.shape[2])
    from_mean, of_mean = values - values.mean(axis=0), pixels - pixels.mean(axis=0)
    spread = (of_mean**2).sum(axis=0)
    if not spread.all() or not (from_mean**2).sum(axis=0).all():
        return None
    slope = of_mean.T @ from_mean / spread[:, None]  # [source, leaf]
    rest = (from_mean**2).sum(axis=0) - slope**2 * spread[:, None]
    nearest = rest.argmin(axis=0) if nearest is None else nearest
    scale = slope[nearest, np.arange(values.shape[1])]
    shift = values.mean(axis=0) - scale * pixels.mean(axis=0)[nearest]
    if not (np.abs(scale) > 0).all():
        return None
    channels = tuple(GREY if channel > 2 else int(channel) for channel in nearest)
    return _Fit(_levels(values, pixels[:, nearest], scale, shift), channels, nearest, scale, shift)


def _levels(values: Array, pixels: Floats, scale: Floats, shift: Floats) -> float:
    """Return the 99 % quantile of the difference between values and scaled pixels, in source levels."""
    return float(np.quantile(np.abs(values - (pixels * scale + shift)) / np.abs(scale), 0.99))


def _measured(
    found: Sequence[_Candidate], leaves: Sequence[Array], seen: Sequence[Sighting], layout: str
) -> tuple[float, PictureExplanation] | None:
    """Return the explanation that the candidates of all samples agree on, verified on all pixels.

    The sum of the samples' differences in levels distinguishes filters that a single sample does not. The channels of
    grey photographs are equal and fit many; those of one colour photograph fit them all.
    """
    by_channels = {one.fit.channels: one.fit for one in found if one.fit is not None}
    measured = (_measured_by(fit, found, leaves, seen, layout) for fit in by_channels.values())
    return min((one for one in measured if one is not None), key=lambda one: one[0], default=None)


def _measured_by(
    of_grid: _Fit, found: Sequence[_Candidate], leaves: Sequence[Array], seen: Sequence[Sighting], layout: str
) -> tuple[float, PictureExplanation] | None:
    """Return the same for the channels of one sample's fit."""
    scales, shifts, levels = list[Floats](), list[Floats](), list[float]()
    fills: set[tuple[float, ...]] = set()
    pairs: list[tuple[Array, Floats]] = []
    for one, of_sample, each in zip(found, leaves, seen, strict=True):
        leaf, window = one.placement.upright(of_sample), one.placement.window
        pixels = cut(_channels(each.source, leaf.shape[2]), window)
        rows, columns = shown_part(leaf.shape, one.placement)
        made = made_pixels(pixels, one.placement, one.filter, rows, columns, each.source.dtype)
        shown = leaf[np.ix_(rows, columns)]
        pairs.append((shown, made[..., of_grid.nearest]))
        fills |= _fills(leaf, rows, columns)
        if one.fit is None:
            continue
        fit = _fitted(shown, made, of_grid.nearest)
        if fit is None or fit.levels > MOST_LEVELS:
            return None
        scales.append(fit.scale)
        shifts.append(fit.shift)
        levels.append(fit.levels)
    if len(fills) > 1:
        return None
    scale, shift = np.array(scales), np.array(shifts)
    common = np.median(scale, axis=0), np.median(shift, axis=0)
    differs = max(np.ptp(scale, axis=0).max() * 255, np.ptp(shift, axis=0).max()) > 5 * np.abs(scale).mean()
    if differs or len(levels) < len(found):  # flat samples constrain their scale little, and the common one may fit
        differs = any(_levels(*pair, *common) > MOST_LEVELS for pair in pairs)
    if differs and len(levels) < len(found):
        return None
    return sum(levels), PictureExplanation(
        layout=layout,
        filter=None if found[0].filter == UNSCALED else found[0].filter,
        channels=of_grid.channels,
        scale=tuple(common[0].tolist()),
        shift=tuple(common[1].tolist()),
        is_scaled_by_sample=bool(differs),
        placements=tuple(one.placement for one in found),
        levels=max(levels),
        fill=next(iter(fills), None),
        by_sample=tuple(zip(scale[:, 0].tolist(), shift[:, 0].tolist(), strict=True)),
    )


def _fills(leaf: Array, rows: Ints, columns: Ints) -> set[tuple[float, ...]]:
    """Return the values of an upright leaf outside these rows and columns."""
    is_out = np.ones(leaf.shape[:2], bool)
    is_out[np.ix_(rows, columns)] = False
    return {tuple(value) for value in np.unique(leaf[is_out], axis=0).tolist()}
