"""Planted: a collate function that goes through every box in Python, and gives lists of Python objects, which are then
pickled and unpickled.

A batch of 8: some 20 ms of collate, then 15 ms to pickle and as long to unpickle; a step: 6 ms."""

from __future__ import annotations

from typing import Any

from planted import train
from torch.utils.data import DataLoader, Dataset

EXPECTED = ("collate", "pickling")
BOXES = 3_000

Boxes = list[tuple[float, float, float, float, str]]


class Detections(Dataset[Boxes]):
    def __init__(self) -> None:
        self.samples = [[(box, box + 1.0, box + 2.0, 1.5, f"class {box}") for box in range(BOXES)] for _ in range(16)]

    def __len__(self) -> int:
        return 8_000

    def __getitem__(self, index: int) -> Boxes:
        return self.samples[index % len(self.samples)]


def collate(samples: list[Boxes]) -> list[dict[str, Any]]:
    return [
        {"box": (left / 640, top / 480, right / 640, bottom / 480), "name": name.title(), "area": right * bottom}
        for sample in samples
        for left, top, right, bottom, name in sample
    ]


if __name__ == "__main__":
    train(DataLoader(Detections(), batch_size=8, num_workers=2, collate_fn=collate), seconds=0.006)
