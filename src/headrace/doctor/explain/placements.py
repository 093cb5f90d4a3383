"""Placement of a leaf in an image: the window, its resampled size, the visible part, and its turn."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from headrace.doctor.explain.resampling import Floats, resample

Array = npt.NDArray[Any]

_MOST_SEARCHED = 1 << 22
"""Maximum pixels of images that are searched for a leaf: a second of transforms."""
_MOST_LABELS = 64
"""Maximum number of distinct values of a label image, whose leaf may hold other numbers in their place."""


class Box(NamedTuple):
    top: int
    left: int
    height: int
    width: int


@dataclass(frozen=True)
class LeafPlacement:
    """Geometry of one sample: `window` of the source becomes `size`, and the leaf shows a part of it from `at` on.

    Without resampling, the leaf shows the window, unless it is padded. The visible part is transposed, then flipped
    vertically, then horizontally.
    """

    window: Box
    size: tuple[int, int]
    at: tuple[int, int]
    is_flipped: bool = False
    is_upside_down: bool = False
    is_transposed: bool = False
    is_turned_first: bool = False
    """True if it was flipped before it was resampled, which shows where nearest filters round a tie."""

    @property
    def backward(self) -> tuple[bool, bool]:
        """Rows and columns that were resampled in the order of their flip."""
        return self.is_turned_first and self.is_upside_down, self.is_turned_first and self.is_flipped

    @property
    def is_resampled(self) -> bool:
        return self.size != (self.window.height, self.window.width)

    @property
    def turn(self) -> Turn:
        return Turn(self.is_flipped, self.is_upside_down, self.is_transposed)

    def is_padded(self, shape: tuple[int, ...]) -> bool:
        """Return True if a leaf of this shape reaches out of the resampled image."""
        height, width = shape[:2] if not self.is_transposed else shape[1::-1]
        return min(self.at) < 0 or self.at[0] + height > self.size[0] or self.at[1] + width > self.size[1]

    def upright(self, leaf: Array) -> Array:
        """Return a leaf [height, width, ...] with its turn undone."""
        leaf = leaf[:, ::-1] if self.is_flipped else leaf
        leaf = leaf[::-1] if self.is_upside_down else leaf
        return leaf.swapaxes(0, 1) if self.is_transposed else leaf

    def turned(self, shown: Array) -> Array:
        """Apply the turn to the visible part: the inverse of `upright`."""
        shown = shown.swapaxes(0, 1) if self.is_transposed else shown
        shown = shown[::-1] if self.is_upside_down else shown
        return shown[:, ::-1] if self.is_flipped else shown


@dataclass(frozen=True)
class Sighting:
    """One leaf as seen, and the image that it may be made from."""

    leaf: Array
    source: Array
    """Decoded pixels, [height, width] or [height, width, channels]."""
    boxes: tuple[Box, ...] = ()
    """Crop windows seen in calls, of the source or of a resized source."""
    sizes: tuple[tuple[int, int], ...] = ()
    """Sizes seen in resampling calls, height first."""

    @cached_property
    def outlines(self) -> dict[tuple[int, int], tuple[Floats, npt.NDArray[np.complex128]]]:
        """Outline of the source, and its spectrum, cached by size."""
        return {}

    @cached_property
    def is_label(self) -> bool:
        return self.source.ndim == 2 and len(np.unique(self.source)) <= _MOST_LABELS

    def outline(self, picture: Array) -> Floats:
        """Return what shows the place of a picture [height, width, channels]: its brightness, or borders of labels."""
        mean: Floats = picture.mean(axis=2, dtype=np.float64)
        return _borders(mean) if self.is_label else mean

    def outline_at(self, size: tuple[int, int]) -> tuple[Floats, npt.NDArray[np.complex128]]:
        if size not in self.outlines:
            source = self.source if self.source.ndim == 3 else self.source[..., None]
            name = "nearest-opencv" if self.is_label else "triangle"
            outline = self.outline(source if size == source.shape[:2] else resample(source, size, name))
            self.outlines[size] = outline, np.fft.rfft2(outline)
        return self.outlines[size]


class Turn(NamedTuple):
    """Turn of a leaf, with the flags of a placement."""

    is_flipped: bool
    is_upside_down: bool
    is_transposed: bool


UNTRANSPOSED, TRANSPOSED = (
    tuple(Turn(flipped, upside_down, transposed) for upside_down, flipped in itertools.product((False, True), repeat=2))
    for transposed in (False, True)
)


Rule = tuple[str, ...]
"""Relation of a placement to a picture and the seen calls, the same in every sample of a script."""
Find = Callable[[Array, Sighting], Iterator[tuple[Rule, LeafPlacement]]]


def every_placement(leaf: Array, each: Sighting) -> Iterator[LeafPlacement]:
    """Yield all geometries that may have made a leaf, most likely first."""
    for find, groups in SEARCHES:
        for turn in (one for turns in groups for one in turns):
            for _, placement in find(unturned(leaf, turn), each):
                turned = replace(placement, **turn._asdict())
                yield turned
                if placement.is_resampled and any(turn):
                    yield replace(turned, is_turned_first=True)


def unturned(leaf: Array, turn: Turn) -> Array:
    return LeafPlacement(Box(0, 0, 0, 0), (0, 0), (0, 0), *turn).upright(leaf)


def placements(leaf: Array, each: Sighting) -> Iterator[tuple[Rule, LeafPlacement]]:
    """Yield geometries that may have made an upright leaf: of each window the whole, the centre, or a window in it."""
    height, width = leaf.shape[:2]
    whole = Box(0, 0, *each.source.shape[:2])
    windows = [window for window in each.boxes if _is_inside(window, whole)]
    for window in dict.fromkeys((*windows, whole)):
        of = "whole" if window == whole else "window"
        sizes = {"leaf": [(height, width)], "same": [(window.height, window.width)], "call": each.sizes}
        sizes["short"] = list(_short_sides(window, each.sizes))
        for rule, size in ((rule, size) for rule, some in sizes.items() for size in dict.fromkeys(some)):
            over = size[0] - height, size[1] - width
            if min(over) >= 0:
                yield (of, rule), placed(window, size, (round(over[0] / 2), round(over[1] / 2)), leaf)
    for size, box in itertools.product(each.sizes, each.boxes):
        is_padded = not _is_inside(box, Box(0, 0, *size))
        is_shown = box.top < size[0] and box.left < size[1] and size != (whole.height, whole.width)
        if (box.height, box.width) == (height, width) and (is_shown or not is_padded):
            for left in (box.left, size[1] - width - box.left):  # the latter of a picture that was mirrored before
                yield ("whole", "call", "window"), placed(whole, size, (box.top, left), leaf)


def _is_inside(window: Box, whole: Box) -> bool:
    reach = window.top + window.height, window.left + window.width
    is_within = reach[0] <= whole.height and reach[1] <= whole.width
    return is_within and min(window.top, window.left) >= 0 and min(window.height, window.width) > 0


def found_placements(leaf: Array, each: Sighting) -> Iterator[tuple[Rule, LeafPlacement]]:
    """Yield the position of an upright leaf in the source by correlation, at its own size or one seen in calls."""
    whole = Box(0, 0, *each.source.shape[:2])
    for size in dict.fromkeys(((whole.height, whole.width), *each.sizes)):
        over = size[0] - leaf.shape[0], size[1] - leaf.shape[1]
        if min(over) >= 0 and max(over) > 0 and size[0] * size[1] <= _MOST_SEARCHED:
            at = _place_of(each.outline(leaf), *each.outline_at(size))
            rule = "same" if size == (whole.height, whole.width) else "call"
            yield ("found", rule), placed(whole, size, at, leaf)


def padded_placements(leaf: Array, each: Sighting) -> Iterator[tuple[Rule, LeafPlacement]]:
    """Yield placements of the part of an upright leaf inside equal margins, with `at` outside the visible part."""
    inner = margins(leaf)
    if inner is None:
        return
    part = leaf[inner.top : inner.top + inner.height, inner.left : inner.left + inner.width]
    for find in (placements, found_placements):
        for _, placement in find(part, each):
            top, left = placement.at
            window = placement.window if placement.is_resampled else Box(0, 0, *each.source.shape[:2])
            if not placement.is_resampled:
                top, left = placement.window.top, placement.window.left
            size = placement.size if placement.is_resampled else (window.height, window.width)
            yield ("padded",), LeafPlacement(window, size, (top - inner.top, left - inner.left))


SEARCHES: tuple[tuple[Find, tuple[tuple[Turn, ...], ...]], ...] = (
    (placements, (UNTRANSPOSED, TRANSPOSED)),
    (found_placements, tuple((turn,) for turn in (*UNTRANSPOSED, *TRANSPOSED))),
    (padded_placements, tuple((turn,) for turn in UNTRANSPOSED[:2])),
)
"""Search functions, cheapest first, each with groups of turns: a leaf has the same shape in all turns of a group, and
they share its result."""


def known_placements(seen: Sequence[Sighting], view: Sequence[LeafPlacement]) -> Find:
    """Return the search that yields the placement of another leaf in each sample, without its turn."""
    known = {id(each): placement for each, placement in zip(seen, view, strict=False)}

    def find(leaf: Array, each: Sighting) -> Iterator[tuple[Rule, LeafPlacement]]:
        one = known.get(id(each))
        if one is not None and _is_inside(one.window, Box(0, 0, *each.source.shape[:2])):
            yield ("known",), LeafPlacement(one.window, one.size, one.at)

    return find


def margins(leaf: Array) -> Box | None:
    """Return the box inside a leaf's margins of one value; None without margins."""
    for corner in (leaf[0, 0], leaf[-1, -1]):
        differs = (leaf != corner).any(axis=2)
        rows, columns = np.flatnonzero(differs.any(axis=1)), np.flatnonzero(differs.any(axis=0))
        if not len(rows):
            return None
        inner = Box(int(rows[0]), int(columns[0]), int(np.ptp(rows)) + 1, int(np.ptp(columns)) + 1)
        if (inner.height, inner.width) != leaf.shape[:2]:
            return inner
    return None


