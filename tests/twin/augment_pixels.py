"""Augmentations of pixels in numpy, in float64, as torchvision documents its uint8 kernels.

Pixels are uint8 [height, width, channels]; each operation ends in bytes, by the rounding that torchvision's has:
truncation where it blends, to the nearest even where it filters or samples.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Pixels = NDArray[np.uint8]
Floats = NDArray[np.float64]

GREY = 0.2989, 0.587, 0.114


def truncated(values: Floats) -> Pixels:
    return np.clip(values, 0, 255).astype(np.uint8)


def rounded(values: Floats) -> Pixels:
    return np.clip(np.rint(values), 0, 255).astype(np.uint8)


def grey_level(pixels: Pixels) -> Floats:
    """Whole numbers, [height, width, 1]."""
    return np.floor(pixels @ np.array(GREY))[..., None] if pixels.shape[2] == 3 else pixels.astype(float)


def blend(pixels: Pixels, other: Floats, factor: float) -> Pixels:
    return truncated(pixels * factor + other * (1 - factor))


def brightness(pixels: Pixels, factor: float) -> Pixels:
    return truncated(pixels * factor)


def contrast(pixels: Pixels, factor: float) -> Pixels:
    return blend(pixels, grey_level(pixels).mean(), factor)


def saturation(pixels: Pixels, factor: float) -> Pixels:
    return pixels if pixels.shape[2] == 1 else blend(pixels, grey_level(pixels), factor)


def grayscale(pixels: Pixels) -> Pixels:
    return np.broadcast_to(grey_level(pixels).astype(np.uint8), pixels.shape)


def hue(pixels: Pixels, turns: float) -> Pixels:
    """Turn by `turns` of the colour circle, at the same maximum and minimum of the channels."""
    if pixels.shape[2] == 1:
        return pixels
    r, g, b = np.moveaxis(pixels / 255, 2, 0)
    high, low = np.max([r, g, b], 0), np.min([r, g, b], 0)
    span = np.where(high == low, 1, high - low)
    angle = np.select([high == r, high == g], [(g - b) / span, 2 + (b - r) / span], 4 + (r - g) / span)
    angle = np.where(high == low, 0, angle / 6 + turns)

    def channel(shift: float) -> Floats:
        """Of a triangle wave with flat tops, as wide as a third of the circle."""
        at = (angle * 6 + shift) % 6
        return high - (high - low) * np.clip(np.minimum(at, 4 - at), 0, 1)

    return truncated(np.stack([channel(5), channel(3), channel(1)], -1) * 255.999)


def invert(pixels: Pixels) -> Pixels:
    return 255 - pixels


def solarize(pixels: Pixels, threshold: float) -> Pixels:
    return np.where(pixels >= threshold, 255 - pixels, pixels)


def solarize_add(pixels: Pixels, add: float, threshold: float) -> Pixels:
    """timm's: what lies below the threshold gains `add`."""
    return np.where(pixels < threshold, truncated(pixels + np.floor(add)), pixels)


def posterize(pixels: Pixels, bits: int) -> Pixels:
    return pixels & np.uint8(256 - (1 << (8 - bits)))


def autocontrast(pixels: Pixels) -> Pixels:
    low, high = pixels.min((0, 1)).astype(float), pixels.max((0, 1)).astype(float)
    stretched = truncated((pixels - low) * 255 / np.where(high > low, high - low, 1))
    return np.where(high > low, stretched, pixels)


def equalize(pixels: Pixels) -> Pixels:
    return np.stack([equalized(pixels[..., channel]) for channel in range(pixels.shape[2])], -1)


