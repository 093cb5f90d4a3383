"""Images with a natural spectrum and edges, drawn from a seed: what the demo uses where no photograph is at hand.

The model is dead leaves (Lee, Mumford and Huang, 2001): opaque shapes whose radii follow r⁻³ fall over one another,
which gives the 1/f amplitude spectrum and the occlusion edges of photographs. Every leaf carries 1/f texture, so that
its inside costs a JPEG decoder what a photograph's does.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

LEAVES = 400
SMALLEST_SHARE = 1 / 60  # a leaf's least radius, as a share of the image's short side
TEXTURE_LEVELS = 22.0  # standard deviation of the texture, in 8-bit levels


def natural_image(width: int, height: int, *, seed: int) -> NDArray[np.uint8]:
    """Draw one image, uint8 of shape (height, width, 3); equal arguments give equal images."""
    rng = np.random.default_rng(seed)
    texture = pink_noise(rng, width, height) * TEXTURE_LEVELS
    colour = _leaves(rng, width, height)
    tint = pink_noise(rng, width, height)[..., None] * rng.normal(0, 6, 3)
    return np.clip(colour + texture[..., None] + tint, 0, 255).astype(np.uint8)


def pink_noise(rng: np.random.Generator, width: int, height: int) -> NDArray[np.float64]:
    """Draw noise of shape (height, width) whose amplitude falls as 1/f, with mean 0 and standard deviation 1."""
    across, down = np.fft.rfftfreq(width)[None, :], np.fft.fftfreq(height)[:, None]
    frequency = np.hypot(across, down)
    frequency[0, 0] = np.inf  # no constant part
    spectrum = np.fft.rfft2(rng.standard_normal((height, width))) / frequency
    noise = np.fft.irfft2(spectrum, s=(height, width))
    return np.asarray(noise / noise.std())


def _leaves(rng: np.random.Generator, width: int, height: int) -> NDArray[np.float32]:
    """Draw opaque discs and half-planes of one colour each, the later over the earlier."""
    canvas = np.empty((height, width, 3), np.float32)
    canvas[:] = rng.uniform(40, 215, 3)
    short = min(width, height)
    radii = _power_law(rng, LEAVES, short * SMALLEST_SHARE, short / 2)
    for radius in np.sort(radii)[::-1]:  # the large first, or they would bury the small
        _drop_leaf(rng, canvas, float(radius))
    return canvas


def _power_law(rng: np.random.Generator, count: int, low: float, high: float) -> NDArray[np.float64]:
    """Draw from the density r⁻³ on [low, high] by inverting its distribution function."""
    share = rng.random(count)
    return np.asarray((low**-2 - share * (low**-2 - high**-2)) ** -0.5)


def _drop_leaf(rng: np.random.Generator, canvas: NDArray[np.float32], radius: float) -> None:
    height, width = canvas.shape[:2]
    x, y = rng.uniform(0, width), rng.uniform(0, height)
    stretch, angle = rng.uniform(1, 2), rng.uniform(0, np.pi)
    reach = int(radius * stretch) + 1
    left, right = max(0, int(x) - reach), min(width, int(x) + reach + 1)
    top, bottom = max(0, int(y) - reach), min(height, int(y) + reach + 1)
    dx, dy = np.arange(left, right)[None, :] - x, np.arange(top, bottom)[:, None] - y
    along, beside = dx * np.cos(angle) + dy * np.sin(angle), dy * np.cos(angle) - dx * np.sin(angle)
    inside = (along / stretch) ** 2 + beside**2 < radius**2
    canvas[top:bottom, left:right][inside] = rng.uniform(20, 235, 3)
