"""Quality of converted pictures: PSNR, and SSIM (Wang, Bovik, Sheikh, Simoncelli, 2004) of the luma."""

from __future__ import annotations

import math
from typing import TypeAlias

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

Pixels: TypeAlias = "NDArray[np.uint8]"
"""RGB picture [H, W, 3]."""

_WINDOW = 7
_LUMA = (0.299, 0.587, 0.114)
_PEAK = 255.0
_LEAST_MEAN, _LEAST_SPREAD = (0.01 * _PEAK) ** 2, (0.03 * _PEAK) ** 2
"""Constants C1 and C2, for windows that are nearly black or flat."""


def psnr(first: Pixels, second: Pixels) -> float:
    """Return the peak signal-to-noise ratio of two pictures of one size, in dB; inf for equal pictures."""
    error = float(np.mean((first.astype(np.float64) - second) ** 2))
    return 10 * math.log10(_PEAK**2 / error) if error else math.inf


def ssim(first: Pixels, second: Pixels) -> float:
    """Return the mean structural similarity of two pictures of one size, 1.0 for equal ones.

    The mean is over all windows of 7 × 7 pixels, which count evenly; a smaller picture is one window.
    """
    a, b = first @ np.array(_LUMA), second @ np.array(_LUMA)
    mean_a, mean_b = _means(a), _means(b)
    spread_a, spread_b = _means(a * a) - mean_a**2, _means(b * b) - mean_b**2
    shared = _means(a * b) - mean_a * mean_b
    means = (2 * mean_a * mean_b + _LEAST_MEAN) / (mean_a**2 + mean_b**2 + _LEAST_MEAN)
    return float(np.mean(means * (2 * shared + _LEAST_SPREAD) / (spread_a + spread_b + _LEAST_SPREAD)))


def _means(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the mean of each window."""
    for axis in (0, 1):
        values = sliding_window_view(values, min(_WINDOW, values.shape[axis]), axis=axis).mean(axis=-1)
    return values
