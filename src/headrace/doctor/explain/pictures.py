"""Explanation of an array by the picture that it was made from: window, size, filter, flip, channels and scale.

A leaf of a batch is `scale * resampled(window of the decoded file) + shift`, in some order of channels and sides. Given
both, each candidate is fitted by least squares on a grid of pixels, and the best one is measured on all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from .resampling import FILTERS, Floats, resample

Array = npt.NDArray[Any]

GREY = -1
"""Channel that stands for the brightness of a colour picture, as Pillow and OpenCV compute it."""
_LUMA = np.array([0.299, 0.587, 0.114])
_GRID = 40
"""Rows and columns of the pixels that candidates are fitted on."""
MOST_LEVELS = 1.0
"""Difference in levels of the source that 99 % of pixels may have: libraries round, some of them twice."""
_CLOSE = 1.5
"""Candidates whose difference is at most so many times the least one's are told apart by further samples."""
_MOST_SEARCHED = 1 << 22
"""Pixels of pictures in which a leaf is looked for: a second of transforms."""
_UNSCALED = "none"
"""In place of a filter where the window has the leaf's size."""


class Box(NamedTuple):
    """Rectangle of pixels."""

    top: int
    left: int
    height: int
    width: int


@dataclass(frozen=True)
class LeafPlacement:
    """Geometry of one sample: `window` of the source becomes `size`, of which the leaf shows a part from `at` on.

    Where nothing is resampled, the leaf shows the window.
    """

    window: Box
    size: tuple[int, int]
    at: tuple[int, int]
    is_flipped: bool = False

    @property
    def is_resampled(self) -> bool:
        return self.size != (self.window.height, self.window.width)


@dataclass(frozen=True)
class Sighting:
    """One leaf as it was seen, and the picture that it may be made from."""

    leaf: Array
    source: Array
    """Decoded pixels, [height, width] or [height, width, channels]."""
    boxes: tuple[Box, ...] = ()
    """Windows of the source that calls were seen to cut."""
    sizes: tuple[tuple[int, int], ...] = ()
    """Sizes, height first, that calls were seen to resample to."""


@dataclass(frozen=True)
class PictureExplanation:
    """How a leaf is made of a picture, the same in all samples but for the placements."""

    layout: str
    """Sides of the leaf, outermost first: "CHW", "HWC" or "HW"."""
    filter: str | None
    """Name of `resampling.FILTERS`; None where nothing is resampled."""
    channels: tuple[int, ...]
    """Channel of the source that each of the leaf's shows, or GREY."""
    scale: tuple[float, ...]
    shift: tuple[float, ...]
    """Leaf = scale * source + shift, by channel."""
    is_scaled_by_sample: bool
    """Whether scale and shift differ from sample to sample; then they are those of the first."""
    placements: tuple[LeafPlacement, ...]
    levels: float
    """Largest difference of the samples, in levels of the source, that 99 % of pixels stay within."""


class _Fit(NamedTuple):
    levels: float
    channels: tuple[int, ...]
    scale: Floats
    shift: Floats


class _Candidate(NamedTuple):
    filter: str
    placement: LeafPlacement
    fit: _Fit


def explain_picture(seen: Sequence[Sighting]) -> PictureExplanation | None:
    """Return how the leaves are made of their pictures; None where no candidate fits all of them.

    The leaves are of one place in the batch, and have equal types and numbers of sides.
    """
    for layout in layouts(seen[0].leaf):
        names, found = [*FILTERS, _UNSCALED], list[dict[str, _Candidate]]()
        for each in seen:
            best = _best_by_filter(sided(each.leaf, layout), each, names)
            if not best:
                break
            found.append(best)
            least = min(one.fit.levels for one in best.values())
            names = [
                name for name in names if name in best and best[name].fit.levels <= max(_CLOSE * least, least + 0.02)
            ]
        if len(found) < len(seen):
            continue
        measured = [_measured([best[name] for best in found if name in best], seen, layout) for name in names]
        fitting = [one for one in measured if one is not None]
        if fitting:
            least = min(one.levels for one in fitting)
            return next(one for one in fitting if one.levels <= least + 1e-4)
    return None


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


def _with_grey(source: Array) -> Array:
    """Return a picture as [height, width, channels], with its brightness as the last channel of a colour picture."""
    sided = source[..., None] if source.ndim == 2 else source
    if sided.shape[2] < 3:
        return sided
    return np.concatenate([sided[..., :3], np.round(sided[..., :3] @ _LUMA)[..., None]], axis=2)


