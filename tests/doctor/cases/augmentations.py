"""Trainings on images that public scripts have the shape of: what they draw at random, and where.

python augmentations.py {classes,pairs,own_crop,fixed} [WORKERS]
"""

from __future__ import annotations

import io
import random
import sys
from collections.abc import Callable, Iterator
from typing import Any

import albumentations
import cv2
import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

EDGE = 256
MEANS, DEVIATIONS = (0.5, 0.5, 0.5), (0.2, 0.2, 0.2)


def photos(count: int = 6) -> list[bytes]:
    """JPEGs with something in them, so that no two crops are alike."""
    encoded = []
    for seed in range(count):
        noise = np.random.default_rng(seed).integers(0, 255, (24, 32, 3), dtype=np.uint8)
        file = io.BytesIO()
        Image.fromarray(noise).resize((4 * EDGE // 3, EDGE), Image.Resampling.BICUBIC).save(file, "jpeg")
        encoded.append(file.getvalue())
    return encoded


class Photos(Dataset):  # type: ignore[type-arg]  # torch's own is not generic at run time
    """As an image folder has them: a picture, opened and converted, through one transform."""

    def __init__(self, count: int, transform: Callable[[Any], Any]) -> None:
        self.files = photos()
        self.count = count
        self.transform = transform

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        return self.transform(Image.open(io.BytesIO(self.files[index % len(self.files)])).convert("RGB"))


class Albumented:
    """A transform of albumentations, on a picture of Pillow's."""

    def __init__(self, *steps: Any) -> None:
        self.steps = albumentations.Compose([*steps, albumentations.Normalize(MEANS, DEVIATIONS)])

    def __call__(self, image: Any) -> Any:
        return torch.from_numpy(self.steps(image=np.asarray(image))["image"])


def training_transform() -> Any:
    """Of an image classifier."""
    return Albumented(albumentations.RandomResizedCrop((96, 96)), albumentations.HorizontalFlip())


def validation_transform() -> Any:
    return Albumented(albumentations.Resize(128, 170), albumentations.CenterCrop(96, 96))


class RandomScale:
    """A class of the script's own around a library's call, as references for segmentation have it."""

    def __call__(self, image: Any) -> Any:
        return cv2.resize(np.asarray(image), [random.randint(100, 140)] * 2)


class Own:
    """A sequence of the script's own."""

    def __init__(self, *steps: Callable[[Any], Any]) -> None:
        self.steps = steps

    def __call__(self, image: Any) -> Any:
        for step in self.steps:
            image = step(image)
        return image


def fixed_size(image: Any) -> Any:
    bordered = cv2.copyMakeBorder(image, 0, 140 - image.shape[0], 0, 140 - image.shape[1], cv2.BORDER_REFLECT)
    return torch.from_numpy(cv2.cvtColor(bordered, cv2.COLOR_RGB2BGR))


class OwnCrop:
    """A crop that a generator of the dataset's own draws, then Pillow's resize, then a flip."""

    def __init__(self) -> None:
        self.random = np.random.default_rng(7)

    def __call__(self, image: Any) -> Any:
        top, left = self.random.integers(0, 60, 2)
        pixels = np.asarray(image)[top : top + 160, left : left + 160]
        resized = Image.fromarray(pixels).resize((96, 96))
        flipped = np.asarray(resized)[:, ::-1] if self.random.random() < 0.5 else np.asarray(resized)
        return torch.from_numpy(flipped.copy())


class Fixed:
    """A resize of the script's own that is the same each time, then a flip."""

    def __call__(self, image: Any) -> Any:
        resized = cv2.cvtColor(np.asarray(image.resize((96, 96), Image.Resampling.LANCZOS)), cv2.COLOR_RGB2BGR)
        return torch.from_numpy((resized[:, ::-1] if random.random() < 0.5 else resized).copy())


TRANSFORMS: dict[str, Callable[[], Any]] = {
    "classes": training_transform,
    "pairs": lambda: Own(RandomScale(), fixed_size),
    "own_crop": OwnCrop,
    "fixed": Fixed,
}


def loaders(shape: str, workers: int, *, steps: int) -> list[DataLoader[Any]]:
    """The one that is trained from; of a classifier also the one that is tried before, and is as long."""
    made = [TRANSFORMS[shape]()]
    made += [validation_transform()] if shape == "classes" else []
    return [DataLoader(Photos(8 * steps, one), batch_size=8, num_workers=workers) for one in made]


def batches(loader: DataLoader[Any]) -> Iterator[Any]:
    """Of whichever loader, from one place, as a framework has it."""
    yield from loader


def train(shape: str, workers: int, *, steps: int) -> None:
    training, *validation = loaders(shape, workers, steps=steps)
    model = torch.nn.Linear(8, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    with torch.no_grad():
        for loader in validation:
            for number, batch in enumerate(batches(loader)):
                model(batch.float().mean((1, 2, 3)).unsqueeze(0))
                if number >= 3:
                    break
    for batch in batches(training):
        optimizer.zero_grad()
        model(batch.float().mean((1, 2, 3)).unsqueeze(0)).sum().backward()
        optimizer.step()


if __name__ == "__main__":
    torch.manual_seed(0)
    random.seed(0)
    train(sys.argv[1], int((sys.argv[2:] or ["2"])[0]), steps=60)
