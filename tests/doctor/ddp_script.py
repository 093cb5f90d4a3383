"""A script, by torchrun's variables: DistributedDataParallel over gloo. Rank 1 sleeps in each forward pass."""

from __future__ import annotations

import os
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from training_loops import Loop, loader

STEPS = 11
SLEEP_S = 0.03


def main() -> None:
    dist.init_process_group("gloo")
    loop = Loop()
    loop.model = DistributedDataParallel(loop.model)  # type: ignore[arg-type]
    for batch in loader(4 * STEPS):
        if os.environ["RANK"] == "1":
            time.sleep(SLEEP_S)
        loop.step(batch)
    dist.all_reduce(torch.ones(1))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