def _best_by_filter(leaf: Array, each: Sighting, names: Sequence[str]) -> dict[str, _Candidate]:
    """Return the best candidate of each filter, of those that fit at all."""
    best: dict[str, _Candidate] = {}
    source = _with_grey(each.source)
    for find in (placements, found_placements):
        for placement in find(leaf, each):
            _try(leaf, source, each.source.dtype, placement, names, best)
        if any(one.fit.levels <= MOST_LEVELS for one in best.values()):
            break
    return best


def _try(
    leaf: Array,
    source: Array,
    dtype: np.dtype[Any],
    placement: LeafPlacement,
    names: Sequence[str],
    best: dict[str, _Candidate],
) -> None:
    """Fit a placement by each filter, and enter it in `best` where it is better."""
    rows, columns = (np.unique(np.linspace(0, side - 1, _GRID).astype(np.int64)) for side in leaf.shape[:2])
    pixels = cut(source, placement.window)
    for name in names:
        if (name == _UNSCALED) == placement.is_resampled:
            continue
        made = _made(pixels, placement, name, rows, columns, dtype)
        for is_flipped in (False, True):
            shown = leaf[:, ::-1] if is_flipped else leaf
            fit = _fitted(shown[np.ix_(rows, columns)], made)
            if fit is not None and fit.levels < (best[name].fit.levels if name in best else 4 * MOST_LEVELS):
                best[name] = _Candidate(name, replace(placement, is_flipped=is_flipped), fit)


def cut(picture: Array, window: Box) -> Array:
    return picture[window.top : window.top + window.height, window.left : window.left + window.width]


def _made(
    pixels: Array, placement: LeafPlacement, name: str, rows: Array, columns: Array, dtype: np.dtype[Any]
) -> Floats:
    top, left = placement.at
    if name == _UNSCALED:
        shown: Floats = pixels[np.ix_(rows + top, columns + left)].astype(np.float64)
        return shown
    made = resample(pixels, placement.size, name, rows + top, columns + left)
    return made.clip(0, 255) if dtype == np.uint8 else made


def every_placement(leaf: Array, each: Sighting) -> Iterator[LeafPlacement]:
    """Yield all geometries that may have made a leaf, as they are and flipped, the likeliest first."""
    for find in (placements, found_placements):
        for placement in find(leaf, each):
            yield placement
            yield replace(placement, is_flipped=True)


def placements(leaf: Array, each: Sighting) -> Iterator[LeafPlacement]:
    """Yield geometries that may have made a leaf: of each window the whole, or the centre."""
    height, width = leaf.shape[:2]
    for window in dict.fromkeys((*each.boxes, Box(0, 0, *each.source.shape[:2]))):
        if window.height < 1 or window.width < 1:
            continue
        sizes = [(height, width), (window.height, window.width), *each.sizes, *_short_sides(window, each.sizes)]
        for size in dict.fromkeys(sizes):
            over = size[0] - height, size[1] - width
            if min(over) >= 0:
                yield _placement(window, size, (round(over[0] / 2), round(over[1] / 2)), leaf)


def found_placements(leaf: Array, each: Sighting) -> Iterator[LeafPlacement]:
    """Yield where a leaf lies in the source, or in the source at a size that was seen, as correlation finds it."""
    whole = Box(0, 0, *each.source.shape[:2])
    source = each.source if each.source.ndim == 3 else each.source[..., None]
    for size in dict.fromkeys(((whole.height, whole.width), *each.sizes)):
        is_within = size[0] >= leaf.shape[0] and size[1] >= leaf.shape[1]
        if is_within and max(size[0] * size[1], whole.height * whole.width) <= _MOST_SEARCHED:
            picture = source if size == source.shape[:2] else resample(source, size, "triangle")
            brightness = picture.mean(axis=2, dtype=np.float64)
            for shown in (leaf, leaf[:, ::-1]):
                yield _placement(whole, size, _place_of(shown.mean(axis=2, dtype=np.float64), brightness), leaf)


def _placement(window: Box, size: tuple[int, int], at: tuple[int, int], leaf: Array) -> LeafPlacement:
    """Return a placement. Where nothing is resampled, its window is what the leaf shows."""
    height, width = leaf.shape[:2]
    if size != (window.height, window.width):
        return LeafPlacement(window, size, at)
    return LeafPlacement(Box(window.top + at[0], window.left + at[1], height, width), (height, width), (0, 0))


