"""A training whose workers read files in one of several ways, and note each that they read in a log of their own.

python read_files.py HOW FOLDER LOG [--epochs N]

HOW: open, pillow, opencv or tar.
"""

from __future__ import annotations

import argparse
import os
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from quick_optimizer import Descent
from torch.utils.data import DataLoader, Dataset

MEMBERS = 8


def by_open(path: Path) -> int:
    with open(path, "rb") as file:
        return len(file.read())


def by_pillow(path: Path) -> int:
    with Image.open(path) as image:
        return int(np.asarray(image).sum())


def by_opencv(path: Path) -> int:
    import cv2

    pixels = cv2.imread(str(path))
    assert pixels is not None, path
    return int(pixels.sum())


READERS: dict[str, Callable[[Path], int]] = {"open": by_open, "pillow": by_pillow, "opencv": by_opencv}


class Files(Dataset[torch.Tensor]):
    def __init__(self, paths: list[Path], read: Callable[[Path], int], log: str) -> None:
        self.paths, self.read, self.log = paths, read, log

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> torch.Tensor:
        path = self.paths[index]
        noted(self.log, path)
        return torch.tensor([self.read(path) % 1000], dtype=torch.float32)


class Members(Dataset[torch.Tensor]):
    def __init__(self, path: Path, log: str) -> None:
        self.path, self.log = path, log
        self.tar: tarfile.TarFile | None = None

    def __len__(self) -> int:
        return MEMBERS

    def __getitem__(self, index: int) -> torch.Tensor:
        if self.tar is None:
            noted(self.log, self.path)
            self.tar = tarfile.open(self.path, "r:")  # noqa: SIM115  (a worker's own, as datasets have it)
        file = self.tar.extractfile(f"{index}.png")
        assert file is not None
        return torch.tensor([len(file.read())], dtype=torch.float32)


def noted(log: str, path: Path) -> None:
    """One write a line, so that workers do not mix theirs."""
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(descriptor, f"{path}\n".encode())
    os.close(descriptor)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("how")
    parser.add_argument("folder", type=Path)
    parser.add_argument("log")
    parser.add_argument("--epochs", type=int, default=1)
    asked = parser.parse_args()
    torch.manual_seed(0)
    paths = sorted(asked.folder.glob("*.png"))
    if asked.how == "tar":
        dataset: Dataset[torch.Tensor] = Members(asked.folder / "all.tar", asked.log)
    else:
        dataset = Files(paths, READERS[asked.how], asked.log)
    model = torch.nn.Linear(1, 1)
    optimizer = Descent(model.parameters(), lr=1e-9)
    loader = DataLoader(dataset, batch_size=4, shuffle=True, num_workers=2)
    for _ in range(asked.epochs):
        for batch in loader:
            model(batch).mean().backward()
            optimizer.step()


if __name__ == "__main__":
    main()
