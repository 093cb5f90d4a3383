"""Everything that goes wrong in a run, one at a time:

python hostile.py ends-early | worker-killed | worker-hung | no-loader | crashes | odd-texts | exits | untouched
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

ODD = "[bold red]x[/] \x1b[31mred\x1b[0m \x1b]0;title\x07 line\nbreak \u202eodd <script>alert(1)</script>"
"""Markup of rich and of HTML, escape sequences of a terminal, a line break, a turn of the writing direction."""


def train(batches: DataLoader[torch.Tensor]) -> int:
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    steps = 0
    for batch in batches:
        model(batch.float().reshape(-1, 1)).sum().backward()
        optimizer.step()
        steps += 1
    return steps


class Short(IterableDataset[int]):
    """Says that it has 1,000 samples and gives 10."""

    def __len__(self) -> int:
        return 1000

    def __iter__(self) -> Iterator[int]:
        yield from range(10)


class Fatal(Dataset[int]):
    """Sample 30 is the end of the worker that makes it."""

    def __init__(self, end: Callable[[], None]) -> None:
        self.end = end

    def __len__(self) -> int:
        return 60

    def __getitem__(self, index: int) -> int:
        if index == 30 and get_worker_info() is not None:
            self.end()
        return index


class OddTexts(Dataset[int]):
    """Raises with a text, and from a key, that no terminal should be given as they are."""

    def __len__(self) -> int:
        return 40

    def __getitem__(self, key: int) -> int:
        if key == 39:
            raise ValueError(ODD)
        return key


class OddKeys(torch.utils.data.Sampler[str]):
    def __iter__(self) -> Iterator[str]:
        return iter([f"{ODD}{number}" for number in range(40)])


class ByKey(Dataset[int]):
    """One sample is slow, so that its key is shown."""

    def __getitem__(self, key: str) -> int:
        if key.endswith("30"):
            time.sleep(0.05)
        return len(key)


def kill_myself() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def hang_for_good() -> None:
    threading.Event().wait()


def crash() -> None:
    train(DataLoader(OddTexts(), batch_size=2))


def untouched() -> None:
    print("steps", train(DataLoader(Fatal(lambda: None), batch_size=4, num_workers=2)))


CASES: dict[str, Callable[[], object]] = {
    "ends-early": lambda: train(DataLoader(Short(), batch_size=2)),
    "worker-killed": lambda: train(DataLoader(Fatal(kill_myself), batch_size=2, num_workers=2)),
    "worker-hung": lambda: train(DataLoader(Fatal(hang_for_good), batch_size=2, num_workers=2, timeout=15)),
    "no-loader": lambda: torch.zeros(3).sum(),
    "crashes": crash,
    "odd-texts": lambda: train(DataLoader(ByKey(), sampler=OddKeys(), batch_size=2)),
    "exits": lambda: sys.exit(7),
    "untouched": untouched,
}

if __name__ == "__main__":
    CASES[sys.argv[1]]()
