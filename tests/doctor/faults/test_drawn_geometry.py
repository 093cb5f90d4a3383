"""Images of random colours: windows and flips that differ from their masks' are found, and equal ones are not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fault_samples import Samples, codes_of, labels_of, normalised, opened
from PIL import Image
from torch.utils.data import DataLoader


def jittered(pixels: np.ndarray) -> torch.Tensor:
    """Return an image with another gamma for each channel, as no scale and shift give it."""
    gamma = 0.6 + torch.rand(3).numpy()
    return normalised(255 * (pixels / 255) ** gamma)


def drawn(count: int = 2, high: int = 2) -> list[int]:
    return torch.randint(0, high, (count,)).tolist()


def separate_flips(samples: Samples, index: int) -> Any:
    first, second = (1 - 2 * flip for flip in drawn())
    mask = labels_of(samples, index)[:, ::second].copy()
    return jittered(opened(samples, index)[:, ::first]), torch.from_numpy(mask)


def separate_flips_of_floats(samples: Samples, index: int) -> Any:
    first, second = (1 - 2 * flip for flip in drawn())
    mask = labels_of(samples, index)[::second].astype(np.float32) / 80
    return {"image": jittered(opened(samples, index)[::first]), "mask": torch.from_numpy(mask)[None]}


def cropped(samples: Samples, index: int, tops: list[int], lefts: list[int]) -> Any:
    pixels, labels = np.asarray(Image.open(samples.paths[index])), np.asarray(Image.open(samples.masks[index]))
    image = pixels[tops[0] : tops[0] + 64, lefts[0] : lefts[0] + 64]
    mask = labels[tops[1] : tops[1] + 64, lefts[1] : lefts[1] + 64].astype(np.int64)
    return jittered(image), torch.from_numpy(mask)


def separate_crops(samples: Samples, index: int) -> Any:
    return cropped(samples, index, drawn(high=32), drawn(high=60))


def one_crop(samples: Samples, index: int) -> Any:
    return cropped(samples, index, drawn(1, 32) * 2, drawn(1, 60) * 2)


def one_flip(samples: Samples, index: int) -> Any:
    step = 1 - 2 * drawn(1)[0]
    mask = labels_of(samples, index)[:, ::step].copy()
    return jittered(opened(samples, index)[:, ::step]), torch.from_numpy(mask)


def one_flip_of_bands(samples: Samples, index: int) -> Any:
    """Both flips make the same mask."""
    step = 1 - 2 * drawn(1)[0]
    mask = np.repeat((labels_of(samples, index) > 20)[:, :1], 66, axis=1).astype(np.int64)
    return jittered(opened(samples, index)[:, ::step]), torch.from_numpy(mask)


def two_views(samples: Samples, index: int) -> Any:
    """The second view has a flip of its own on purpose."""
    image, mask = one_flip(samples, index)
    return image, jittered(opened(samples, index)[:, :: 1 - 2 * drawn(1)[0]]), mask


def noise(samples: Samples, index: int) -> Any:
    """The image shows nothing of its file."""
    return torch.randn(3, 48, 66) + opened(samples, index).mean() / 255, torch.from_numpy(labels_of(samples, index))


FAULTY = [separate_flips, separate_flips_of_floats, separate_crops]
CORRECT = [one_crop, one_flip, one_flip_of_bands, two_views, noise]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("make", [*FAULTY, *CORRECT])
def test_image_and_mask(make: Any, folder: Path, tmp_path: Path) -> None:
    torch.manual_seed(7)
    found = codes_of(DataLoader(Samples(folder, make), batch_size=6, shuffle=True), tmp_path)
    assert found == ["misaligned"] * (make in FAULTY)
