"""PSNR and SSIM against their formulas, window by window."""

from __future__ import annotations

import math

import numpy as np
import pytest

from headrace.pack.quality import psnr, ssim


def similarity(a: np.ndarray, b: np.ndarray) -> float:
    """SSIM of two windows, as the paper defines it, with population moments."""
    c1, c2 = (0.01 * 255) ** 2, (0.03 * 255) ** 2
    covariance = np.cov(a.ravel(), b.ravel(), bias=True)[0, 1]
    means = (2 * a.mean() * b.mean() + c1) / (a.mean() ** 2 + b.mean() ** 2 + c1)
    return means * (2 * covariance + c2) / (a.var() + b.var() + c2)


@pytest.mark.parametrize("size", [(20, 31), (7, 7), (3, 12)])
def test_ssim_is_the_mean_over_windows(size: tuple[int, int]) -> None:
    rng = np.random.default_rng(0)
    first = rng.integers(0, 256, (*size, 3), np.uint8)
    second = np.clip(first + rng.normal(0, 25, first.shape), 0, 255).astype(np.uint8)
    luma = [image @ np.array([0.299, 0.587, 0.114]) for image in (first, second)]
    high, wide = (min(7, side) for side in size)
    windows = [
        similarity(*(each[row : row + high, column : column + wide] for each in luma))
        for row in range(size[0] - high + 1)
        for column in range(size[1] - wide + 1)
    ]
    assert ssim(first, second) == pytest.approx(np.mean(windows), abs=1e-9)
    assert ssim(first, first) == pytest.approx(1)


def test_psnr_is_that_of_the_error() -> None:
    first = np.full((4, 5, 3), 100, np.uint8)
    second = first.copy()
    second[0, 0, 0] = 130
    assert psnr(first, second) == pytest.approx(10 * math.log10(255**2 / (30**2 / 60)))
    assert psnr(second, first) == psnr(first, second)
    assert psnr(first, first) == math.inf
