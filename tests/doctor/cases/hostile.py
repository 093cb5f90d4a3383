"""Everything that goes wrong in a run, one at a time:

python hostile.py worker-killed | worker-hung | odd-texts
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator

import torch
from quick_optimizer import Descent
from torch.utils.data import DataLoader, Dataset, get_worker_info

ODD = "[bold red]x[/] \x1b[31mred\x1b[0m \x1b]0;title\x07 line\nbreak \u202eodd <script>alert(1)</script>"
"""Markup of rich and of HTML, escape sequences of a terminal, a line break, a turn of the writing direction."""


def train(batches: DataLoader[torch.Tensor]) -> int:
    model = torch.nn.Linear(1, 1)
    optimizer = Descent(model.parameters(), lr=0.1)
    steps = 0
    for batch in batches:
        model(batch.float().reshape(-1, 1)).sum().backward()
        optimizer.step()
        steps += 1
    return steps


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


class OddKeys(torch.utils.data.Sampler[str]):
    def __iter__(self) -> Iterator[str]:
        return iter([f"{ODD}{number}" for number in range(40)])


class ByKey(Dataset[int]):
    """One sample is slow, so that its key is shown; the last raises with a text that no terminal should be given as it
    is."""

    def __getitem__(self, key: str) -> int:
        if key.endswith("30"):
            time.sleep(0.05)
        if key.endswith("39"):
            raise ValueError(ODD)
        return len(key)


def kill_myself() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def hang_for_good() -> None:
    threading.Event().wait()


CASES: dict[str, Callable[[], object]] = {
    "worker-killed": lambda: train(DataLoader(Fatal(kill_myself), batch_size=2, num_workers=2)),
    "worker-hung": lambda: train(DataLoader(Fatal(hang_for_good), batch_size=2, num_workers=2, timeout=15)),
    "odd-texts": lambda: train(DataLoader(ByKey(), sampler=OddKeys(), batch_size=2, num_workers=2)),
}

if __name__ == "__main__":
    CASES[sys.argv[1]]()
