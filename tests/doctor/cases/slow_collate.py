"""Small samples, and a collate that takes longer than all of them.

A sample: getitem 2 ms. A batch of 4: 8 ms, and 24 ms of collate, 8 of them computing."""

from __future__ import annotations

import torch
from known_training import Pace, arguments, loader, train
from known_truth import stage
from known_work import burn, sleep
from torch.utils.data import Dataset


class Numbers(Dataset[int]):
    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> int:
        with stage("getitem"):
            sleep(0.002)
            return index


def collate(samples: list[int]) -> torch.Tensor:
    with stage("collate"):
        sleep(0.016)
        burn(0.008)
        return torch.tensor(samples)


if __name__ == "__main__":
    known = arguments()
    batches = loader(Numbers(4 * known.steps), known, batch_size=4, collate_fn=collate)
    train(batches, Pace(forward=0.002 * known.compute, backward=0.002, optimizer=0.001), steps=known.steps)
