"""A loader and a device of set pace: each batch sleeps, as for storage, and computes; each step sleeps, and computes on
the training thread. Lengths in milliseconds; `--vary` spreads those of batches, `--rare` makes one in so many of them
ten times as long."""

from __future__ import annotations

import argparse
import random
from typing import Any

import torch
from known_work import burn, sleep
from quick_optimizer import Descent
from torch.utils.data import DataLoader, Dataset


class Paced(Dataset[torch.Tensor]):
    """A batch to a key: the loader is one without batching by samples."""

    def __init__(self, known: argparse.Namespace) -> None:
        self.known = known

    def __len__(self) -> int:
        return int(self.known.length)

    def __getitem__(self, key: int) -> torch.Tensor:
        known, chance = self.known, random.Random(key)
        factor = 1 + known.vary * (2 * chance.random() - 1)
        if known.rare and chance.randrange(known.rare) == 0:
            factor *= 10
        sleep(known.sleep * factor / 1000)
        burn(known.burn * factor / 1000)
        return torch.zeros(known.floats)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--prefetch", type=int, default=2)
    parser.add_argument("--persistent", action="store_true")
    parser.add_argument("--sleep", type=float, default=0.0)
    parser.add_argument("--burn", type=float, default=0.0)
    parser.add_argument("--vary", type=float, default=0.0)
    parser.add_argument("--rare", type=int, default=0)
    parser.add_argument("--floats", type=int, default=1000)
    parser.add_argument("--length", type=int, default=10_000)
    parser.add_argument("--device", type=float, default=10.0, help="of a step, in which the training thread sleeps")
    parser.add_argument("--train", type=float, default=0.0, help="of a step, in which it computes")
    return parser.parse_args()


def loader(known: argparse.Namespace) -> DataLoader[Any]:
    workers: dict[str, Any] = {}
    if known.workers:
        workers = {"prefetch_factor": known.prefetch, "persistent_workers": known.persistent}
    return DataLoader(Paced(known), batch_size=1, num_workers=known.workers, **workers)


def main() -> None:
    known = arguments()
    torch.set_num_threads(1)
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = Descent([weight], 0.0)
    batches = loader(known)
    while True:
        for batch in batches:
            loss = (weight * batch.mean()).sum()
            loss.backward()
            sleep(known.device / 1000)
            burn(known.train / 1000)
            optimizer.step()


if __name__ == "__main__":
    main()
