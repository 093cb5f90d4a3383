"""A training run with a simulated device, for doctor_overhead.py: each step sleeps as long as a GPU would compute.

    python benchmarks/paced_training.py STEP_MS WORKERS STEPS [OUT]

A small model, batches of 8 samples that cost next to nothing, forward, backward and SGD for real. OUT gets, as JSON,
the mean of the steps' wall time and of the training thread's CPU time, in microseconds, without the slowest hundredth.
"""

from __future__ import annotations

import http.client
import io
import itertools
import json
import math
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch.utils.data import DataLoader, Dataset

BATCH = 8
WARM_UP = 64
"""Steps: the doctor looks at as many before it knows what that costs."""


class Samples(Dataset[torch.Tensor]):
    def __init__(self, count: int) -> None:
        self.count = count
        self.sample = torch.zeros(16)

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.sample


class MemorySocket:
    """Connection to a store that answers at once, from memory: neither a server nor the network is measured."""

    ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 65536\r\n\r\n" + bytes(1 << 16)

    def sendall(self, data: bytes) -> None:
        pass

    def makefile(self, mode: str) -> io.BytesIO:
        return io.BytesIO(self.ANSWER)


class StoredSamples(Samples):
    """Samples of which each is one request, by what urllib3, requests and boto3 rest on."""

    def __getitem__(self, index: int) -> torch.Tensor:
        connection = http.client.HTTPConnection("store.example")
        connection.sock = MemorySocket()
        connection.request("GET", f"/bucket/{index:08}.jpg")
        connection.getresponse().read()
        return self.sample


def train(
    step_s: float,
    workers: int,
    steps: int,
    after_step: Callable[[int], object] = lambda number: None,
    samples: type[Samples] = Samples,
) -> tuple[list[float], list[float]]:
    """Wall and CPU microseconds of each step; `after_step(number)` is called after each, beginning with 1."""
    torch.set_num_threads(1)
    model = torch.nn.Linear(16, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    wall, cpu = [time.perf_counter()], [time.thread_time()]
    for batch in DataLoader(samples(BATCH * steps), batch_size=BATCH, num_workers=workers):
        loss = model(batch).sum()
        time.sleep(step_s)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        wall.append(time.perf_counter())
        cpu.append(time.thread_time())
        after_step(len(wall) - 1)
    return differences(wall), differences(cpu)


def differences(readings: list[float]) -> list[float]:
    return [(after - before) * 1e6 for before, after in itertools.pairwise(readings)]


def usual(times: list[float]) -> float:
    """What the machine does beside us hits few steps hard; the doctor's own work is spread over more of them."""
    return statistics.mean(sorted(times)[: math.ceil(0.99 * len(times))])


def main() -> None:
    step_ms, workers, steps = float(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    wall, cpu = (values[min(WARM_UP, steps // 2) :] for values in train(step_ms / 1000, workers, steps))
    figures = {"wall_us": usual(wall), "cpu_us": usual(cpu)}
    if len(sys.argv) > 4:
        Path(sys.argv[4]).write_text(json.dumps(figures))


if __name__ == "__main__":
    main()
