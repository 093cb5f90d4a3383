"""Planted faults of values and geometry are found, in forms that people write; correct data raises no alarm."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import torch
from fault_samples import MEAN, STD, Samples, classified, codes_of, labels_of, normalised, opened
from PIL import Image, ImageOps
from torch.utils.data import DataLoader

Show = Callable[[np.ndarray], torch.Tensor]


def jittered(pixels: np.ndarray) -> torch.Tensor:
    """Return an image with another gamma for each channel, as no scale and shift give it."""
    return normalised(255 * (pixels / 255) ** (0.6 + torch.rand(3).numpy()))


def drawn(count: int = 2, high: int = 2) -> list[int]:
    return torch.randint(0, high, (count,)).tolist()


def flipped(samples: Samples, index: int, flips: list[int], show: Show = normalised) -> Any:
    first, second = (1 - 2 * flip for flip in flips)
    mask = labels_of(samples, index)[:, ::second].copy()
    return {"image": show(opened(samples, index)[:, ::first]), "mask": torch.from_numpy(mask)}


def cropped(samples: Samples, index: int, tops: list[int], lefts: list[int], show: Show = normalised) -> Any:
    pixels, labels = np.asarray(Image.open(samples.paths[index])), np.asarray(Image.open(samples.masks[index]))
    image = pixels[tops[0] : tops[0] + 64, lefts[0] : lefts[0] + 64]
    mask = labels[tops[1] : tops[1] + 64, lefts[1] : lefts[1] + 64].astype(np.int64)
    return show(image), torch.from_numpy(mask)


def separately_flipped(samples: Samples, index: int, show: Show = normalised) -> Any:
    return flipped(samples, index, drawn(), show)


def separately_cropped(samples: Samples, index: int, show: Show = normalised) -> Any:
    return cropped(samples, index, drawn(high=32), drawn(high=60), show)


def flipped_as_one(samples: Samples, index: int, show: Show = normalised) -> Any:
    return flipped(samples, index, drawn(1) * 2, show)


def jittered_crop(samples: Samples, index: int) -> Any:
    return cropped(samples, index, drawn(1, 32) * 2, drawn(1, 60) * 2, jittered)


def floats_flipped_separately(samples: Samples, index: int) -> Any:
    first, second = (1 - 2 * flip for flip in drawn())
    mask = labels_of(samples, index)[::second].astype(np.float32) / 80
    return {"image": jittered(opened(samples, index)[::first]), "mask": torch.from_numpy(mask)[None]}


def flipped_bands(samples: Samples, index: int) -> Any:
    """Both flips make the same mask."""
    mask = np.repeat((labels_of(samples, index) > 20)[:, :1], 66, axis=1).astype(np.int64)
    return jittered(opened(samples, index)[:, :: 1 - 2 * drawn(1)[0]]), torch.from_numpy(mask)


def two_views(samples: Samples, index: int) -> Any:
    """The second view has a flip of its own on purpose."""
    sample = flipped_as_one(samples, index, jittered)
    return sample | {"view": jittered(opened(samples, index)[:, :: 1 - 2 * drawn(1)[0]])}


def noise(samples: Samples, index: int) -> Any:
    """The image shows nothing of its file."""
    return torch.randn(3, 48, 66) + opened(samples, index).mean() / 255, torch.from_numpy(labels_of(samples, index))


def depth_flipped_alone(samples: Samples, index: int) -> Any:
    depth = labels_of(samples, index).astype(np.float32) / 80
    if torch.rand(()) < 0.5:
        depth = np.flipud(depth)
    return {"image": normalised(opened(samples, index)), "depth": torch.from_numpy(depth.copy())[None]}


def depth_flipped_with_its_image(samples: Samples, index: int) -> Any:
    pixels, depth = opened(samples, index), labels_of(samples, index).astype(np.float32) / 80
    if torch.rand(()) < 0.5:
        pixels, depth = np.flipud(pixels), np.flipud(depth)
    return {"image": normalised(pixels.copy()), "depth": torch.from_numpy(depth.copy())[None]}


def bilinear_labels(samples: Samples, index: int) -> Any:
    return normalised(opened(samples, index)), torch.from_numpy(labels_of(samples, index, Image.Resampling.BILINEAR))


def blue_first(samples: Samples, index: int) -> Any:
    return normalised(cv2.resize(cv2.imread(samples.paths[index]), (66, 48))), samples.targets[index]


def blue_first_by_hand(samples: Samples, index: int) -> Any:
    return {"x": normalised(opened(samples, index)[..., ::-1].copy()), "y": samples.targets[index]}


def twice(samples: Samples, index: int) -> Any:
    once = (opened(samples, index) / 255 - MEAN) / STD
    return torch.from_numpy((once - MEAN) / STD).permute(2, 0, 1).float(), samples.targets[index]


def undivided(samples: Samples, index: int) -> Any:
    return torch.from_numpy((opened(samples, index) - MEAN) / STD).permute(2, 0, 1).float(), samples.targets[index]


def divided_twice(samples: Samples, index: int) -> Any:
    return torch.from_numpy(opened(samples, index) / 255.0 / 255).permute(2, 0, 1).float(), samples.targets[index]


def divided_after(samples: Samples, index: int) -> Any:
    return classified(samples, index)[0] / 255, samples.targets[index]


def blue_first_divided_after(samples: Samples, index: int) -> Any:
    return blue_first(samples, index)[0] / 255, samples.targets[index]


def infinite(samples: Samples, index: int) -> Any:
    image = normalised(opened(samples, index))
    return image, torch.log(torch.tensor(float(samples.targets[index])))


def missing_target(samples: Samples, index: int) -> Any:
    return {"image": normalised(opened(samples, index)), "age": float("nan") if index % 5 == 0 else 0.5 + index}


def inverse_depth(samples: Samples, index: int) -> Any:
    depth = torch.from_numpy(labels_of(samples, index)).float()
    return normalised(opened(samples, index)), 1 / depth


def standardised_rows(samples: Samples, index: int) -> Any:
    values = torch.full((6,), 2.0) if index % 4 == 0 else torch.arange(6.0) ** 2 + index
    return (values - values.mean()) / values.std(), samples.targets[index]


def overflown(samples: Samples, index: int) -> Any:
    return torch.from_numpy(opened(samples, index).astype(np.float32)).mul(400).half(), samples.targets[index]


def stored_photo(samples: Samples, index: int) -> Any:
    pixels = cv2.imread(samples.paths[index], cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION)
    return normalised(cv2.resize(pixels, (66, 48))[..., ::-1].copy()), samples.targets[index]


def stored_photo_of_depth(samples: Samples, index: int) -> Any:
    depth = np.array(Image.open(samples.masks[index])).astype(np.float32)
    return {"image": normalised(np.asarray(Image.open(samples.paths[index]))), "depth": depth / 80}


def turned(samples: Samples, index: int) -> Any:
    picture = ImageOps.exif_transpose(Image.open(samples.paths[index]).convert("RGB"))
    return torch.from_numpy(np.array(picture.resize((48, 66)))).permute(2, 0, 1), samples.targets[index]


def masked_depth(samples: Samples, index: int) -> Any:
    depth = labels_of(samples, index).astype(np.float32)
    valid = depth > 0
    return {"image": normalised(opened(samples, index)), "depth": np.where(valid, depth, np.inf), "valid": valid}


def depth_with_weights(samples: Samples, index: int) -> Any:
    depth = torch.from_numpy(labels_of(samples, index)).float()
    return {"image": normalised(opened(samples, index)), "depth": 1 / depth, "weight": (depth > 0).float()}


def depth_with_holes(samples: Samples, index: int) -> Any:
    depth = torch.from_numpy(labels_of(samples, index)).float()
    holes = depth == 0
    return {"image": normalised(opened(samples, index)), "depth": depth.masked_fill(holes, np.nan), "holes": holes}


FAULTY = {
    "separate flips": (separately_flipped, "misaligned"),
    "separate crops": (separately_cropped, "misaligned"),
    "separate flips of drawn colours": (partial(separately_flipped, show=jittered), "misaligned"),
    "separate crops of drawn colours": (partial(separately_cropped, show=jittered), "misaligned"),
    "separate flips of a mask of floats": (floats_flipped_separately, "misaligned"),
    "depth flipped alone": (depth_flipped_alone, "misaligned"),
    "bilinear labels of Pillow": (bilinear_labels, "invented-labels"),
    "OpenCV's order": (blue_first, "channel-order"),
    "reversed by hand": (blue_first_by_hand, "channel-order"),
    "normalised twice": (twice, "normalized-twice"),
    "not divided": (undivided, "normalized-twice"),
    "divided twice": (divided_twice, "normalized-twice"),
    "divided after the normalisation": (divided_after, "normalized-twice"),
    "divided after the normalisation of reversed channels": (blue_first_divided_after, "normalized-twice"),
    "logarithm of zero": (infinite, "non-finite"),
    "missing target": (missing_target, "non-finite"),
    "inverse of unknown depth": (inverse_depth, "non-finite"),
    "standardised constants": (standardised_rows, "non-finite"),
    "half precision": (overflown, "non-finite"),
}
CORRECT = {
    "classification": classified,
    "one flip": flipped_as_one,
    "one flip of drawn colours": partial(flipped_as_one, show=jittered),
    "one crop": jittered_crop,
    "one flip of bands": flipped_bands,
    "noise": noise,
    "depth with a mask": masked_depth,
    "depth flipped with its image": depth_flipped_with_its_image,
    "depth with weights": depth_with_weights,
    "depth with holes": depth_with_holes,
    "two views": two_views,
}


@pytest.mark.one_in(24)
@pytest.mark.parametrize("name", FAULTY)
def test_a_planted_fault_of_values_is_found(name: str, folder: Path, tmp_path: Path) -> None:
    torch.manual_seed(7)
    make, code = FAULTY[name]
    loader = DataLoader(Samples(folder, make), batch_size=6, shuffle=True)
    assert codes_of(loader, tmp_path) == [code]


@pytest.mark.one_in(8)
@pytest.mark.parametrize("name", CORRECT)
def test_a_correct_dataset_raises_no_alarm(name: str, folder: Path, tmp_path: Path) -> None:
    torch.manual_seed(7)
    loader = DataLoader(Samples(folder, CORRECT[name]), batch_size=6, shuffle=name != "classification")
    assert codes_of(loader, tmp_path) == []


@pytest.mark.one_in(8)
@pytest.mark.parametrize(
    ("make", "prefix", "codes"),
    [
        (classified, "turned", ["ignored-orientation"]),
        (stored_photo, "turned", ["ignored-orientation"]),
        (stored_photo_of_depth, "turned", ["ignored-orientation"]),
        (classified, "upside", ["ignored-orientation"]),
        (turned, "turned", []),
        (turned, "upside", []),
    ],
)
def test_pictures_that_their_files_say_are_turned(
    make: Any, prefix: str, codes: list[str], folder: Path, tmp_path: Path
) -> None:
    assert codes_of(DataLoader(Samples(folder, make, prefix), batch_size=6, shuffle=True), tmp_path) == codes
