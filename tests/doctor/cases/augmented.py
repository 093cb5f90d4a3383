"""Images through two transforms of albumentations, one computing and one asleep, after a decoder that sleeps.

A sample: decode 2 ms, transforms 3 and 2 ms. A batch of 4: 28 ms."""

from __future__ import annotations

from typing import Any

import albumentations
import numpy as np
import torch
from known_training import Pace, arguments, loader, train
from known_truth import stage
from known_work import PacedImage, burn, decoded, sleep
from torch.utils.data import Dataset


class Computing(albumentations.ImageOnlyTransform):
    def apply(self, img: np.ndarray[Any, Any], **params: Any) -> np.ndarray[Any, Any]:
        with stage("transform"):
            burn(0.003)
            return img


class Asleep(albumentations.ImageOnlyTransform):
    def apply(self, img: np.ndarray[Any, Any], **params: Any) -> np.ndarray[Any, Any]:
        with stage("transform"):
            sleep(0.002)
            return img


class Augmented(Dataset[torch.Tensor]):
    def __init__(self, count: int) -> None:
        self.files = [PacedImage.encoded(8, slept=0.002)] * count
        self.transform = albumentations.Compose([Computing(p=1.0), Asleep(p=1.0)])

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> torch.Tensor:
        with stage("getitem"):
            image = np.stack([decoded(self.files[index])] * 3, axis=-1)
            return torch.from_numpy(self.transform(image=image)["image"])


if __name__ == "__main__":
    known = arguments()
    batches = loader(Augmented(4 * known.steps), known, batch_size=4)
    train(batches, Pace(forward=0.005 * known.compute, backward=0.003, optimizer=0.002), steps=known.steps)
