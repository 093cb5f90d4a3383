"""Boxes, points and maps beside an image of their sample, none of which a file explains."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeGuard

import numpy as np

from headrace.doctor.explain import LeafPlacement, PictureExplanation
from headrace.doctor.explain.look import LeafPath, Look
from headrace.doctor.explain.pictures import Array, layouts, sided
from headrace.doctor.explain.resampling import Floats
from headrace.doctor.explain.samples import explain_look, spread
from headrace.doctor.faults.fault_kinds import INTENDED, Explained
from headrace.doctor.faults.geometry_faults import LEAST, MISALIGNED, is_picture
from headrace.doctor.session.after_run import DataFault

_LEAST_PIXELS, _MOST_SCALE = 2.0, 1.05
"""Box coordinates: least largest one in pixels, and the largest as a multiple of the image's side."""
_CHANCE = 1e-3
"""Maximum probability that boxes all over enlarged images stay in the part that the file's size covers."""
_LEAST_MAP = 8
"""Minimum side of a map of the image's pixels."""
_LEAST_REACH = 0.65
"""Minimum reach of the boxes of all samples, as a share of the image: other rows of four numbers are less."""
_EXPLAIN_S = 2.0
"""CPU time limit of the explanation of one repetition of the samples."""


def left_behind(look: Look, explained: Explained) -> Iterator[DataFault]:
    """Yield boxes or maps that stay as they are, while the image of the same sample is flipped or cut otherwise.

    They may be those of another image, or of the file, if a leaf changes with the image.
    """
    makings = sorted({each.making for each in look.samples})
    images = [path for path, one in explained.items() if is_picture(one)]
    is_drawn = all(explained[path].is_random for path in images) and not _holds_window(explained)
    if not images or len(makings) < 2 or not is_drawn:
        return
    image, placed = images[0], dict[int, list[LeafPlacement]]()
    others = [path for path in explained if path not in images]
    kinds = (_box_reach, _point_reach, _map_reach)
    files = [seen.source.shape[:2] for seen in explained[image].seen]
    sides = dict(zip((each.index for each in spread(look.samples)), files, strict=False))
    boxes, points, maps = ([path for path in others if _is_still(look, path, image, sides, kind)] for kind in kinds)
    still = boxes or points or maps
    if not still:
        return
    for making in makings:
        its = replace(look, samples=[each for each in look.samples if each.making == making])
        by = explain_look(its, _EXPLAIN_S).get(image, explained[image]).by
        for each, placement in zip(spread(its.samples), getattr(by, "placements", ()), strict=False):
            placed.setdefault(each.index, []).append(placement)
    flipped = [index for index, its in placed.items() if len({one.turn for one in its}) > 1]
    moved = [index for index, its in placed.items() if len({one.window for one in its}) > 1 and index not in flipped]
    for apart, how, certainty in ((flipped, "flip", "certain" if boxes else INTENDED), (moved, "window", INTENDED)):
        if len(apart) >= LEAST:
            yield MISALIGNED.found(image, still[0], certainty=certainty, how=how, count=len(apart), looked=len(placed))
            return


def unscaled(look: Look, explained: Explained) -> Iterator[DataFault]:
    """Yield boxes that fit the files of images which are resized or cut, and not the images.

    An image that was enlarged has room for them: boxes of all samples then stay in one corner.
    """
    for image, one in explained.items():
        by = one.by
        sizes = [(_sides(seen.leaf), seen.source.shape[:2]) for seen in one.seen]
        if not isinstance(by, PictureExplanation) or any(leaf == file for leaf, file in sizes):
            continue
        is_scaled = all(placed.is_resampled for placed in by.placements)
        chance = np.prod([np.divide(file, leaf) for leaf, file in sizes])
        boxes = {path: each for path in explained.keys() - {image} if (each := _fits(look, path, sizes))[0]}
        if len(boxes) != 1 or (one.is_random and _holds_window(explained, *boxes)):  # others may be the file's
            continue
        path, (fits, most) = next(iter(boxes.items()))
        if (most >= _LEAST_REACH).all() and ((count := fits.count(False)) >= LEAST or chance <= _CHANCE):
            certainty, how = "certain" if count and is_scaled else INTENDED, "scale" if is_scaled else "window"
            count = count or len(fits)
            yield MISALIGNED.found(image, path, certainty=certainty, how=how, count=count, looked=len(sizes))
            return


