"""Pictures beyond a window of a file: stacks of fixed crops, and windows that the script changes in its own way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from headrace.doctor.explain.pictures import (
    MOST_LEVELS,
    UNSCALED,
    Array,
    PictureExplanation,
    explain_picture,
    layouts,
    made_pixels,
    shown_part,
    sided,
)
from headrace.doctor.explain.placements import Box, LeafPlacement, Sighting, Turn, cut, known_placements, placed
from headrace.doctor.explain.resampling import Floats

CROPS = {5: "FiveCrop", 10: "TenCrop"}
"""Views of the Loader by the number of their crops: the corners and the middle, then the same of the mirrored image."""
_CENTRE = 4
"""Number of the crop in the middle."""
_ALIKE = 0.95
"""Correlation of a picture's brightness with that of its window, in half of the samples at least."""
_USUAL = np.array(
    [
        [(0.0,) * 3, (1 / 255,) * 3],
        [(0.0,) * 3, (1.0,) * 3],
        [(0.5,) * 3, (0.5,) * 3],
        [(0.485, 0.456, 0.406), (0.229, 0.224, 0.225)],
    ]
)
"""Usual means and standard deviations of channels, on the scale 0…1: of bytes, 0…1, -1…1 and ImageNet."""
_BYTES, _LEAST_BYTES = 256, 128
"""Numbers of distinct values of a channel that is made of bytes."""
_UNEVEN = 0.1
"""Maximum distance of such a value from an even spacing, as a share of it."""
_NEAR_USUAL = 0.1
"""Share of the range of values within which a usual normalisation takes the place of a fitted one."""


