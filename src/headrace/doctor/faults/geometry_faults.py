"""Faults of geometry: fields cut differently, and ignored orientation."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from itertools import combinations

import numpy as np
from PIL import Image

from headrace.doctor.explain import LeafPlacement, MaskExplanation, PictureExplanation, PlaneExplanation
from headrace.doctor.explain.look import LeafPath, Look, LookedSample
from headrace.doctor.explain.pictures import Array, sided
from headrace.doctor.explain.samples import LeafExplanation, spread
from headrace.doctor.faults.fault_kinds import KINDS
from headrace.doctor.session.after_run import DataFault

_APART = 0.03
"""Minimum distance between windows of two fields, as a share of the image."""
_ORIENTATION = 0x0112
_MIRRORED, _TRANSPOSED = 2, 5
"""EXIF orientations: a horizontal flip, and the first of those that transpose."""
_MOST_SHOWN = 4


def misaligned(look: Look, explained: Mapping[LeafPath, LeafExplanation]) -> Iterator[DataFault]:
    """Yield an image and a mask or depth map of one sample that show different windows or flips."""
    placed = {path: one for path, one in explained.items() if getattr(one.by, "placements", ())}
    for (path, one), (other_path, other) in combinations(placed.items(), 2):
        if not _belong_together(one, other):
            continue
        apart = [how for how in differences(one, other) if how]
        if apart:
            yield KINDS["misaligned"].found(
                path, other_path, how=" and ".join(sorted(set(apart))), count=len(apart), looked=len(one.seen)
            )


def _belong_together(one: LeafExplanation, other: LeafExplanation) -> bool:
    """Return True for an image and a map of its pixels. Two images, or two cuts of one file, may differ on purpose."""
    pair = {type(one.by), type(other.by)}
    if pair == {PictureExplanation}:
        grey = [all(seen.source.ndim == 2 for seen in each.seen) for each in (one, other)]
        return one.input != other.input and grey[0] != grey[1]
    return PictureExplanation in pair and bool(pair & {MaskExplanation, PlaneExplanation})


def differences(one: LeafExplanation, other: LeafExplanation) -> Iterator[str]:
    """Yield, for each sample, how the geometry of two leaves differs; empty if it does not."""
    for (first, shown), (second, other_shown) in zip(shown_parts(one), shown_parts(other), strict=False):
        turns = [(each.is_flipped, each.is_upside_down, each.is_transposed) for each in (first, second)]
        if turns[0] != turns[1]:
            yield "flip"
        else:
            yield "window" if np.abs(np.subtract(shown, other_shown)).max() > _APART else ""


def shown_parts(one: LeafExplanation) -> Iterator[tuple[LeafPlacement, tuple[float, ...]]]:
    """Yield each sample's placement, and the part of its source that the leaf shows."""
    if isinstance(one.by, PictureExplanation | MaskExplanation | PlaneExplanation):
        for placement, seen in zip(one.by.placements, one.seen, strict=False):
            yield placement, _visible(placement, sided(seen.leaf, one.by.layout), seen.source)


def _visible(placement: LeafPlacement, leaf: Array, source: Array) -> tuple[float, ...]:
    """Return what a leaf [height, width, channels] shows, as shares of its source: top, left, bottom, right."""
    sides = leaf.shape[1::-1] if placement.is_transposed else leaf.shape[:2]
    found = []
    for axis in (0, 1):
        begin, length = placement.window[axis], placement.window[2 + axis]
        first, last = placement.at[axis], placement.at[axis] + sides[axis]
        share = [min(max(at / placement.size[axis], 0.0), 1.0) for at in (first, last)]
        found.append([(begin + length * each) / source.shape[axis] for each in share])
    return found[0][0], found[1][0], found[0][1], found[1][1]


def ignored_orientation(look: Look, explained: Mapping[LeafPath, LeafExplanation]) -> Iterator[DataFault]:
    """Yield images that are shown as stored, although their files say that they are turned."""
    for path, one in explained.items():
        ignored = ignored_turns(look, one)
        if ignored:
            some = ", ".join(f"sample {index} ({turn})" for index, turn in sorted(ignored.items())[:_MOST_SHOWN])
            looked = len(spread(look.samples))
            yield KINDS["ignored-orientation"].found(path, count=len(ignored), looked=looked, some=some)


def ignored_turns(look: Look, one: LeafExplanation) -> dict[int, int]:
    """Return the EXIF orientations that an image does not show, by index of the sample."""
    if not isinstance(one.by, PictureExplanation) or one.input is None or one.decoding == "exif":
        return {}
    return {
        each.index: turn
        for each, placement in zip(spread(look.samples), one.by.placements, strict=False)
        if not _is_honoured(turn := _orientation(each, one.input), placement)
    }


def _is_honoured(orientation: int, placement: LeafPlacement) -> bool:
    """Return True if a picture may be shown by its orientation. A mirrored one may be a random flip."""
    if orientation >= _TRANSPOSED:
        return placement.is_transposed
    return orientation <= _MIRRORED or placement.is_upside_down


def _orientation(sample: LookedSample, number: int) -> int:
    """Return the EXIF orientation of a sample's input; 1 if it has none."""
    try:
        with Image.open(io.BytesIO(sample.inputs[number])) as picture:
            found = picture.getexif().get(_ORIENTATION, 1)
    except (OSError, ValueError, IndexError, SyntaxError):
        return 1
    return found if isinstance(found, int) and 1 <= found <= 8 else 1
