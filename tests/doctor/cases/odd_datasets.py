"""Datasets that lose time or fail in a way of their own: by the first argument, in the folder of the second."""

from __future__ import annotations

import io
import json
import sys
import time
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from quick_optimizer import Descent
from torch.utils.data import DataLoader, Dataset

KIND, FOLDER = sys.argv[1], Path(sys.argv[2])
SIZE = 64


def photograph(number: int) -> bytes:
    file = io.BytesIO()
    Image.effect_noise((400, 300), 50 + number).save(file, "PNG")
    return file.getvalue()


class Zipped(Dataset[torch.Tensor]):
    """An archive that the trainer has opened."""

    def __init__(self) -> None:
        path = FOLDER / "photos.zip"
        with zipfile.ZipFile(path, "w") as archive:
            for number in range(SIZE):
                archive.writestr(f"{number}.png", photograph(number))
        self.archive = zipfile.ZipFile(path)

    def __len__(self) -> int:
        return 100 * SIZE

    def __getitem__(self, index: int) -> torch.Tensor:
        data = self.archive.read(f"{index % SIZE}.png")
        return torch.full((4,), float(len(data)))


class Unused(Dataset[torch.Tensor]):
    """Rows with a picture that no batch holds."""

    def __init__(self) -> None:
        import datasets

        rows = {"camera": [{"bytes": photograph(number), "path": None} for number in range(SIZE)]}
        rows |= {"action": [[float(number)] * 4 for number in range(SIZE)]}
        features = {"camera": datasets.Image(), "action": datasets.Sequence(datasets.Value("float32"))}
        self.rows = datasets.Dataset.from_dict(rows, features=datasets.Features(features))

    def __len__(self) -> int:
        return SIZE

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor(self.rows[[index, (index + 1) % SIZE]]["action"][0])


class Eager(Dataset[torch.Tensor]):
    """Everything made at once."""

    def __init__(self) -> None:
        self.items: list[Any] = []
        until = time.monotonic() + 16
        while time.monotonic() < until:
            self.items.append(np.sort(np.random.default_rng(len(self.items)).random(10_000))[:4])

    def __len__(self) -> int:
        return SIZE

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.from_numpy(self.items[index]).float()


class Texts(Dataset[torch.Tensor]):
    """A text file for each sample."""

    def __init__(self) -> None:
        for number in range(SIZE):
            numbers = np.random.default_rng(number).random((800, 4))
            np.savetxt(FOLDER / f"{number}.txt", numbers)
            (FOLDER / f"{number}.json").write_text(json.dumps(numbers.tolist()))

    def __len__(self) -> int:
        return SIZE

    def __getitem__(self, index: int) -> torch.Tensor:
        if KIND == "json":
            with open(FOLDER / f"{index}.json") as file:
                return torch.tensor(json.load(file)[0])
        return torch.from_numpy(np.loadtxt(FOLDER / f"{index}.txt")[0]).float()


def main() -> None:
    dataset = {"zip": Zipped, "unused": Unused, "eager": Eager}.get(KIND, Texts)()
    model = torch.nn.Linear(4, 1)
    optimizer = Descent(model.parameters(), lr=1e-6)
    for _ in range(4):
        for batch in DataLoader(dataset, batch_size=4, num_workers=4 if KIND == "zip" else 1):
            optimizer.zero_grad()
            model(batch).sum().backward()
            optimizer.step()


if __name__ == "__main__":
    main()
