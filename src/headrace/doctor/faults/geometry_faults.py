"""Faults of geometry: leaves of one sample that show different windows or flips, and ignored orientation.

Images whose colours are drawn have no recipe; their brightness shows window and flip.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import combinations, islice

import numpy as np
from PIL import Image

from headrace.doctor.explain import (
    LeafPlacement,
    MaskExplanation,
    PictureExplanation,
    PlaneExplanation,
    Sighting,
    explain_mask,
)
from headrace.doctor.explain.look import LeafPath, Look, LookedSample
from headrace.doctor.explain.masks import NEAREST, shown_values
from headrace.doctor.explain.pictures import Array, layouts, sided
from headrace.doctor.explain.placements import every_placement
from headrace.doctor.explain.resampling import Floats
from headrace.doctor.explain.samples import LeafExplanation, explain_look, is_coloured, spread
from headrace.doctor.faults.fault_kinds import INTENDED, Explained, FaultKind
from headrace.doctor.session.after_run import DataFault

_WINDOWS_APART = 0.03
"""Minimum distance between windows of two fields, as a share of the image."""
_ORIENTATION = 0x0112
_MIRRORED, _TRANSPOSED = 2, 5
"""EXIF orientations: a horizontal flip, and the first of those that transpose."""
_ALIKE = 0.85
"""Minimum correlation of a leaf with the part of its image that it shows."""
_APART = 0.25
"""Minimum difference in correlation between two views of an image that are not the same."""
_LEAST = 2
"""Minimum number of samples whose views differ."""
_MOST_TRIED = 96
"""Maximum number of placements that are tried."""
_LEAST_PIXELS, _MOST_SCALE = 2.0, 1.05
"""Box coordinates: least largest one in pixels, and the largest as a multiple of the image's side."""
_CHANCE = 1e-3
"""Maximum probability that boxes all over enlarged images stay in the part that the file's size covers."""
_LEAST_MAP = 8
"""Minimum side of a map of the image's pixels."""
_BLOCK = 4
"""Side of the blocks of pixels that are compared, since filters and noise change single pixels."""


MISALIGNED = FaultKind(
    "misaligned",
    "{0} and {1} of one sample differ in {how}, in {count} of {looked} samples that were compared with their files.",
    "Draw the window and the flip once per sample, and apply them to both; resize boxes with their image.",
    "the windows and flips that explain an image and a mask, depth map or grey file of the same samples "
    "differ; if the image's colours are drawn, its brightness shows them. Boxes [N, 4] and maps that no file explains "
    "must change where the image is flipped, or (`unless intended`) cut otherwise, when a sample is made again; boxes "
    "must fit the image, not only its file of another size (`unless intended` if that is smaller)",
)


