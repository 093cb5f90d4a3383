"""Two ranks under DistributedDataParallel on gloo; one decodes 30 ms a step longer, so that the other waits for it.

    torchrun --nproc-per-node 2 ranks.py [--slow 1] [--shapes] [--unlike 1]

A sample: decode 2 ms, or 9.5 ms on the slow rank; a batch of 4. With --shapes the ranks' batches differ in size. A
sum of all ranks follows the last step. The batches of the rank --unlike hold what cannot be copied."""

from __future__ import annotations

import argparse
import os
from typing import Any

import torch
from known_work import PacedImage, decoded, sleep
from quick_optimizer import Descent
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, default_collate

BATCH = 4
LATE_S = 0.030


class RankImages(Dataset[torch.Tensor]):
    def __init__(self, count: int, side: int, decode_s: float) -> None:
        self.files = [PacedImage.encoded(side, slept=decode_s)] * count

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.from_numpy(decoded(self.files[index])).float()


class Socket:
    def __reduce__(self) -> str:
        raise TypeError("no copy")


def with_socket(samples: list[torch.Tensor]) -> list[Any]:
    return [torch.stack(samples), Socket()]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--slow", type=int, default=1, help="the rank that decodes more slowly")
    parser.add_argument("--shapes", action="store_true")
    parser.add_argument("--unlike", type=int, help="the rank whose batches hold what cannot be copied")
    known = parser.parse_args()
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo")
    rank = int(os.environ["RANK"])
    decode_s = 0.002 + (LATE_S / BATCH if rank == known.slow else 0)
    side = 16 + (8 * rank if known.shapes else 0)
    batches = DataLoader(
        RankImages(BATCH * known.steps, side, decode_s),
        batch_size=BATCH,
        num_workers=known.workers,
        collate_fn=with_socket if rank == known.unlike else default_collate,
    )
    model = DistributedDataParallel(torch.nn.Linear(1, 1))
    optimizer = Descent(model.parameters(), lr=0.1)
    for images in batches:
        if isinstance(images, list):
            images = images[0]
        loss = model(images.mean().reshape(1, 1)).sum()
        sleep(0.003)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    torch.distributed.all_reduce(torch.ones(1))
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
