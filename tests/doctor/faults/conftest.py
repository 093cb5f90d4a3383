"""Pictures of the tests of faults."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pictures, turned pictures, label images and depth maps."""
    made = tmp_path_factory.mktemp("faults")
    for number in range(12):
        state = np.random.default_rng(number)
        coarse = state.integers(0, 256, (16, 22, 3), dtype=np.uint8)
        picture = Image.fromarray(coarse).resize((132, 96), Image.Resampling.BICUBIC)
        picture.save(made / f"{number}.png")
        for prefix, orientation in (("turned", 6), ("upside", 3)):
            exif = Image.Exif()
            exif[0x0112] = orientation
            picture.save(made / f"{prefix}{number}.png", exif=exif)
        labels = np.kron(state.integers(0, 4, (10, 14)), np.ones((10, 10)))[:96, :132]
        Image.fromarray((labels * 20).astype(np.uint8)).save(made / f"labels{number}.png")
    return made
