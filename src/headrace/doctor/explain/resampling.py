"""Separable resampling as in image libraries: source pixels and weights of each output pixel.

Sources: Pillow's Resample.c, torch's UpSample.h and OpenCV's resize.cpp, by their documented coordinates.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def _box(x: Floats) -> Floats:
    return ((x > -0.5) & (x <= 0.5)).astype(np.float64)


def _triangle(x: Floats) -> Floats:
    return np.maximum(0.0, 1.0 - np.abs(x))


def _hamming(x: Floats) -> Floats:
    return np.where(np.abs(x) < 1, np.sinc(x) * (0.54 + 0.46 * np.cos(np.pi * x)), 0.0)


def _cubic(a: float) -> Callable[[Floats], Floats]:
    def kernel(x: Floats) -> Floats:
        x = np.abs(x)
        near = ((a + 2) * x - (a + 3)) * x * x + 1
        far = (((x - 5) * x + 8) * x - 4) * a
        return np.where(x < 1, near, np.where(x < 2, far, 0.0))

    return kernel


def _lanczos(lobes: int) -> Callable[[Floats], Floats]:
    return lambda x: np.where(np.abs(x) < lobes, np.sinc(x) * np.sinc(x / lobes), 0.0)


class Filter(NamedTuple):
    """Filter of one library, or of several that agree."""

    name: str
    kernel: Callable[[Floats], Floats] | None
    """None: a single source pixel, or the covered part of each."""
    support: float
    """Half the kernel's width, in pixels of the coarser image."""
    is_antialiased: bool


FILTERS = {
    one.name: one
    for one in (
        Filter("nearest-pillow", None, 0.5, False),
        Filter("nearest-exact", None, 0.5, False),
        Filter("nearest-opencv", None, 0.5, False),
        Filter("nearest-torch", None, 0.5, False),
        Filter("triangle", _triangle, 1.0, True),
        Filter("box", _box, 0.5, True),
        Filter("hamming", _hamming, 1.0, True),
        Filter("bicubic", _cubic(-0.5), 2.0, True),
        Filter("lanczos", _lanczos(3), 3.0, True),
        Filter("linear", _triangle, 1.0, False),
        Filter("cubic", _cubic(-0.75), 2.0, False),
        Filter("lanczos4", _lanczos(4), 4.0, False),
        Filter("area", None, 0.5, True),
        Filter("corners", _triangle, 1.0, False),
    )
}
"""Filters by name. Of identical filters, only the first has a name.

"triangle" is the antialiased bilinear filter of Pillow and torchvision, "linear" the filter of OpenCV and
`torch.nn.functional.interpolate`, "corners" the latter with `align_corners=True`. "nearest-exact" and
"nearest-torch" are torch's "nearest-exact" and "nearest", which compute positions with 24 bits. "area" weights each
source pixel by its covered part, and is OpenCV's filter for enlarging.
"""


class Taps(NamedTuple):
    """Source pixels and weights of output pixels along one axis; both [outputs, taps]."""

    pixel: Ints
    weight: Floats


def taps(name: str, size: int, out: int, outputs: Ints, *, backward: bool = False) -> Taps:
    """Return the taps of the output pixels `outputs` for resampling `size` pixels to `out` by the filter `name`.

    `backward`: as if the pixels were mirrored before, and the outputs mirrored back: ties of nearest round up.
    """
    if backward:
        mirrored = taps(name, size, out, out - 1 - outputs)
        return Taps(size - 1 - mirrored.pixel, mirrored.weight)
    scale = size / out
    at = outputs.astype(np.float64)
    if name.startswith("nearest"):
        if name in ("nearest-torch", "nearest-exact"):
            first = np.float32(0.5 if name == "nearest-exact" else 0.0)
            place = np.floor((outputs.astype(np.float32) + first) * np.float32(scale))
        elif name == "nearest-pillow":  # accumulated, so that ties round the same way
            place = np.floor(np.cumsum([scale * 0.5, *[scale] * (out - 1)])[outputs])
        else:  # in OpenCV's order
            place = np.floor(at * (1 / (out / size)))
        return Taps(np.clip(place.astype(np.int64), 0, size - 1)[:, None], np.ones((len(at), 1)))
    if name == "area-grown":
        before = np.floor(at * (1 / (out / size)))
        part = ((at + 1) - (before + 1) * (out / size)).astype(np.float32)
        part = np.where(part <= 0, 0.0, part - np.floor(part))[:, None]
        index = np.clip(before.astype(np.int64)[:, None] + np.arange(2), 0, size - 1)
        return Taps(index, np.concatenate([1 - part, part], axis=1))
    if name == "area":
        begin, end = at * scale, (at + 1) * scale
        index = np.floor(begin).astype(np.int64)[:, None] + np.arange(int(np.ceil(scale)) + 1)
        weight = np.minimum(index + 1, end[:, None]) - np.maximum(index, begin[:, None])
        return _normalised(index, np.maximum(weight, 0.0), size)
    chosen = FILTERS[name]
    centre = at * ((size - 1) / (out - 1) if out > 1 else 0.0) + 0.5 if name == "corners" else (at + 0.5) * scale
    assert chosen.kernel is not None
    stretch = max(1.0, scale) if chosen.is_antialiased else 1.0
    support = chosen.support * stretch
    index = np.floor(centre - support - 0.5).astype(np.int64)[:, None] + np.arange(int(np.ceil(2 * support)) + 2)
    weight = chosen.kernel((index - centre[:, None] + 0.5) * (1 / stretch))  # in Pillow's order, for a box's edges
    if chosen.is_antialiased:  # taps beyond the edge are dropped; otherwise the edge pixel replaces them
        begin, end = (np.floor(np.maximum(centre + by, 0)) for by in (0.5 - support, 0.5 + support))
        weight = np.where((index >= begin[:, None]) & (index < np.minimum(end, size)[:, None]), weight, 0.0)
    return _normalised(index, weight, size)


def _normalised(index: Ints, weight: Floats, size: int) -> Taps:
    return Taps(np.clip(index, 0, size - 1), weight / weight.sum(axis=1, keepdims=True))


def resample(
    pixels: npt.NDArray[np.generic],
    out: tuple[int, int],
    name: str,
    rows: Ints | None = None,
    columns: Ints | None = None,
    backward: tuple[bool, bool] = (False, False),
) -> Floats:
    """Return pixels [height, width, channels], or some, resampled to `out`, not rounded. `backward`: as of `taps`."""
    if name == "area" and (out[0] > pixels.shape[0] or out[1] > pixels.shape[1]):
        name = "area-grown"
    across = taps(
        name, pixels.shape[1], out[1], np.arange(out[1]) if columns is None else columns, backward=backward[1]
    )
    down = taps(name, pixels.shape[0], out[0], np.arange(out[0]) if rows is None else rows, backward=backward[0])
    used, place = np.unique(down.pixel, return_inverse=True)
    lines = pixels[used].astype(np.float64)
    wide = np.zeros((len(used), len(across.pixel), pixels.shape[2]))
    for tap in range(across.pixel.shape[1]):
        wide += lines[:, across.pixel[:, tap]] * across.weight[:, tap, None]
    place = place.reshape(down.pixel.shape)
    made = np.zeros((len(down.pixel), len(across.pixel), pixels.shape[2]))
    for tap in range(down.pixel.shape[1]):
        made += wide[place[:, tap]] * down.weight[:, tap, None, None]
    return made
