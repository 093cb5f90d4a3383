"""Planted faults of values and geometry are found, in forms that people write; correct data raises no alarm."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import torch
from fault_samples import MEAN, STD, Samples, classified, codes_of, labels_of, normalised, opened
from PIL import Image, ImageOps
from torch.nn.functional import interpolate
from torch.utils.data import DataLoader


def segmented(samples: Samples, index: int) -> Any:
    flip = np.random.default_rng(torch.randint(1 << 30, ()).item()).random() < 0.5
    pixels, labels = opened(samples, index), labels_of(samples, index)
    step = -1 if flip else 1
    return {"image": normalised(pixels[:, ::step]), "mask": torch.from_numpy(labels[:, ::step].copy())}


def separately_flipped(samples: Samples, index: int) -> Any:
    first, second = (1 if value < 0.5 else -1 for value in torch.rand(2))
    pixels, labels = opened(samples, index)[:, ::first], labels_of(samples, index)[:, ::second]
    return {"image": normalised(pixels), "mask": torch.from_numpy(labels.copy())}


def separately_cropped(samples: Samples, index: int) -> Any:
    pixels, labels = np.asarray(Image.open(samples.paths[index])), np.asarray(Image.open(samples.masks[index]))
    tops, lefts = torch.randint(0, 32, (2,)).tolist(), torch.randint(0, 60, (2,)).tolist()
    image = pixels[tops[0] : tops[0] + 64, lefts[0] : lefts[0] + 64]
    mask = labels[tops[1] : tops[1] + 64, lefts[1] : lefts[1] + 64].astype(np.int64)
    return normalised(image), torch.from_numpy(mask)


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


def cv2_labels(samples: Samples, index: int) -> Any:
    labels = cv2.resize(cv2.imread(samples.masks[index], cv2.IMREAD_UNCHANGED), (52, 38))
    image = cv2.resize(cv2.imread(samples.paths[index]), (52, 38))[..., ::-1]
    return normalised(image.copy()), torch.from_numpy(labels.astype(np.int64))


def interpolated_labels(samples: Samples, index: int) -> Any:
    mask = torch.from_numpy(np.array(Image.open(samples.masks[index]))).float()[None, None]
    labels = interpolate(mask, (48, 66), mode="bilinear", antialias=True)[0, 0].round().long()
    return {"pixel_values": normalised(opened(samples, index)), "labels": labels}


def labels_by_nearest(samples: Samples, index: int) -> Any:
    mask = torch.from_numpy(np.array(Image.open(samples.masks[index]))).float()[None, None]
    labels = interpolate(mask, (48, 66), mode="nearest")[0, 0].long()
    return {"pixel_values": normalised(opened(samples, index)), "labels": labels}


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


def two_views(samples: Samples, index: int) -> Any:
    pixels = np.asarray(Image.open(samples.paths[index]))
    tops, lefts = torch.randint(0, 32, (2,)).tolist(), torch.randint(0, 60, (2,)).tolist()
    return [normalised(pixels[top : top + 64, left : left + 64]) for top, left in zip(tops, lefts, strict=True)]


FAULTY = {
    "separate flips": (separately_flipped, "misaligned"),
    "separate crops": (separately_cropped, "misaligned"),
    "depth flipped alone": (depth_flipped_alone, "misaligned"),
    "bilinear labels of Pillow": (bilinear_labels, "invented-labels"),
    "bilinear labels of OpenCV": (cv2_labels, "invented-labels"),
    "labels of interpolate": (interpolated_labels, "invented-labels"),
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
    "segmentation": segmented,
    "depth with a mask": masked_depth,
    "depth flipped with its image": depth_flipped_with_its_image,
    "labels by nearest": labels_by_nearest,
    "depth with weights": depth_with_weights,
    "depth with holes": depth_with_holes,
    "two views": two_views,
}


@pytest.mark.one_in(24)
@pytest.mark.parametrize("name", FAULTY)
def test_a_planted_fault_of_values_is_found(name: str, folder: Path, tmp_path: Path) -> None:
    make, code = FAULTY[name]
    loader = DataLoader(Samples(folder, make), batch_size=6, shuffle=True)
    assert codes_of(loader, tmp_path) == [code]


@pytest.mark.one_in(8)
@pytest.mark.parametrize("name", CORRECT)
def test_a_correct_dataset_raises_no_alarm(name: str, folder: Path, tmp_path: Path) -> None:
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
