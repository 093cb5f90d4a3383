"""Faults of geometry: leaves of one sample that show different windows or flips, and ignored orientation.

Images whose colours are drawn have no recipe; their brightness shows window and flip.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
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
from headrace.doctor.explain.samples import LeafExplanation, is_coloured, spread
from headrace.doctor.faults.fault_kinds import Explained, FaultKind
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
LEAST = 2
"""Minimum number of samples whose views differ."""
_MOST_TRIED = 96
"""Maximum number of placements that are tried."""
_BLOCK = 4
"""Side of the blocks of pixels that are compared, since filters and noise change single pixels."""


MISALIGNED = FaultKind(
    "misaligned",
    "{0} and {1} of one sample differ in {how}, in {count} of {looked} samples that were compared with their files.",
    "Draw the window and the flip once per sample, and apply them to both; resize boxes with their image.",
    "the windows and flips that explain an image and a mask, depth map or grey file of the same samples "
    "differ; if the image's colours are drawn, its brightness shows them. Boxes [N, 4] and maps that no file explains "
    "must change where the image is flipped, or (`unless intended`) cut otherwise, when a sample is made again, unless "
    "a leaf without pixels does, which may hold the window; boxes must fit the image, not only its file of another "
    "size (`unless intended` if that is smaller, or the image is a part of it)",
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
        if not _is_map(one) or any(is_picture(other) for other in explained.values()):
            continue
        found = {image: [each for each in _compared(look, image, one) if each is not None] for image in images}
        apart = {image: [how for how in hows if how] for image, hows in found.items()}
        if any(hows and not apart[image] for image, hows in found.items()):
            continue
        for image, hows in apart.items():
            if len(hows) >= LEAST:
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


def is_picture(one: LeafExplanation) -> bool:
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
