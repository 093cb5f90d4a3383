"""Orientation and scale of one making of an image against another, though each is a window of its own. Pure.

The middle of the one is sought in the other, at several scales and in four orientations.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from headrace.compare.observation import THUMBNAIL, Floats, overlaps
from headrace.compare.pairing import Ints, Singles, mirrored

_SCALES = (0.55, 0.68, 0.83, 1.0, 1.2, 1.48, 1.8)
"""Sides of the one's window by those of the other's."""
_FIELD, _PATCH = 24, 12
"""Sides in which a patch is sought, and of the patch."""
_LEAST_LIKENESS, _LEAST_LEAD = 0.8, 0.15
"""Correlation of a match, and its lead over the other orientations, from which a match counts."""
_SHARPNESS = 30.0
"""Weight of a scale by its correlation: a mean over scales is finer than their steps."""
_CHUNK = 64


def matches(one: Singles, other: Singles) -> tuple[Ints, Floats]:
    """Return each pair's orientation, and the logarithm of the other's window by the one's in side.

    Orientations are 0 to 3 in the order of `mirrored`, and -1 where the two do not match clearly.
    """
    chunks = [_matches(one[n : n + _CHUNK], other[n : n + _CHUNK]) for n in range(0, len(one), _CHUNK)]
    turns, scales = zip(*chunks, strict=True) if chunks else ((), ())
    return np.concatenate([np.empty(0, np.int64), *turns]), np.concatenate([np.empty(0), *scales])


def _matches(one: Singles, other: Singles) -> tuple[Ints, Floats]:
    field = overlaps(THUMBNAIL, _FIELD).astype(np.float32)
    windows = np.lib.stride_tricks.sliding_window_view(field @ other @ field.T, (_PATCH, _PATCH), axis=(1, 2))
    places = windows.reshape(len(one), -1, _PATCH * _PATCH)
    zooms = [overlaps(THUMBNAIL, _PATCH, (1 - 0.5 * scale) / 2).astype(np.float32) for scale in _SCALES]
    patches = np.concatenate([zoom @ one @ zoom.T for zoom in zooms])
    turned = np.stack(mirrored(patches)).reshape(4 * len(_SCALES), len(one), -1)
    likeness = _levelled(places) @ _levelled(turned.transpose(1, 0, 2)).transpose(0, 2, 1)
    best = likeness.max(axis=1).reshape(len(one), 4, len(_SCALES))
    ordered = np.sort(best.max(axis=2), axis=1)
    is_clear = (ordered[:, 3] >= _LEAST_LIKENESS) & (ordered[:, 3] - ordered[:, 2] >= _LEAST_LEAD)
    turns = best.max(axis=2).argmax(axis=1)
    by_scale = best[np.arange(len(one)), turns].astype(np.float64)
    weights = np.exp(_SHARPNESS * (by_scale - by_scale.max(axis=1, keepdims=True)))
    return np.where(is_clear, turns, -1), weights @ np.log(_SCALES) / weights.sum(axis=1)


def _levelled(patches: Singles | Floats) -> Singles:
    """Return patches without mean and slopes, which windows of any images may share, of norm one or little else."""
    rest = patches - (patches @ _slopes().T) @ _slopes()
    size = np.linalg.norm(rest, axis=2, keepdims=True)
    least = np.maximum(0.2 * size.mean(axis=1, keepdims=True), 1e-9)
    return np.asarray(rest / np.maximum(size, least), np.float32)


@cache
def _slopes() -> Singles:
    """Return the mean and the slopes: float32[3, 144], orthonormal."""
    ramp = np.linspace(-1, 1, _PATCH)
    planes = [np.ones((_PATCH, _PATCH)), np.tile(ramp, (_PATCH, 1)), np.tile(ramp[:, None], (1, _PATCH))]
    return np.stack([plane.ravel() / np.linalg.norm(plane) for plane in planes]).astype(np.float32)
