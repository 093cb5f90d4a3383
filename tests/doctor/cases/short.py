"""Trains for so many epochs of so many batches, 4 ms a step and 4 more a sample, and perhaps ends at a step that it
counts itself: LENGTH EPOCHS WORKERS [STEPS]."""

from __future__ import annotations

import sys
import time

import torch
from quick_optimizer import Descent
from torch.utils.data import DataLoader, Dataset


class Slow(Dataset[torch.Tensor]):
    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return 4 * self.length

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(0.004)
        return torch.full((8,), float(index))


if __name__ == "__main__":
    length, epochs, workers, *counted = map(int, sys.argv[1:])
    model = torch.nn.Linear(8, 1)
    optimizer = Descent(model.parameters(), lr=1e-9)
    batches, step = DataLoader(Slow(length), batch_size=4, num_workers=workers), 0
    for _ in range(epochs):
        for batch in batches:
            loss = model(batch).mean()
            time.sleep(0.004)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if [step] == counted:
                sys.exit(0)