def _holds_window(explained: Explained, *boxes: LeafPath) -> bool:
    """Return True if a leaf that shows no pixels changes with the image: it may tell how the file's boxes lie in it."""
    others = [one for path, one in explained.items() if path not in boxes]
    return any(one.is_random and not getattr(one.by, "placements", ()) for one in others)


def _fits(
    look: Look, path: LeafPath, sizes: Sequence[tuple[tuple[int, ...], tuple[int, ...]]]
) -> tuple[list[bool], Floats]:
    """Return whether the boxes of each sample fit its image, and how far they reach in their files.

    None fit unless all may be boxes in pixels of their files.
    """
    found, most = [], np.zeros(2)
    for each, (leaf, file) in zip(spread(look.samples), sizes, strict=False):
        value = each.leaves[path].value
        reach = _box_reach(value, file) if _are_numbers(value) and value.size else None
        if reach is not None:
            most = np.maximum(most, reach)
            found.append(_box_reach(value, leaf) is not None)
        elif not _are_numbers(value) or value.size:
            return [], most
    return found, most


def _are_numbers(value: Any) -> TypeGuard[Array]:
    return isinstance(value, np.ndarray) and value.dtype.kind in "iuf"


def _sides(leaf: Array) -> tuple[int, ...]:
    """Return height and width of an image leaf."""
    return sided(leaf, next(layouts(leaf))).shape[:2]


def _box_reach(value: Array, sides: tuple[int, ...]) -> Floats | None:
    """Return how far boxes in pixels [..., 4] reach: by two corners, or by corner and size."""
    if value.shape[-1:] != (4,) or value.ndim > 2:
        return None
    first, second = value[..., :2], value[..., 2:]
    return _reach(value, second if (second >= first).all() else first + second, sides)


def _point_reach(value: Array, sides: tuple[int, ...]) -> Floats | None:
    """Return how far points in pixels [N, 2] reach, or [N, 3] with their visibility."""
    is_seen = value.ndim == 2 and value.shape[1] in (2, 3) and np.isin(value[:, 2:], (0, 1, 2)).all()
    return _reach(value, value[:, :2], sides) if is_seen and value.dtype.kind == "f" else None


def _reach(value: Array, ends: Array, sides: tuple[int, ...]) -> Floats | None:
    """Return the largest x and y as shares of an image's width and height; None if some are not its pixels."""
    reach: Floats = ends.reshape(-1, 2).max(axis=0) / sides[::-1]
    return reach if value.min() >= 0 and value.max() > _LEAST_PIXELS and (reach <= _MOST_SCALE).all() else None


def _map_reach(value: Array, sides: tuple[int, ...]) -> Floats | None:
    """Return the whole reach of a map of an image's pixels, or of every second, fourth or eighth."""
    strides = [tuple(side // stride for side in sides) for stride in (1, 2, 4, 8)]
    is_uneven = value.ndim == 2 and not np.array_equal(value, value[:, ::-1])
    return np.ones(2) if is_uneven and value.shape in strides and min(value.shape) >= _LEAST_MAP else None


def _is_still(
    look: Look,
    path: LeafPath,
    image: LeafPath,
    files: Mapping[int, tuple[int, ...]],
    reach: Callable[[Array, tuple[int, ...]], Floats | None],
) -> bool:
    """Return True if a leaf of a kind is the same each time that a sample is made, and tells samples apart.

    It is in pixels of the image, or of the samples' `files`, whose sides are given by index.
    """
    by_index: dict[int, list[Array]] = {}
    most: Floats = np.zeros(2)
    for each in look.samples:
        value = each.leaves[path].value if path in each.leaves else None
        if not _are_numbers(value) or not value.size:
            return False
        sides = _sides(each.leaves[image].value)
        frames = sides, sides[::-1], files.get(each.index, sides)  # quarter turns may be drawn
        reaches = [each for each in (reach(value, frame) for frame in frames) if each is not None]
        if not reaches:
            return False
        most = np.maximum(most, reaches[0])
        by_index.setdefault(each.index, []).append(value)
    firsts = [values[0].tobytes() for values in by_index.values()]
    return (
        bool((most >= _LEAST_REACH).all())
        and len(set(firsts)) > 1
        and all(
            values[0].shape == other.shape and np.array_equal(values[0], other)
            for values in by_index.values()
            for other in values
        )
    )
