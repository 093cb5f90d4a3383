"""Masks, depth and normals cut by a view, in numpy: a second implementation of core/dense."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np


def nearest(values: np.ndarray, view: Mapping[str, float], padding: float | tuple[float, ...]) -> np.ndarray:
    """`values` [H, W, …] under the centre of each output pixel; `view` is named by `ViewColumn`."""
    values = values.swapaxes(0, 1) if view["transposed"] else values
    canvas = np.empty((int(view["height"]), int(view["width"]), *values.shape[2:]), values.dtype)
    canvas[...] = padding
    rows = _picked(view["y0"], view["y1"], view["top"], view["bottom"], int(view["inner_height"]))
    columns = _picked(view["x0"], view["x1"], view["left"], view["right"], int(view["inner_width"]))
    top, left = int(view["inner_y"]), int(view["inner_x"])
    canvas[top : top + len(rows), left : left + len(columns)] = values[np.ix_(rows, columns)]
    canvas = canvas[:, ::-1] if view["hflip"] else canvas
    return canvas[::-1] if view["vflip"] else canvas


def _picked(begin: float, end: float, low: float, high: float, count: int) -> np.ndarray:
    step = (end - begin) / max(count, 1)
    before, extent = (begin - low) / step if step else 0, (high - low) / step if step else 0
    first, skipped = np.floor(begin), 0
    if abs(before - round(before)) < 1e-6 and abs(extent - round(extent)) < 1e-6 and extent:  # a crop of a resize
        first, step, skipped = low, (high - low) / round(extent), round(before)
    centres = [begin - first + step * 0.5 if not skipped else step * 0.5]
    for _ in range(skipped + count - 1):
        centres.append(centres[-1] + step)
    return np.clip(first + np.floor(centres[skipped:][:count]), low, high - 1).astype(int)


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
