"""A dataset whose sample is one device's batch, of a size of its own, as semantic-segmentation-pytorch makes them.

python unequal_parts.py TRUTH [--equal]     writes the mean step, and what it loses to the largest part
"""

from __future__ import annotations

import json
import random
import sys
import time
from pathlib import Path

import torch
from quick_optimizer import Descent
from torch.utils.data import DataLoader, Dataset

DEVICES = 2
SECONDS_PER_PIXEL = 3e-6
IS_EQUAL = "--equal" in sys.argv


class Parts(Dataset[dict[str, torch.Tensor]]):
    def __len__(self) -> int:
        return 4_000

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        height = random.Random(index // DEVICES if IS_EQUAL else index).randrange(24, 97, 8)
        return {"image": torch.zeros(2, 3, height, 64), "label": torch.zeros(2, height, 64, dtype=torch.int64)}


def pixels(part: dict[str, torch.Tensor]) -> int:
    return part["label"].numel()


def main(steps: int = 60) -> None:
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = Descent([weight], lr=0.1)
    took, lost = [], []
    batches = DataLoader(Parts(), batch_size=DEVICES, collate_fn=list, num_workers=1)
    for _, parts in zip(range(steps), batches):  # noqa: B905 - the longer one is left
        start, sizes = time.perf_counter(), [pixels(part) for part in parts]
        weight.sum().backward()
        time.sleep(max(sizes) * SECONDS_PER_PIXEL)  # the devices' work: all wait for the slowest
        optimizer.step()
        took.append(time.perf_counter() - start)
        lost.append((max(sizes) - sum(sizes) / DEVICES) * SECONDS_PER_PIXEL)
    figures = {"step_us": 1e6 * sum(took) / steps, "lost_us": 1e6 * sum(lost) / steps}
    Path(sys.argv[1]).write_text(json.dumps(figures))


main()
