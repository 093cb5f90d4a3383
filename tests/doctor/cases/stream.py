"""A stream: an IterableDataset that sleeps between its samples and decodes them.

A sample: getitem 3 ms, decode 2 ms. A batch of 4: 20 ms, and a collate of 4 ms."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from known_training import Pace, arguments, loader, train
from known_truth import stage
from known_work import PacedImage, decoded, sleep
from torch.utils.data import IterableDataset, default_collate


class Stream(IterableDataset[torch.Tensor]):
    """Endless: each worker gives the same."""

    def __iter__(self) -> Iterator[torch.Tensor]:
        file = PacedImage.encoded(8, burnt=0.002)
        while True:
            with stage("getitem"):
                sleep(0.003)
                image = torch.from_numpy(decoded(file))
            yield image


def collate(samples: list[torch.Tensor]) -> torch.Tensor:
    with stage("collate"):
        sleep(0.004)
        return default_collate(samples)


if __name__ == "__main__":
    known = arguments(workers=4)
    batches = loader(Stream(), known, batch_size=4, collate_fn=collate)
    train(batches, Pace(forward=0.004 * known.compute, backward=0.002), steps=known.steps)