def _place_of(part: Floats, picture: Floats) -> tuple[int, int]:
    """Return the row and column at which a part is most like the picture, by normalised cross-correlation."""
    part = part - part.mean()
    shape = picture.shape[0] - part.shape[0] + 1, picture.shape[1] - part.shape[1] + 1
    likeness = np.fft.irfft2(np.fft.rfft2(picture) * np.conj(np.fft.rfft2(part, picture.shape)), picture.shape)
    centred = picture - picture.mean()
    total, squares = (_window_sums(each, part.shape) for each in (centred, centred**2))
    spread = np.sqrt(np.maximum(squares - total**2 / part.size, 1e-9))
    at = np.argmax(likeness[: shape[0], : shape[1]] / spread)
    return int(at // shape[1]), int(at % shape[1])


def _window_sums(values: Floats, shape: tuple[int, ...]) -> Floats:
    """Return the sum of each window of a shape."""
    sums = np.pad(values.cumsum(axis=0).cumsum(axis=1), ((1, 0), (1, 0)))
    height, width = shape
    found: Floats = sums[height:, width:] - sums[:-height, width:] - sums[height:, :-width] + sums[:-height, :-width]
    return found


def _short_sides(window: Box, sizes: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield the window's size with its short side as long as that of a size that was seen."""
    for short in {min(size) for size in sizes}:
        height, width = window.height, window.width
        yield (short, int(short * width / height)) if height <= width else (int(short * height / width), short)


def _fitted(leaf: Array, made: Floats) -> _Fit | None:
    """Fit each channel of a leaf by the channel of the source that it is nearest to; None where one is flat."""
    values, pixels = leaf.reshape(-1, leaf.shape[2]).astype(np.float64), made.reshape(-1, made.shape[2])
    from_mean, of_mean = values - values.mean(axis=0), pixels - pixels.mean(axis=0)
    spread = (of_mean**2).sum(axis=0)
    if not spread.all() or not (from_mean**2).sum(axis=0).all():
        return None
    slope = of_mean.T @ from_mean / spread[:, None]  # [source, leaf]
    rest = (from_mean**2).sum(axis=0) - slope**2 * spread[:, None]
    nearest = rest.argmin(axis=0)
    scale = slope[nearest, np.arange(values.shape[1])]
    shift = values.mean(axis=0) - scale * pixels.mean(axis=0)[nearest]
    if not (np.abs(scale) > 0).all():
        return None
    levels = np.abs(values - (pixels[:, nearest] * scale + shift)) / np.abs(scale)
    channels = tuple(GREY if made.shape[2] == 4 and channel == 3 else int(channel) for channel in nearest)
    return _Fit(float(np.quantile(levels, 0.99)), channels, scale, shift)


def _measured(found: Sequence[_Candidate], seen: Sequence[Sighting], layout: str) -> PictureExplanation | None:
    """Return the explanation that the candidates of all samples agree on, measured on all pixels."""
    if len(found) < len(seen) or len({one.fit.channels for one in found}) > 1:
        return None
    scales, shifts, levels = list[Floats](), list[Floats](), 0.0
    for one, each in zip(found, seen, strict=True):
        leaf, window = sided(each.leaf, layout), one.placement.window
        pixels = cut(_with_grey(each.source), window)
        rows, columns = np.arange(leaf.shape[0]), np.arange(leaf.shape[1])
        made = _made(pixels, one.placement, one.filter, rows, columns, each.source.dtype)
        fit = _fitted(leaf[:, ::-1] if one.placement.is_flipped else leaf, made)
        if fit is None or fit.channels != one.fit.channels:
            return None
        scales.append(fit.scale)
        shifts.append(fit.shift)
        levels = max(levels, fit.levels)
    if levels > MOST_LEVELS:
        return None
    scale, shift = np.array(scales), np.array(shifts)
    differs = max(np.ptp(scale, axis=0).max() * 255, np.ptp(shift, axis=0).max()) > 5 * np.abs(scale).mean()
    return PictureExplanation(
        layout=layout,
        filter=None if found[0].filter == _UNSCALED else found[0].filter,
        channels=found[0].fit.channels,
        scale=tuple(np.median(scale, axis=0).tolist()),
        shift=tuple(np.median(shift, axis=0).tolist()),
        is_scaled_by_sample=bool(differs),
        placements=tuple(one.placement for one in found),
        levels=levels,
    )
