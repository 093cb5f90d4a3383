"""Three micro-batches a step, of images of several megabytes that default_collate has to copy.

A sample: decode 3 ms, getitem 1 ms, and what a copy of 1 MB costs. A batch of 4: 16 ms and more."""

from __future__ import annotations

import torch
from known_training import Pace, arguments, loader, train
from known_truth import stage
from known_work import PacedImage, decoded, sleep
from torch.utils.data import Dataset

MICRO_BATCHES = 3


class LargeImages(Dataset[torch.Tensor]):
    def __init__(self, count: int) -> None:
        self.files = [PacedImage.encoded(1000, slept=0.002, burnt=0.001)] * count

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> torch.Tensor:
        with stage("getitem"):
            sleep(0.001)
            return torch.from_numpy(decoded(self.files[index]))


if __name__ == "__main__":
    known = arguments()
    batches = loader(LargeImages(4 * MICRO_BATCHES * known.steps), known, batch_size=4)
    pace = Pace(forward=0.002 * known.compute, backward=0.002, optimizer=0.003, other=0.002)
    train(batches, pace, steps=known.steps, accumulate=MICRO_BATCHES)
