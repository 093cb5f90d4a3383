"""Geometry of images whose colours are drawn: no recipe explains them, but their brightness shows window and flip."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from headrace.doctor.explain import MaskExplanation, PictureExplanation, PlaneExplanation, Sighting, explain_mask
from headrace.doctor.explain.likeness import likeliest, likeness
from headrace.doctor.explain.look import LeafPath, Look
from headrace.doctor.explain.pictures import layouts, sided
from headrace.doctor.explain.placements import Array, LeafPlacement
from headrace.doctor.explain.samples import LeafExplanation, spread
from headrace.doctor.faults.fault_kinds import KINDS
from headrace.doctor.session.after_run import DataFault

_ALIKE = 0.85
"""Minimum correlation of a leaf with the part of its image that it shows."""
_APART = 0.25
"""Minimum difference in correlation between two views of an image that are not the same."""
_LEAST = 2
"""Minimum number of samples whose views differ."""


def misaligned_drawn(look: Look, explained: Mapping[LeafPath, LeafExplanation]) -> Iterator[DataFault]:
    """Yield an image that shows another window or flip than a mask or depth map of its sample.

    If another image of the samples shows the same as the map, the first may differ on purpose.
    """
    images = [path for path, one in explained.items() if one.by is None and _is_coloured(look, path)]
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
                yield KINDS["misaligned"].found(image, path, how=how, count=len(hows), looked=len(found[image]))


def _is_coloured(look: Look, path: LeafPath) -> bool:
    leaves = [each.leaves[path] for each in look.samples if path in each.leaves]
    return all(leaf.kind == "array" and leaf.value.ndim == 3 and _channels(leaf.value) == 3 for leaf in leaves)


def _channels(leaf: Array) -> int:
    return next((sided(leaf, layout).shape[2] for layout in layouts(leaf)), 0)


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
        if source is None or source.shape[:2] != seen.source.shape[:2] or leaf.shape[:2] != _sides(seen, one.by.layout):
            yield None
            continue
        sighting = Sighting(leaf, source, each.boxes, each.sizes)
        view, alike = likeliest(leaf, sighting)
        if view is None or alike < _ALIKE:
            yield None
        elif alike - likeness(leaf, sighting, placed) < _APART or _shows(seen, one.by, view):
            yield ""
        else:
            yield "flip" if _turn(view) != _turn(placed) else "window"


def _sides(seen: Sighting, layout: str) -> tuple[int, ...]:
    sides: tuple[int, ...] = sided(seen.leaf, layout).shape[:2]
    return sides


def _shows(seen: Sighting, by: MaskExplanation | PlaneExplanation | PictureExplanation, view: LeafPlacement) -> bool:
    """Return True if a map may show a view as well: a plain or symmetric one shows several."""
    if isinstance(by, MaskExplanation):
        return explain_mask([seen], [view]) is not None
    return likeness(sided(seen.leaf, by.layout), seen, view) >= _ALIKE


def _turn(placed: LeafPlacement) -> tuple[bool, bool, bool]:
    return placed.is_flipped, placed.is_upside_down, placed.is_transposed
