"""Every instruction-set level gives the same bits, whatever is left over behind its vectors."""

from __future__ import annotations

import numpy as np
import pytest

from headrace import _core

SIZES = ((1, 1), (3, 2), (2, 3), (17, 5), (1, 40), (33, 33), (129, 7), (70, 224))
"""Widths and heights: less than a vector, no multiples of one, and rows beyond a strip of the blur's."""
CHAINS = {
    "brightness": [(10, [1.37])],
    "contrast": [(11, [0.45])],
    "saturation": [(12, [1.61])],
    "saturation by much": [(12, [6.5])],
    "saturation by the most": [(12, [90.0])],
    "hue": [(13, [0.31])],
    "hue back": [(13, [-0.5])],
    "grayscale": [(14, [])],
    "invert": [(15, [])],
    "solarize": [(16, [100.5])],
    "posterize": [(17, [3.0])],
    "autocontrast": [(10, [0.5]), (18, [])],
    "equalize": [(19, [])],
    "sharpness": [(20, [1.9])],
    "smoothness": [(20, [0.0])],
    "blur": [(21, [1.7, 23, 9])],
    "wide blur": [(21, [9.0, 61, 61])],
    "permuted": [(22, [2, 0, 1])],
    "solarize, add": [(24, [30, 128])],
    "mixed": [(90, []), (91, [0.3]), (13, [0.2]), (91, [0.7]), (11, [1.5]), (92, [0.4])],
}


def pixels(width: int, height: int, channels: int) -> np.ndarray:
    """Noise, with stretches of grey, black and white."""
    image = np.random.default_rng(width + height).integers(0, 256, (height, width, channels), np.uint8)
    image[: height // 4] = image[: height // 4, :, :1]
    image[height // 4 : height // 3, : width // 2] = 0
    image[height // 4 : height // 3, width // 2 :] = 255
    return image


@pytest.mark.parametrize("name", CHAINS)
def test_levels_agree(name: str) -> None:
    for width, height in SIZES:
        for channels in (1, 3):
            image = pixels(width, height, channels)
            scalar, *others = (_core.apply_chain(image, CHAINS[name], level=level) for level in _core.levels())
            for other in others:
                np.testing.assert_array_equal(other, scalar, f"{width} x {height} x {channels}")
