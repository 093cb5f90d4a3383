"""Labels that a smooth filter invented: values of no label image, or of none of the pixels around."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from headrace.doctor.explain import FILTERS, PictureExplanation, PlaneExplanation
from headrace.doctor.explain.look import LeafPath, Look
from headrace.doctor.explain.masks import NEAREST
from headrace.doctor.explain.pictures import Array, layouts, shown_part, sided
from headrace.doctor.explain.placements import cut
from headrace.doctor.explain.samples import LeafExplanation
from headrace.doctor.faults.fault_kinds import INTENDED, MOST_SHOWN, Explained, FaultKind
from headrace.doctor.session.after_run import DataFault

_SMOOTH = FILTERS.keys() - NEAREST
_MOST_LABELS, _MOST_CLASSES = 256, 64
_LEAST_PIXELS = 16
"""Minimum number of invented pixels in all samples, for values that label images hold elsewhere."""
_LEAST_ALIKE, _LEAST_JUMPS = 0.8, 0.25
"""Minimum shares of a label image's pairs of neighbouring pixels: equal pairs, and jumps over a value in between."""
_ROWS = 256
"""Rows of a label image whose neighbouring pixels are compared."""


INVENTED_LABELS = FaultKind(
    "invented-labels",
    "{0} holds {what}: labels were resized with a {how}.",
    "Resize labels with the nearest filter: InterpolationMode.NEAREST, cv2.INTER_NEAREST, Image.NEAREST.",
    "a smooth filter explains an integer leaf, which holds values that its label images do not, or not around "
    "the pixel. A leaf of bytes counts next to an image of its size, if its files hold regions of several "
    "classes; `unless intended` if these are not numbered 0, 1, 2, …",
)


def invented_labels(look: Look, explained: Explained) -> Iterator[DataFault]:
    """Yield integer leaves that a smooth filter made from a label image, with values that no pixel around holds.

    A leaf of bytes may be a picture or a soft mask. It is a label image if it goes with an image of its size, and its
    files hold regions of several classes.
    """
    for path, one in explained.items():
        if not isinstance(one.by, PictureExplanation | PlaneExplanation) or not one.seen:
            continue
        leaves, sources = [seen.leaf for seen in one.seen], [seen.source for seen in one.seen]
        if any(leaf.dtype.kind not in "iu" for leaf in leaves) or any(source.ndim != 2 for source in sources):
            continue
        files = label_values(one)
        if not 1 < len(files) <= _MOST_LABELS:
            continue
        are_bytes, are_classes = any(leaf.dtype == np.uint8 for leaf in leaves), _are_classes(one, files)
        invented = set[float]().union(*(np.unique(leaf).tolist() for leaf in leaves)) - files
        if are_bytes and not (are_classes and _has_image(look, path, explained)):
            continue
        what, how = "", f"{one.by.filter} filter"
        if invented and one.by.filter in _SMOOTH:
            some = ", ".join(f"{value:g}" for value in sorted(invented)[:MOST_SHOWN])
            what = f"{len(invented)} values that no label image holds, such as {some}"
        elif are_classes and any(placed.is_resampled for placed in one.by.placements):
            pixels = sum(int(invented_pixels(one, place).sum()) for place in range(len(one.seen)))
            if pixels >= _LEAST_PIXELS:  # of so few values, several filters fit
                how = "smooth filter"
                what = f"{pixels:,} pixels of a class that no pixel around them has in the label image"
        if what:
            certainty = INTENDED if are_bytes and not _are_numbered(files) else "certain"
            yield INVENTED_LABELS.found(path, certainty=certainty, what=what, how=how)


def label_values(one: LeafExplanation) -> set[float]:
    """Return the values in the label images of a leaf."""
    return set[float]().union(*(np.unique(seen.source).tolist() for seen in one.seen))


def invented_pixels(one: LeafExplanation, place: int) -> Array:
    """Return where a sample's leaf has values that no pixel around has in the label image, [height, width]."""
    assert isinstance(one.by, PictureExplanation | PlaneExplanation)
    placement, source = one.by.placements[place], one.seen[place].source
    leaf = placement.upright(sided(one.seen[place].leaf, one.by.layout))[..., 0]
    found, shown = np.zeros(leaf.shape, bool), shown_part(leaf.shape, placement)
    pixels, sides = cut(source, placement.window), zip(shown, placement.at, placement.size, strict=True)
    down, across = (
        _around(outputs + at, size, out)
        for (outputs, at, out), size in zip(sides, (placement.window.height, placement.window.width), strict=True)
    )
    values = leaf[np.ix_(*shown)]
    is_around = np.zeros(values.shape, bool)
    for rows in down:
        for columns in across:
            is_around |= pixels[np.ix_(rows, columns)] == values
    found[np.ix_(*shown)] = ~is_around
    return placement.turned(found)


def _around(outputs: Array, size: int, out: int) -> Array:
    """Return the source pixels around each output pixel along one axis, by distance."""
    scale = size / out
    reach = int(np.ceil(max(1.0, scale))) + 1
    middle = np.floor((outputs + 0.5) * scale).astype(np.int64)
    return (middle + np.arange(-reach, reach + 1)[:, None]).clip(0, size - 1)


def _has_image(look: Look, path: LeafPath, explained: Explained) -> bool:
    """Return True if an image of three channels in the same sample has a leaf's height and width."""
    shapes = {other: look.samples[0].leaves[other].value for other in explained}
    sides = {
        other: [sided(value, layout).shape for layout in layouts(value)]
        for other, value in shapes.items()
        if isinstance(value, np.ndarray)
    }
    own = [shape[:2] for shape in sides.pop(path)]
    return any(shape[2] == 3 and shape[:2] in own for others in sides.values() for shape in others)


def _are_classes(one: LeafExplanation, files: set[float]) -> bool:
    """Return True if files hold regions of classes: any two meet, whereas levels of a depth map follow each other."""
    if not 2 < len(files) <= _MOST_CLASSES:
        return False
    alike, pairs, jumps = 0, 0, 0
    levels = np.array(sorted(files))
    for seen in one.seen:
        rows = seen.source[:: max(1, len(seen.source) // _ROWS)]
        differences = np.abs(np.diff(np.searchsorted(levels, rows), axis=1))
        pairs += differences.size
        alike += int((differences == 0).sum())
        jumps += int((differences > 1).sum())
    return pairs > alike >= _LEAST_ALIKE * pairs and jumps >= _LEAST_JUMPS * (pairs - alike)


def _are_numbered(files: set[float]) -> bool:
    """Return True for values that count classes from zero or one, with 255 for none: too dark for a picture."""
    values = sorted(files - {255.0})
    return values in ([*range(len(values))], [*range(1, len(values) + 1)])