def explain_crops(seen: Sequence[Sighting]) -> PictureExplanation | None:
    """Return how stacks of five or ten crops are made: the recipe of the crop in the middle; None if they are not."""
    counts = {len(each.leaf) for each in seen}
    if len(counts) > 1 or not counts <= CROPS.keys():
        return None
    (count,) = counts
    crops = [[replace(each, leaf=each.leaf[number]) for each in seen] for number in range(count)]
    first = explain_picture(crops[0])
    if first is None or first.is_scaled_by_sample or first.fill is not None:
        return None
    if first.layout != "CHW" or first.channels != tuple(sorted(first.channels)):
        return None
    found = []
    for number, of_crop in enumerate(crops):
        views = [_crop(number, one, each, first.layout) for one, each in zip(first.placements, of_crop, strict=True)]
        turn = Turn(number >= len(crops) // 2 and count == max(CROPS), False, False)
        by = explain_picture(of_crop, [(known_placements(of_crop, views), [[turn]])])
        if by is None or (by.filter, by.channels) != (first.filter, first.channels):
            return None
        found.append(by)
    return replace(found[_CENTRE], crops=CROPS[count])


def _crop(number: int, first: LeafPlacement, each: Sighting, layout: str) -> LeafPlacement:
    """Return the placement of a crop in the image that the first one is a corner of, without its turn."""
    leaf = sided(each.leaf, layout)
    whole = Box(0, 0, *each.source.shape[:2])
    window, size = (first.window, first.size) if first.is_resampled else (whole, (whole.height, whole.width))
    down, right = size[0] - leaf.shape[0], size[1] - leaf.shape[1]
    corner = number % (_CENTRE + 1)
    top, left = (
        (round(down / 2), round(right / 2)) if corner == _CENTRE else (down * (corner // 2), right * (corner % 2))
    )
    return placed(window, size, (top, right - left if number > _CENTRE else left), leaf)


def near_picture(seen: Sequence[Sighting], view: Sequence[LeafPlacement]) -> PictureExplanation | None:
    """Return the recipe whose pictures the leaves are alike, by the placements of another leaf; None if they are not.

    Their own filter, blur or colours are not part of it: its `levels` tell how far the pixels are apart.
    """
    for layout in layouts(seen[0].leaf):
        leaves = [one.upright(sided(each.leaf, layout)) for each, one in zip(seen, view, strict=True)]
        if leaves[0].shape[2] != 3 or any(each.source.ndim != 3 or each.source.dtype != np.uint8 for each in seen):
            continue
        names = ("triangle", "linear") if any(one.is_resampled for one in view) else (UNSCALED,)
        tried = [_near(name, layout, leaves, seen, view) for name in names]
        return min((one for one in tried if one is not None), key=lambda one: one.levels, default=None)
    return None


def _near(
    name: str, layout: str, leaves: Sequence[Floats], seen: Sequence[Sighting], view: Sequence[LeafPlacement]
) -> PictureExplanation | None:
    pairs: list[tuple[Floats, Floats]] = []
    margins = list[Floats]()
    for leaf, each, one in zip(leaves, seen, view, strict=True):
        rows, columns = shown_part(leaf.shape, one)
        pixels = cut(each.source[..., :3], one.window)
        if not len(rows) or not len(columns) or pixels.shape[:2] != (one.window.height, one.window.width):
            return None
        is_out = np.ones(leaf.shape[:2], bool)
        is_out[np.ix_(rows, columns)] = False
        margins += [np.median(leaf[is_out], axis=0)] if is_out.any() else []
        filter_of = name if one.is_resampled else UNSCALED
        made = made_pixels(pixels, one, filter_of, rows, columns, each.source.dtype)
        pairs.append((leaf[np.ix_(rows, columns)].astype(np.float64), made))
    with np.errstate(divide="ignore"):
        alike = [np.corrcoef(leaf.mean(axis=2).ravel(), made.mean(axis=2).ravel())[0, 1] for leaf, made in pairs]
    pairs = [pair for pair, one in zip(pairs, alike, strict=True) if one >= _ALIKE]
    if 2 * len(pairs) < len(seen):
        return None
    is_turned = sum(_closeness(leaf, made[..., ::-1]) - _closeness(leaf, made) for leaf, made in pairs) > 0
    channels = (2, 1, 0) if is_turned else (0, 1, 2)
    lines = [
        [np.polyfit(made[..., k].ravel(), leaf[..., number].ravel(), 1) for number, k in enumerate(channels)]
        for leaf, made in pairs
    ]
    scale, shift = np.median(lines, axis=0).T.tolist()
    filter_ = name if any(one.is_resampled for one in view) else None
    by = PictureExplanation(layout, filter_, channels, tuple(scale), tuple(shift), False, tuple(view), MOST_LEVELS)
    by = with_clear_scale(by, seen)
    fill = min(margins, key=lambda one: np.abs(one - by.shift).sum(), default=None)
    by = replace(by, fill=None if fill is None else tuple(fill.tolist()))
    apart = (np.abs((leaf - by.shift) / by.scale - made[..., channels]) for leaf, made in pairs)
    return replace(by, levels=float(np.median([np.quantile(one, 0.99) for one in apart])))


def _closeness(leaf: Floats, made: Floats) -> float:
    return float(sum(np.corrcoef(leaf[..., k].ravel(), made[..., k].ravel())[0, 1] for k in (0, 2)))


def with_clear_scale(by: PictureExplanation, seen: Sequence[Sighting]) -> PictureExplanation:
    """Return an explanation by the scale and shift of the leaves' bytes, or else of a usual normalisation near its own.

    A leaf made of bytes has at most 256 values in each channel, evenly spaced: their distance is the scale.
    """
    leaves = [sided(each.leaf, by.layout) for each in seen]
    of_bytes = [_byte_scale(leaves, number, shift) for number, shift in enumerate(by.shift)]
    if all(of_bytes):
        scale, shift = np.array(of_bytes).T.tolist()
        return replace(by, scale=tuple(scale), shift=tuple(shift))
    scale, shift = np.array(by.scale), np.array(by.shift)
    for mean, std in _USUAL[:, :, : len(scale)]:
        its_scale, its_shift = 1 / (255 * std), -mean / std
        apart = np.abs([its_shift - shift, 255 * (its_scale - scale) + its_shift - shift]).max()
        if apart <= _NEAR_USUAL * 255 * its_scale.max():
            return replace(by, scale=tuple(its_scale.tolist()), shift=tuple(its_shift.tolist()))
    return by


def _byte_scale(leaves: Sequence[Array], channel: int, near: float) -> tuple[float, float] | None:
    """Return scale and shift of a channel made of bytes; None if it is not.

    The byte of the least value is 0, or that of the most 255, if these occur so often that they were clipped.
    """
    pixels = np.concatenate([leaf[..., channel].ravel() for leaf in leaves]).astype(np.float64)
    values, counts = np.unique(pixels, return_counts=True)
    if not _LEAST_BYTES <= len(values) <= _BYTES:
        return None
    levels = (values - values[0]) / np.diff(values).min()
    if levels[-1] >= _BYTES - 0.5 or np.abs(levels - np.round(levels)).max() > _UNEVEN:
        return None
    scale = (values[-1] - values[0]) / round(levels[-1])
    spare = _BYTES - 1 - round(levels[-1])
    is_clipped = [ends[:2].sum() > ends[2:4].sum() for ends in (counts, counts[::-1])]
    first = 0 if is_clipped[0] else spare if is_clipped[1] else min(max(round((values[0] - near) / scale), 0), spare)
    return float(scale), float(values[0] - first * scale)