def equalized(channel: NDArray[np.uint8]) -> NDArray[np.uint8]:
    counts = np.bincount(channel.ravel(), minlength=256)
    step = (channel.size - counts[channel.max()]) // 255
    if step == 0:
        return channel
    below = np.concatenate([[0], np.cumsum(counts)[:-1]])
    return np.clip((below + step // 2) // step, 0, 255).astype(np.uint8)[channel]


def sharpness(pixels: Pixels, factor: float) -> Pixels:
    height, width = pixels.shape[:2]
    if height <= 2 or width <= 2:
        return pixels
    inner = pixels[1:-1, 1:-1].astype(float)
    around = sum(pixels[y : y + height - 2, x : x + width - 2].astype(float) for y in range(3) for x in range(3))
    smooth = np.rint((around + 4 * inner) / 13)
    found = pixels.copy()
    found[1:-1, 1:-1] = truncated(inner + (1 - factor) * (smooth - inner))
    return found


def gaussian_weights(size: int, sigma: float) -> Floats:
    """torchvision's: points of the axis are sqrt(1/2) of a pixel apart in its softmax, so `sigma` is in pixels."""
    x = np.arange(size) - (size - 1) / 2
    weights = np.exp(-(x**2) / (2 * sigma**2))
    return weights / weights.sum()


def reflected(size: int, reach: int) -> NDArray[np.int64]:
    """Of which pixel each position from -reach to size + reach is the mirror image; the edge pixel comes once."""
    if size == 1:
        return np.zeros(1 + 2 * reach, np.int64)
    at = np.arange(-reach, size + reach) % (2 * size - 2)
    return np.minimum(at, 2 * size - 2 - at)


def gaussian_blur(pixels: Pixels, sigma: float, width: int, height: int) -> Pixels:
    rows = pixels[reflected(pixels.shape[0], height // 2)].astype(float)
    lines = np.lib.stride_tricks.sliding_window_view(rows, height, axis=0) @ gaussian_weights(height, sigma)
    lines = lines[:, reflected(pixels.shape[1], width // 2)]
    return rounded(np.lib.stride_tricks.sliding_window_view(lines, width, axis=1) @ gaussian_weights(width, sigma))


def permute_channels(pixels: Pixels, order: tuple[int, ...]) -> Pixels:
    """Channel i of the result is channel order[i], as torchvision does it; its documentation says the inverse."""
    return pixels[..., list(order)]


def erase(pixels: Pixels, left: int, top: int, width: int, height: int, value: tuple[int, ...]) -> Pixels:
    found = pixels.copy()
    found[top : top + height, left : left + width] = value
    return found


def positions(width: int, height: int) -> Floats:
    """[height, width, 2]: x, y of every pixel, whole numbers at pixel centres."""
    return np.stack(np.meshgrid(np.arange(width), np.arange(height)), -1).astype(float)


def affine_map(
    size: tuple[int, int],
    angle: float,
    translate: tuple[float, float],
    scale: float,
    shear: tuple[float, float],
    center: tuple[float, float] | None = None,
) -> Floats:
    """3x3, from an output's position to the source's, both in pixels with (0, 0) at the image's top left corner.

    `size` is (width, height). The image is sheared along x by `shear[0]` degrees, then along y, scaled, turned by
    `angle` degrees clockwise about `center` (default: the middle), and moved by `translate`.
    """
    turn, shear_x, shear_y = np.radians([angle, *shear])
    moves = [
        moved(np.add(center if center is not None else np.array(size) / 2, translate)),
        np.array([[np.cos(turn), -np.sin(turn), 0], [np.sin(turn), np.cos(turn), 0], [0, 0, 1]]),
        np.diag([scale, scale, 1]),
        np.array([[1, 0, 0], [-np.tan(shear_y), 1, 0], [0, 0, 1]]),
        np.array([[1, -np.tan(shear_x), 0], [0, 1, 0], [0, 0, 1]]),
        moved(-np.asarray(center if center is not None else np.array(size) / 2, float)),
    ]
    return np.linalg.inv(np.linalg.multi_dot(moves))


def moved(by: Floats) -> Floats:
    return np.array([[1, 0, by[0]], [0, 1, by[1]], [0, 0, 1]], float)


def perspective_map(start: list[list[float]], end: list[list[float]]) -> Floats:
    """3x3 that takes the four points of `end` to those of `start`, by the eight equations that say so."""
    rows, values = [], []
    for (x, y), (u, v) in zip(end, start, strict=True):
        rows += [[x, y, 1, 0, 0, 0, -u * x, -u * y], [0, 0, 0, x, y, 1, -v * x, -v * y]]
        values += [u, v]
    return np.append(np.linalg.solve(np.array(rows, float), np.array(values, float)), 1).reshape(3, 3)


def mapped(size: tuple[int, int], inverse: Floats) -> Floats:
    """Where each pixel's centre comes from, whole numbers at pixel centres: what `sample` takes."""
    x, y, w = np.moveaxis(np.dstack([positions(*size) + 0.5, np.ones(size[::-1])]) @ inverse.T, -1, 0)
    return np.stack([x / w, y / w], -1) - 0.5


def sample(pixels: Pixels, at: Floats, *, bilinear: bool, fill: tuple[float, ...]) -> Pixels:
    """The image at x, y of `at` (whole numbers at pixel centres), `fill` outside.

    At the image's rim torchvision blends towards the fill twice: first its zeros, then the fill. So is it here.
    """
    height, width = pixels.shape[:2]
    colour = np.asarray(fill, float)

    def inside(x: NDArray[np.int64], y: NDArray[np.int64]) -> NDArray[np.bool_]:
        return ((x >= 0) & (x < width) & (y >= 0) & (y < height))[..., None]

    def taken(x: NDArray[np.int64], y: NDArray[np.int64]) -> Floats:
        return pixels[np.clip(y, 0, height - 1), np.clip(x, 0, width - 1)].astype(float)

    if not bilinear:
        x, y = np.moveaxis(np.rint(at).astype(np.int64), -1, 0)
        return rounded(np.where(inside(x, y), taken(x, y), colour))
    corner = np.floor(at)
    share = at - corner
    total, mask = np.zeros((*at.shape[:2], pixels.shape[2])), np.zeros((*at.shape[:2], 1))
    for dy in (0, 1):
        for dx in (0, 1):
            x, y = np.moveaxis(corner.astype(np.int64) + np.array([dx, dy]), -1, 0)
            weight = np.abs(1 - dx - share[..., 0]) * np.abs(1 - dy - share[..., 1])
            weight = np.where(inside(x, y), weight[..., None], 0)
            total += weight * taken(x, y)
            mask += weight
    return rounded(mask * (total - colour) + colour)
