"""Image and text out of an HDF5 file, with every stage there is.

A sample: lookup 1 ms, read 1 ms, decode 2 ms, transform 2 ms, tokenise 2 ms, getitem 1 ms. A batch of 2: 18 ms, and
2 ms of collate; 2 ms more to pickle."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch
from albumentations import Compose
from augmented import Asleep
from known_training import Pace, arguments, loader, train
from known_truth import stage
from known_work import PacedImage, PacedPickle, decoded, repeat, sleep
from sentences import WORDS, tokenizer
from torch.utils.data import Dataset

TEXT = " ".join(WORDS * 40)

Sample = tuple[torch.Tensor, list[int], PacedPickle]


class Everything(Dataset[Sample]):
    def __init__(self, path: Path, count: int) -> None:
        self.path, self.count = path, count
        self.file: Any = None
        self.transform = Compose([Asleep(p=1.0)])
        self.tokenizer = tokenizer()

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Sample:
        if self.file is None:
            self.file = h5py.File(self.path)
        with stage("getitem"):
            sleep(0.001)
            with stage("lookup"):
                repeat(0.001, lambda: self.file[f"{index % 10}"])
                entry = self.file[f"{index % 10}"]
            with stage("read"):
                repeat(0.001, lambda: entry[()])
                data = entry[()]
            image = self.transform(image=np.stack([decoded(data.tobytes())] * 3, axis=-1))["image"]
            with stage("tokenise"):
                repeat(0.002, lambda: self.tokenizer(TEXT))
                tokens = self.tokenizer(TEXT)["input_ids"]
            return torch.from_numpy(image), tokens, PacedPickle(0.001, 0.0005)


def collate(samples: list[Sample]) -> list[Sample]:
    with stage("collate"):
        sleep(0.002)
        return samples


def write_file(path: Path) -> None:
    with h5py.File(path, "w") as file:
        for number in range(10):
            data = PacedImage.encoded(8, slept=0.001, burnt=0.001) + bytes(3_000_000)
            file[str(number)] = np.frombuffer(data, np.uint8)


if __name__ == "__main__":
    known = arguments(workers=4, start="spawn")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "samples.h5"
        write_file(path)
        batches = loader(Everything(path, 2 * known.steps), known, batch_size=2, collate_fn=collate)
        pace = Pace(forward=0.002 * known.compute, backward=0.001, optimizer=0.001, other=0.001)
        train(batches, pace, steps=known.steps)
