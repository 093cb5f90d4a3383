"""Pictures of the tests of faults, datasets that read them, and the codes that the doctor reports for a loader."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

from headrace.doctor.explain.look import Look, read_look
from headrace.doctor.explain.samples import explain_look
from headrace.doctor.faults import find_faults
from headrace.doctor.probe.look.objects import described_loader
from headrace.doctor.probe.look.value_look import look_at_values
from headrace.doctor.session.after_run import DataFault

COUNT = 60
MEAN, STD = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])


class Samples(Dataset):
    """Samples of one function: of the folder, the sample's number and a random generator."""

    def __init__(self, folder: Path, make: Callable[..., Any], prefix: str = "") -> None:
        self.make = make
        self.paths = [str(folder / f"{prefix}{number % 12}.png") for number in range(COUNT)]
        self.masks = [str(folder / f"labels{number % 12}.png") for number in range(COUNT)]
        self.names = [f"s{number}" for number in range(COUNT)]
        self.targets = [number % 3 for number in range(COUNT)]

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> Any:
        return self.make(self, index)


def opened(samples: Samples, index: int) -> np.ndarray:
    with Image.open(samples.paths[index]) as picture:
        return np.asarray(picture.convert("RGB").resize((66, 48), Image.Resampling.BILINEAR))


def labels_of(samples: Samples, index: int, how: Any = Image.Resampling.NEAREST) -> np.ndarray:
    return np.array(Image.open(samples.masks[index]).resize((66, 48), how)).astype(np.int64)


def normalised(pixels: np.ndarray) -> torch.Tensor:
    return torch.from_numpy((pixels / 255 - MEAN) / STD).permute(2, 0, 1).float()


def classified(samples: Samples, index: int) -> Any:
    return normalised(opened(samples, index)), samples.targets[index]


def looked(loader: DataLoader, folder: Path) -> Look:
    look_at_values(loader, str(folder / "look"))
    return read_look(folder / "look")


def faults_of(loader: DataLoader, folder: Path) -> list[DataFault]:
    look = looked(loader, folder)
    return find_faults(look, explain_look(look, most_s=60), described_loader(loader, None))


def codes_of(loader: DataLoader, folder: Path) -> list[str]:
    return [fault.code for fault in faults_of(loader, folder)]
