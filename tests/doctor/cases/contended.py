"""Training of the shapes that public scripts have, whose model computes on the cores that its workers need.

Each shape is fed with 0 to 4 workers, so that what the doctor promises of one run can be compared with the others. The
photographs, masks, captions and arrays are made once in `--data`. A script never ends by itself: the doctor ends it."""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset

PHOTOGRAPHS = 96
ARRAYS = 24
MEAN, DEVIATION = torch.tensor([0.485, 0.456, 0.406])[:, None, None], torch.tensor([0.229, 0.224, 0.225])[:, None, None]
WORDS = {f"word{number}": number for number in range(2000)}
LENGTH = 24
"""Tokens of a caption."""


@dataclass(frozen=True)
class Shape:
    """One training: what a sample is, how large a batch, and what a step computes."""

    dataset: Callable[[Path], Dataset[Any]]
    batch: int
    model: Callable[[], nn.Module]
    sleep_s: float = 0.0
    """Of a step, in which a device would compute and the training thread waits."""
    threads: int | None = None
    """Of torch in the trainer; None for its own choice, one a core."""
    start: str = "fork"
    samples: int = 100_000
    """Of a pass over the data."""


class Photographs(Dataset[Any]):
    """A folder of JPEGs: open, a random crop at its final size, a flip, a normalised tensor, a label."""

    def __init__(self, data: Path, size: int) -> None:
        self.paths = photographs(data)
        self.size = size

    def __getitem__(self, index: int) -> tuple[torch.Tensor, Any]:
        with Image.open(self.paths[index % len(self.paths)]) as image:
            picture = image.convert("RGB")
        return normalised(cropped(picture, random.randint(0, 100), self.size)), index % 10


class Captioned(Photographs):
    """A photograph and the caption beside it, tokenised in Python."""

    def __getitem__(self, index: int) -> tuple[torch.Tensor, Any]:
        picture, _ = super().__getitem__(index)
        text = self.paths[index % len(self.paths)].with_suffix(".txt").read_text()
        numbers = [WORDS.get(word.strip(".,").lower(), 0) for word in text.split()][:LENGTH]
        return picture, torch.tensor(numbers + [0] * (LENGTH - len(numbers)))


class Masked(Photographs):
    """A photograph and its mask, cut and turned alike."""

    def __getitem__(self, index: int) -> tuple[torch.Tensor, Any]:
        path, edge = self.paths[index % len(self.paths)], random.randint(0, 100)
        with Image.open(path) as image, Image.open(path.with_suffix(".png")) as mask:
            picture, target = image.convert("RGB"), mask.copy()
        labels = np.asarray(cropped(target, edge, self.size, Image.Resampling.NEAREST)).astype(np.int64)
        return normalised(cropped(picture, edge, self.size)), torch.from_numpy(labels % 4)


class Digits(Dataset[Any]):
    """Small pictures in memory, as MNIST's are."""

    def __init__(self, _: Path) -> None:
        self.pixels = np.random.default_rng(0).integers(0, 256, (4096, 28, 28), np.uint8)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, Any]:
        picture = Image.fromarray(self.pixels[index % len(self.pixels)])
        pixels = torch.from_numpy(np.array(picture, copy=True)).unsqueeze(0).float().div(255)
        return (pixels - 0.1307) / 0.3081, index % 10


class Arrays(Dataset[Any]):
    """Arrays of numbers ready to be trained on: nothing to compute, and much to hand over."""

    def __init__(self, data: Path) -> None:
        self.paths = arrays(data)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, Any]:
        return torch.from_numpy(np.load(self.paths[index % len(self.paths)])), index % 10


class Remote(Dataset[Any]):
    """Samples of a store that answers after a while."""

    def __init__(self, _: Path) -> None:
        self.pixels = torch.zeros(3, 64, 64)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, Any]:
        time.sleep(0.006)
        return self.pixels + index % 7, index % 10


def of_length(dataset: Dataset[Any], samples: int) -> Dataset[Any]:
    dataset.__class__.__len__ = lambda _: samples  # type: ignore[attr-defined]
    return dataset


