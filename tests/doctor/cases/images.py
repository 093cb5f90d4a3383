"""Images out of memory: decoding sleeps and burns, the rest of __getitem__ sleeps.

A sample: decode 4 ms (2 asleep, 2 computing), getitem 2 ms. A batch of 4: 24 ms."""

from __future__ import annotations

import torch
from known_training import Pace, arguments, loader, train
from known_truth import stage
from known_work import PacedImage, decoded, sleep
from torch.utils.data import Dataset


class Images(Dataset[torch.Tensor]):
    def __init__(self, count: int) -> None:
        self.files = [PacedImage.encoded(8, slept=0.002, burnt=0.002)] * count

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> torch.Tensor:
        with stage("getitem"):
            sleep(0.002)
            return torch.from_numpy(decoded(self.files[index]))


if __name__ == "__main__":
    known = arguments()
    batches = loader(Images(4 * known.steps), known, batch_size=4)
    pace = Pace(forward=0.003 * known.compute, backward=0.003, optimizer=0.001, other=0.001)
    train(batches, pace, steps=known.steps)