def misaligned(look: Look, explained: Explained) -> Iterator[DataFault]:
    """Yield an image and a mask or depth map of one sample that show different windows or flips."""
    placed = {path: one for path, one in explained.items() if getattr(one.by, "placements", ())}
    for (path, one), (other_path, other) in combinations(placed.items(), 2):
        if not _belong_together(one, other):
            continue
        apart = [how for how in differences(one, other) if how]
        if apart:
            yield MISALIGNED.found(
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
        if first.turn != second.turn:
            yield "flip"
        else:
            yield "window" if np.abs(np.subtract(shown, other_shown)).max() > _WINDOWS_APART else ""


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


IGNORED_ORIENTATION = FaultKind(
    "ignored-orientation",
    "{0} ignores the EXIF orientation of {count} of {looked} files that were looked at: {some}.",
    "Open pictures with PIL.ImageOps.exif_transpose, or turn the files once.",
    "the stored pixels explain an image whose file has an EXIF orientation",
)


def ignored_orientation(look: Look, explained: Explained) -> Iterator[DataFault]:
    """Yield images that are shown as stored, although their files say that they are turned."""
    for path, one in explained.items():
        ignored = ignored_turns(look, one)
        if ignored:
            some = [f"sample {index} ({turn})" for index, turn in sorted(ignored.items())]
            looked = len(spread(look.samples))
            yield IGNORED_ORIENTATION.found(path, count=len(ignored), looked=looked, some=some)


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


# Images whose colours are drawn.


def misaligned_drawn(look: Look, explained: Explained) -> Iterator[DataFault]:
    """Yield an image that shows another window or flip than a mask or depth map of its sample.

    If another image of the samples shows the same as the map, the first may differ on purpose.
    """
    images = [path for path, one in explained.items() if one.by is None and _is_drawn(look, path)]
    for path, one in explained.items() if images else ():
        if not _is_map(one) or any(_is_picture(other) for other in explained.values()):
            continue
        found = {image: [each for each in _compared(look, image, one) if each is not None] for image in images}
        apart = {image: [how for how in hows if how] for image, hows in found.items()}
        if any(hows and not apart[image] for image, hows in found.items()):
            continue
        for image, hows in apart.items():
            if len(hows) >= _LEAST:
                how = " and ".join(sorted(set(hows)))
                yield MISALIGNED.found(image, path, how=how, count=len(hows), looked=len(found[image]))


def _is_drawn(look: Look, path: LeafPath) -> bool:
    return all(path in each.leaves and is_coloured(each.leaves[path]) for each in look.samples)


def _is_map(one: LeafExplanation) -> bool:
    """Return True for a mask, a depth map, or an image of one channel from a grey file."""
    is_grey = bool(one.seen) and all(seen.source.ndim == 2 for seen in one.seen)
    return isinstance(one.by, MaskExplanation | PlaneExplanation) or (
        isinstance(one.by, PictureExplanation) and is_grey
    )


def _is_picture(one: LeafExplanation) -> bool:
    return isinstance(one.by, PictureExplanation) and not _is_map(one)


def _compared(look: Look, image: LeafPath, one: LeafExplanation) -> Iterator[str | None]:
    """Yield, for each sample, how its views differ: empty if they do not, None if that is not known."""
    if not isinstance(one.by, MaskExplanation | PlaneExplanation | PictureExplanation):
        return
    for each, seen, placed in zip(spread(look.samples), one.seen, one.by.placements, strict=False):
        leaf = each.leaves[image].value
        leaf = sided(leaf, next(layouts(leaf)))
        sources = [picture["plain"] for picture in each.pictures if "plain" in picture]
        source = next((source for source in sources if source.ndim == 3), None)
        if (
            source is None
            or source.shape[:2] != seen.source.shape[:2]
            or leaf.shape[:2] != sided(seen.leaf, one.by.layout).shape[:2]
        ):
            yield None
            continue
        sighting = Sighting(leaf, source, each.boxes, each.sizes)
        view, alike = _likeliest(leaf, sighting)
        if view is None or alike < _ALIKE:
            yield None
        elif alike - _likeness(leaf, sighting, placed) < _APART or _shows(seen, one.by, view):
            yield ""
        else:
            yield "flip" if view.turn != placed.turn else "window"


def _shows(seen: Sighting, by: MaskExplanation | PlaneExplanation | PictureExplanation, view: LeafPlacement) -> bool:
    """Return True if a map may show a view as well: a plain or symmetric one shows several."""
    if isinstance(by, MaskExplanation):
        return explain_mask([seen], [view]) is not None
    return _likeness(sided(seen.leaf, by.layout), seen, view) >= _ALIKE


def _likeness(leaf: Array, each: Sighting, placement: LeafPlacement) -> float:
    """Return the correlation of a leaf [height, width, channels] with what a placement shows; 0 if it is padded."""
    source = each.source if each.source.ndim == 2 else each.source.mean(axis=2)
    reach = placement.window.top + placement.window.height, placement.window.left + placement.window.width
    if reach[0] > source.shape[0] or reach[1] > source.shape[1]:
        return 0.0
    shown = shown_values(source, placement, NEAREST[0], leaf.shape[:2])
    if shown is None:
        return 0.0
    pair = _blocks(leaf.mean(axis=2, dtype=np.float64)), _blocks(shown.astype(np.float64))
    if min(one.std() for one in pair) < 1e-9:
        return 0.0
    return float(np.corrcoef(pair[0].ravel(), pair[1].ravel())[0, 1])


def _likeliest(leaf: Array, each: Sighting) -> tuple[LeafPlacement | None, float]:
    """Return the placement that shows most nearly what a leaf [height, width, channels] shows, and the likeness."""
    tried = list(dict.fromkeys(islice(every_placement(leaf, each), _MOST_TRIED)))
    found = [(_likeness(leaf, each, placement), place) for place, placement in enumerate(tried)]
    most, place = max(found, default=(0.0, -1))
    return (tried[place], most) if place >= 0 else (None, 0.0)


def _blocks(values: Floats) -> Floats:
    height, width = (side // _BLOCK * _BLOCK for side in values.shape)
    means: Floats = values[:height, :width].reshape(height // _BLOCK, _BLOCK, width // _BLOCK, _BLOCK).mean(axis=(1, 3))
    return means


# Boxes, points and maps that no file explains.

_EXPLAIN_S = 2.0
"""CPU time limit of the explanation of one repetition of the samples."""


def left_behind(look: Look, explained: Explained) -> Iterator[DataFault]:
    """Yield boxes or maps that stay as they are, while the image of the same sample is flipped or cut otherwise."""
    makings = sorted({each.making for each in look.samples})
    images = [path for path, one in explained.items() if _is_picture(one) and one.is_random]
    if not images or len(makings) < 2:
        return
    image, placed = images[0], dict[int, list[LeafPlacement]]()
    others = [path for path in explained if path not in images]
    kinds = (_is_box, _are_points, _is_map_of)
    boxes, points, maps = ([path for path in others if _is_still(look, path, image, kind)] for kind in kinds)
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
        if len(apart) >= _LEAST:
            yield MISALIGNED.found(image, still[0], certainty=certainty, how=how, count=len(apart), looked=len(placed))
            return


def unscaled(look: Look, explained: Explained) -> Iterator[DataFault]:
    """Yield boxes that fit the files of images which are resized, and not the images.

    An image that was enlarged has room for them: boxes of all samples then stay in one corner.
    """
    for image, one in explained.items():
        by = one.by
        if not isinstance(by, PictureExplanation) or not all(placed.is_resampled for placed in by.placements):
            continue
        sizes = [(_sides(seen.leaf), seen.source.shape[:2]) for seen in one.seen]
        chance = np.prod([np.divide(file, leaf) for leaf, file in sizes])
        boxes = {path: fits for path in explained.keys() - {image} if (fits := _fits(look, path, sizes))}
        if len(boxes) != 1:  # others may be the file's on purpose
            continue
        path, fits = next(iter(boxes.items()))
        if (count := fits.count(False)) >= _LEAST or chance <= _CHANCE:
            certainty = "certain" if count else INTENDED
            yield MISALIGNED.found(
                image, path, certainty=certainty, how="scale", count=count or len(fits), looked=len(sizes)
            )
            return


def _fits(look: Look, path: LeafPath, sizes: Sequence[tuple[tuple[int, ...], tuple[int, ...]]]) -> list[bool]:
    """Return whether the boxes of each sample fit its image; none unless all are boxes in pixels of their files."""
    found = []
    for each, (leaf, file) in zip(spread(look.samples), sizes, strict=False):
        value = each.leaves[path].value
        if not isinstance(value, np.ndarray) or value.dtype.kind not in "iuf":
            return []
        if value.size and not _is_box(value, file):
            return []
        found += [_is_box(value, leaf)] if value.size else []
    return found


def _sides(leaf: Array) -> tuple[int, ...]:
    """Return height and width of an image leaf."""
    return sided(leaf, next(layouts(leaf))).shape[:2]


def _is_box(value: Array, sides: tuple[int, ...]) -> bool:
    """Return True for boxes in pixels [..., 4], by two corners or by corner and size."""
    if value.shape[-1:] != (4,) or value.ndim > 2 or not _are_pixels(value):
        return False
    first, second = value[..., :2], value[..., 2:]
    reach = np.array(sides[::-1]) * _MOST_SCALE
    return bool((second > first).all() and (second <= reach).all()) or bool((first + second <= reach).all())


def _are_points(value: Array, sides: tuple[int, ...]) -> bool:
    """Return True for points in pixels [N, 2], or [N, 3] with their visibility."""
    if value.ndim != 2 or value.shape[1] not in (2, 3) or value.dtype.kind != "f" or not _are_pixels(value):
        return False
    is_seen = np.isin(value[:, 2:], (0, 1, 2)).all()
    return bool(is_seen and (value[:, :2] <= np.array(sides[::-1]) * _MOST_SCALE).all())


def _are_pixels(value: Array) -> bool:
    return bool(value.size and value.min() >= 0 and value.max() > _LEAST_PIXELS)


def _is_map_of(value: Array, sides: tuple[int, ...]) -> bool:
    """Return True for a map of an image's pixels, or of every second, fourth or eighth."""
    strides = [tuple(side // stride for side in sides) for stride in (1, 2, 4, 8)]
    is_uneven = value.ndim == 2 and not np.array_equal(value, value[:, ::-1])
    return is_uneven and value.shape in strides and min(value.shape) >= _LEAST_MAP


def _is_still(look: Look, path: LeafPath, image: LeafPath, is_kind: Callable[[Array, tuple[int, ...]], bool]) -> bool:
    """Return True if a leaf of a kind is the same each time that a sample is made, and tells samples apart."""
    by_index: dict[int, list[Array]] = {}
    for each in look.samples:
        value = each.leaves[path].value if path in each.leaves else None
        if not isinstance(value, np.ndarray) or value.dtype.kind not in "iuf" or not value.size:
            return False
        sides = _sides(each.leaves[image].value)
        if not (is_kind(value, sides) or is_kind(value, sides[::-1])):  # quarter turns may be drawn
            return False
        by_index.setdefault(each.index, []).append(value)
    firsts = [values[0].tobytes() for values in by_index.values()]
    return len(set(firsts)) > 1 and all(
        values[0].shape == other.shape and np.array_equal(values[0], other)
        for values in by_index.values()
        for other in values
    )