def cropped(image: Image.Image, edge: int, size: int, way: Image.Resampling = Image.Resampling.BILINEAR) -> Image.Image:
    box = (edge, edge // 2, edge + 300, edge // 2 + 300)
    found = image.resize((size, size), way, box)
    return found.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if edge % 2 else found


def normalised(image: Image.Image) -> torch.Tensor:
    pixels = torch.from_numpy(np.array(image, copy=True)).permute(2, 0, 1).float().div(255)
    return (pixels - MEAN) / DEVIATION


def photographs(data: Path) -> list[Path]:
    """Return JPEGs, each with a caption and a mask, made where they are missing."""
    folder = data / "photographs"
    if not (folder / "done").exists():
        folder.mkdir(parents=True, exist_ok=True)
        for number in range(PHOTOGRAPHS):
            state = np.random.default_rng(number)
            soft = Image.fromarray(state.integers(0, 256, (12, 16, 3), np.uint8)).resize((500, 375), Image.BICUBIC)
            pixels = np.asarray(soft) + state.normal(0, 6, (375, 500, 3))
            path = folder / f"{number:03}.jpg"
            Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(path, quality=90)
            Image.fromarray(state.integers(0, 4, (12, 16), np.uint8)).resize((500, 375), 0).save(
                path.with_suffix(".png")
            )
            path.with_suffix(".txt").write_text(" ".join(random.Random(number).choices(list(WORDS), k=30)))
        (folder / "done").touch()
    return sorted(folder.glob("*.jpg"))


def arrays(data: Path) -> list[Path]:
    folder = data / "arrays"
    if not (folder / "done").exists():
        folder.mkdir(parents=True, exist_ok=True)
        for number in range(ARRAYS):
            np.save(folder / f"{number:03}.npy", np.random.default_rng(number).random((3, 224, 224), np.float32))
        (folder / "done").touch()
    return sorted(folder.glob("*.npy"))


def residual(width: int, blocks: int, classes: int = 10) -> nn.Module:
    """Build a small ResNet without its skips, which cost nothing."""
    layers: list[nn.Module] = [nn.Conv2d(3, width, 7, 2, 3), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(2)]
    for _ in range(blocks):
        layers += [nn.Conv2d(width, width, 3, 1, 1), nn.BatchNorm2d(width), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, classes))


def convolutional(width: int, blocks: int) -> nn.Module:
    """Predict one class a pixel, at half the size inside."""
    layers: list[nn.Module] = [nn.Conv2d(3, width, 3, 2, 1), nn.ReLU()]
    for _ in range(blocks):
        layers += [nn.Conv2d(width, width, 3, 1, 1), nn.ReLU()]
    return nn.Sequential(*layers, nn.Conv2d(width, 4, 1), nn.Upsample(scale_factor=2))


def digits() -> nn.Module:
    """Build the two convolutions and two linear layers that every first example has."""
    features = [nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()]
    return nn.Sequential(*features, nn.Linear(9216, 128), nn.ReLU(), nn.Linear(128, 10))


def pooled() -> nn.Module:
    return nn.Sequential(nn.AvgPool2d(16), nn.Flatten(), nn.Linear(3 * 14 * 14, 10))


class Pairs(nn.Module):
    """A tower for pictures and one for texts."""

    def __init__(self, width: int, blocks: int) -> None:
        super().__init__()
        self.pictures, self.texts = residual(width, blocks, 64), nn.EmbeddingBag(len(WORDS), 64)

    def forward(self, pictures: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        return self.pictures(pictures) @ self.texts(tokens).T


SHAPES = {
    "imagenet": Shape(lambda data: Photographs(data, 112), 16, lambda: residual(40, 5)),
    "imagenet_light": Shape(lambda data: Photographs(data, 112), 16, lambda: residual(16, 2)),
    "imagenet_one_thread": Shape(lambda data: Photographs(data, 112), 16, lambda: residual(24, 4), threads=1),
    "imagenet_passes": Shape(lambda data: Photographs(data, 112), 16, lambda: residual(24, 3), samples=16 * 16),
    "imagenet_spawn": Shape(lambda data: Photographs(data, 112), 16, lambda: residual(24, 3), start="spawn"),
    "captions": Shape(lambda data: Captioned(data, 96), 24, lambda: Pairs(32, 4)),
    "segments": Shape(lambda data: Masked(data, 160), 8, lambda: convolutional(16, 3)),
    "mnist": Shape(Digits, 64, digits),
    "arrays": Shape(Arrays, 48, pooled),
    "device": Shape(lambda data: Photographs(data, 112), 16, lambda: residual(8, 1), sleep_s=0.04),
    "remote": Shape(Remote, 8, lambda: residual(24, 3), sleep_s=0.01),
    "remote_heavy": Shape(Remote, 8, lambda: residual(40, 5)),
}


def train(shape: Shape, batches: DataLoader[Any]) -> None:
    model = shape.model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    for inputs, targets in endless(batches):
        is_pair = isinstance(model, Pairs)
        outputs = model(inputs, targets) if is_pair else model(inputs)
        loss = nn.functional.cross_entropy(outputs, torch.arange(len(inputs)) if is_pair else targets)
        optimizer.zero_grad()
        loss.backward()
        if shape.sleep_s:
            time.sleep(shape.sleep_s)
        optimizer.step()
        loss.item()


def endless(batches: DataLoader[Any]) -> Iterator[Any]:
    while True:
        yield from batches


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("shape", choices=SHAPES)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--data", type=Path, required=True)
    known = parser.parse_args()
    shape = SHAPES[known.shape]
    if shape.threads is not None:
        torch.set_num_threads(shape.threads)
    dataset = of_length(shape.dataset(known.data), shape.samples)
    method = shape.start if known.workers else None
    train(
        shape,
        DataLoader(dataset, shape.batch, shuffle=True, num_workers=known.workers, multiprocessing_context=method),
    )


if __name__ == "__main__":
    main()
