"""Likeness of a leaf and a part of its image, however colours were changed: by the correlation of their brightness."""

from __future__ import annotations

from itertools import islice

import numpy as np

from headrace.doctor.explain.masks import NEAREST, shown_values
from headrace.doctor.explain.placements import Array, LeafPlacement, Sighting, every_placement
from headrace.doctor.explain.resampling import Floats

_MOST_TRIED = 96
"""Maximum number of placements that are tried."""
_BLOCK = 4
"""Side of the blocks of pixels that are compared, since filters and noise change single pixels."""


def likeness(leaf: Array, each: Sighting, placement: LeafPlacement) -> float:
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


def likeliest(leaf: Array, each: Sighting) -> tuple[LeafPlacement | None, float]:
    """Return the placement that shows most nearly what a leaf [height, width, channels] shows, and the likeness."""
    tried = list(dict.fromkeys(islice(every_placement(leaf, each), _MOST_TRIED)))
    found = [(likeness(leaf, each, placement), place) for place, placement in enumerate(tried)]
    most, place = max(found, default=(0.0, -1))
    return (tried[place], most) if place >= 0 else (None, 0.0)


def _blocks(values: Floats) -> Floats:
    height, width = (side // _BLOCK * _BLOCK for side in values.shape)
    means: Floats = values[:height, :width].reshape(height // _BLOCK, _BLOCK, width // _BLOCK, _BLOCK).mean(axis=(1, 3))
    return means
