"""Labels that a smooth filter invented are found, in bytes and among near classes; maps of levels raise no alarm."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import torch
from fault_samples import Samples, looked, normalised, opened
from PIL import Image
from scipy import ndimage
from torch.nn.functional import interpolate
from torch.utils.data import DataLoader

from headrace.doctor.explain.samples import explain_look
from headrace.doctor.faults import find_faults

HEIGHT, WIDTH = 96, 132
Make = Callable[[Samples, int], Any]


def regions(state: np.random.Generator, classes: list[int]) -> np.ndarray:
    return np.kron(state.choice(classes, (11, 15)), np.ones((9, 9)))[:HEIGHT, :WIDTH]


def waves(state: np.random.Generator) -> np.ndarray:
    """Return a map of smooth levels, from 0 to 1."""
    coarse = state.random((6, 8)).astype(np.float32)
    return cv2.resize(coarse, (WIDTH, HEIGHT), interpolation=cv2.INTER_CUBIC).clip(0, 1)


MAPS: dict[str, Callable[[np.random.Generator], np.ndarray]] = {
    "numbered": lambda state: regions(state, [0, 1, 2, 3]),
    "ignored": lambda state: regions(state, [0, 1, 2, 3, 255]),
    "coloured": lambda state: regions(state, [0, 60, 120, 180]),
    "binary": lambda state: regions(state, [0, 255]),
    "disparity": lambda state: np.floor(waves(state) * 40),
    "photograph": lambda state: state.integers(0, 40, (HEIGHT, WIDTH)),
}


@pytest.fixture(scope="module")
def maps(folder: Path) -> Path:
    for name, make in MAPS.items():
        for number in range(12):
            Image.fromarray(make(np.random.default_rng(number)).astype(np.uint8)).save(folder / f"{name}{number}.png")
    return folder


def of_pillow(samples: Samples, index: int, how: Any = Image.Resampling.BILINEAR) -> Any:
    labels = np.array(Image.open(samples.masks[index]).resize((66, 48), how))
    return {"image": normalised(opened(samples, index)), "mask": torch.from_numpy(labels)}


def of_opencv(samples: Samples, index: int, how: int = cv2.INTER_LINEAR) -> Any:
    labels = cv2.resize(cv2.imread(samples.masks[index], cv2.IMREAD_UNCHANGED), (66, 48), interpolation=how)
    return normalised(opened(samples, index)), torch.from_numpy(labels)


def of_torch(samples: Samples, index: int, how: str = "bilinear") -> Any:
    """As torchvision resizes tensors of bytes."""
    mask = torch.from_numpy(np.array(Image.open(samples.masks[index])))[None, None].float()
    resized = interpolate(mask, (48, 66), mode=how, antialias=how == "bilinear")
    return torch.from_numpy(opened(samples, index)).permute(2, 0, 1), resized[0].round().byte()


def cut_of_opencv(samples: Samples, index: int) -> Any:
    top, left = torch.randint(0, 30, (2,)).tolist()
    labels = cv2.imread(samples.masks[index], cv2.IMREAD_UNCHANGED)[top : top + 60, left : left + 90]
    pixels = cv2.imread(samples.paths[index])[top : top + 60, left : left + 90, ::-1]
    image = cv2.resize(np.ascontiguousarray(pixels), (66, 48))
    return normalised(image), torch.from_numpy(cv2.resize(labels, (66, 48)))


def as_integers(make: Make) -> Make:
    def made(samples: Samples, index: int) -> Any:
        image, labels = make(samples, index)
        return image, labels.long()

    return made


def nearest(make: Make, how: Any) -> Make:
    return lambda samples, index: make(samples, index, how)  # type: ignore[call-arg]


def most_frequent(samples: Samples, index: int) -> Any:
    """The most frequent class of each two by two pixels."""
    labels = np.array(Image.open(samples.masks[index])).reshape(48, 2, 66, 2).swapaxes(1, 2).reshape(48, 66, 4)
    counts = (labels[..., None] == labels[..., None, :]).sum(axis=-1)
    chosen = np.take_along_axis(labels, counts.argmax(axis=-1)[..., None], axis=-1)[..., 0]
    return normalised(opened(samples, index)), torch.from_numpy(chosen.astype(np.int64))


def zoomed(samples: Samples, index: int) -> Any:
    labels = ndimage.zoom(np.array(Image.open(samples.masks[index])), 0.5, order=0)
    return normalised(opened(samples, index)), torch.from_numpy(labels.astype(np.int64))


def alone(samples: Samples, index: int) -> Any:
    return of_opencv(samples, index)[1], samples.targets[index]


def found(make: Make, kind: str, maps: Path, tmp_path: Path) -> list[tuple[str, str]]:
    samples = Samples(maps, make)
    samples.masks = [str(maps / f"{kind}{number % 12}.png") for number in range(len(samples.masks))]
    look = looked(DataLoader(samples, batch_size=6, shuffle=True), tmp_path)
    faults = find_faults(look, explain_look(look, most_s=60), {})
    assert all("filter" in one.evidence for one in faults)
    return [(one.code, one.certainty) for one in faults]


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    ("make", "kind", "certainty"),
    [
        (of_pillow, "numbered", "certain"),
        (of_opencv, "numbered", "certain"),
        (of_torch, "numbered", "certain"),
        (cut_of_opencv, "ignored", "certain"),
        (of_pillow, "ignored", "certain"),
        (as_integers(of_opencv), "numbered", "certain"),
        (as_integers(of_torch), "numbered", "certain"),
        (of_opencv, "coloured", "unless intended"),
        (of_torch, "coloured", "unless intended"),
    ],
)
def test_labels_that_are_resized_smoothly(make: Make, kind: str, certainty: str, maps: Path, tmp_path: Path) -> None:
    assert found(make, kind, maps, tmp_path) == [("invented-labels", certainty)]


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (nearest(of_pillow, Image.Resampling.NEAREST), "numbered"),
        (nearest(of_opencv, cv2.INTER_NEAREST), "numbered"),
        (nearest(of_torch, "nearest"), "ignored"),
        (as_integers(nearest(of_opencv, cv2.INTER_NEAREST)), "numbered"),
        (most_frequent, "numbered"),
        (zoomed, "numbered"),
        (of_pillow, "binary"),  # a soft mask
        (of_opencv, "disparity"),
        (as_integers(of_opencv), "disparity"),
        (of_torch, "photograph"),
        (alone, "coloured"),  # a grey picture of few levels
    ],
)
def test_maps_that_are_resized_as_they_should(make: Make, kind: str, maps: Path, tmp_path: Path) -> None:
    assert found(make, kind, maps, tmp_path) == []