def placed(window: Box, size: tuple[int, int], at: tuple[int, int], leaf: Array) -> LeafPlacement:
    """Return a placement. Without resampling, its window is the visible part."""
    height, width = leaf.shape[:2]
    if size != (window.height, window.width):
        return LeafPlacement(window, size, at)
    return LeafPlacement(Box(window.top + at[0], window.left + at[1], height, width), (height, width), (0, 0))


def _place_of(part: Floats, picture: Floats, spectrum: npt.NDArray[np.complex128]) -> tuple[int, int]:
    """Return row and column of a part's best match by normalised cross-correlation, given the image's `spectrum`."""
    part = part - part.mean()
    shape = picture.shape[0] - part.shape[0] + 1, picture.shape[1] - part.shape[1] + 1
    likeness = np.fft.irfft2(spectrum * np.conj(np.fft.rfft2(part, picture.shape)), picture.shape)
    centred = picture - picture.mean()
    total, squares = (_window_sums(each, part.shape) for each in (centred, centred**2))
    spread = np.sqrt(np.maximum(squares - total**2 / part.size, 1e-9))
    at = np.argmax(likeness[: shape[0], : shape[1]] / spread)
    return int(at // shape[1]), int(at % shape[1])


def _borders(values: Floats) -> Floats:
    """Return 1.0 for each pixel that differs from one of its four neighbours, the same in all turns; else 0.0."""
    down, across = values[1:] != values[:-1], values[:, 1:] != values[:, :-1]
    found = np.zeros(values.shape)
    for one, differs in ((found[1:], down), (found[:-1], down), (found[:, 1:], across), (found[:, :-1], across)):
        one[differs] = 1.0
    return found


def _window_sums(values: Floats, shape: tuple[int, ...]) -> Floats:
    sums = np.pad(values.cumsum(axis=0).cumsum(axis=1), ((1, 0), (1, 0)))
    height, width = shape
    found: Floats = sums[height:, width:] - sums[:-height, width:] - sums[height:, :-width] + sums[:-height, :-width]
    return found


def _short_sides(window: Box, sizes: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield the window's size scaled so that its short side equals that of a size seen in calls."""
    for short in {min(size) for size in sizes}:
        height, width = window.height, window.width
        yield (short, int(short * width / height)) if height <= width else (int(short * height / width), short)


def is_scaled(size: tuple[int, ...], whole: tuple[int, ...]) -> bool:
    """Return True if a size is another's at one scale, up to a pixel."""
    by = min(size[:2]) / min(whole[:2])
    return max(abs(size[0] - whole[0] * by), abs(size[1] - whole[1] * by)) <= 1


def cut(picture: Array, window: Box) -> Array:
    return picture[window.top : window.top + window.height, window.left : window.left + window.width]
