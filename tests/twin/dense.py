"""Masks, depth and normals cut by a view, in numpy: a second implementation of core/dense."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np


def nearest(values: np.ndarray, view: Mapping[str, float], padding: float | tuple[float, ...]) -> np.ndarray:
    """`values` [H, W, …] under the centre of each output pixel; `view` is named by `ViewColumn`."""
    canvas = np.empty((int(view["height"]), int(view["width"]), *values.shape[2:]), values.dtype)
    canvas[...] = padding
    rows = _picked(view["y0"], view["y1"], view["top"], view["bottom"], int(view["inner_height"]))
    columns = _picked(view["x0"], view["x1"], view["left"], view["right"], int(view["inner_width"]))
    top, left = int(view["inner_y"]), int(view["inner_x"])
    canvas[top : top + len(rows), left : left + len(columns)] = values[np.ix_(rows, columns)]
    canvas = canvas[:, ::-1] if view["hflip"] else canvas
    return canvas[::-1] if view["vflip"] else canvas


def _picked(begin: float, end: float, low: float, high: float, count: int) -> np.ndarray:
    centres = begin + (2.0 * np.arange(count) + 1) * (end - begin) / (2.0 * max(count, 1))
    return np.clip(np.floor(centres), low, high - 1).astype(int)


def depth(
    numbers: np.ndarray,
    view: Mapping[str, float],
    *,
    scale: float,
    invalid: float = 0,
    near: float = -np.inf,
    far: float = np.inf,
    quantiles: tuple[float, float] | None = None,
    range: tuple[float, float] = (-1.0, 1.0),
    clip: bool = True,
) -> tuple[np.ndarray, np.ndarray]:
    """(float32 [H, W], bool [H, W])."""
    metres = numbers.astype(np.float64) * scale
    valid = np.isfinite(numbers) & (numbers != invalid) & (metres > near) & (metres < far)
    if quantiles is not None:
        low, high = np.quantile(metres[valid], quantiles)
        metres = (metres - low) / (high - low) * (range[1] - range[0]) + range[0]
        metres = metres.clip(min(range), max(range)) if clip else metres
    out = nearest(np.where(valid, metres, invalid), view, invalid)
    return out.astype(np.float32), nearest(valid, view, False)
