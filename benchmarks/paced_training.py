"""A training run with a simulated device, for doctor_overhead.py: each step sleeps as long as a GPU would compute.

    python benchmarks/paced_training.py STEP_MS WORKERS STEPS

A small model, batches of 8 samples that cost next to nothing, forward, backward and SGD for real. Prints, as JSON, the
mean of the steps' wall time and of the training thread's CPU time, in microseconds, without the slowest hundredth.
"""

import json
import math
import statistics
import sys
import time
from itertools import pairwise

import torch
from harness import Mapped
from torch.utils.data import DataLoader

BATCH = 8
WARM_UP = 64
"""Steps: the doctor looks at as many before it knows what that costs."""
SAMPLE = torch.zeros(16)


def sample(_):
    return SAMPLE


def train(step_s, workers, steps, after_step=lambda number: None):
    """Return wall and CPU microseconds of each step; `after_step(number)` is called after each, beginning with 1."""
    torch.set_num_threads(1)
    model = torch.nn.Linear(16, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    wall, cpu = [time.perf_counter()], [time.thread_time()]
    for batch in DataLoader(Mapped(range(BATCH * steps), sample), batch_size=BATCH, num_workers=workers):
        loss = model(batch).sum()
        time.sleep(step_s)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        wall.append(time.perf_counter())
        cpu.append(time.thread_time())
        after_step(len(wall) - 1)
    return [[(after - before) * 1e6 for before, after in pairwise(readings)] for readings in (wall, cpu)]


def usual(times):
    """Average without the slowest steps, which other programs delay; the doctor's own work is spread over more."""
    return statistics.mean(sorted(times)[: math.ceil(0.99 * len(times))])


def main():
    step_ms, workers, steps = float(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    print(json.dumps([usual(times[min(WARM_UP, steps // 2) :]) for times in train(step_ms / 1000, workers, steps)]))


if __name__ == "__main__":
    main()
