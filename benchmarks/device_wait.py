"""How long does a training step wait for a DevicePrefetcher, and what does it cost the training thread?

The device is simulated: a step is a sleep of 20 ms (the CPU is free meanwhile, as it is while a GPU works), optionally
with jitter of ±50 %. The source sleeps too, for 1/1.2 of the mean step: 1.2 × headroom. Reported after a warm-up: the
share of step time that the consumer waits, for the prefetcher at several depths and for the same source without it;
and the CPU time of the consumer's own thread in `next`, by `time.thread_time()`.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Iterator
from statistics import median

import torch

import headrace as hr

STEP_S = 0.020
HEADROOM = 1.2


class Source:
    """Batches at intervals that do not depend on who takes them: each sleeps its own time."""

    def __init__(self, batches: int, jitter: float, seed: int) -> None:
        self._times = intervals(batches, STEP_S / HEADROOM, jitter, seed)
        self._batch = {"image": torch.zeros(32, 3, 64, 64, dtype=torch.uint8), "label": torch.zeros(32)}

    def __iter__(self) -> Iterator[dict[str, torch.Tensor]]:
        for seconds in self._times:
            time.sleep(seconds)
            yield self._batch

    def state_dict(self) -> dict[str, int]:
        """A source with state, so that the snapshot a batch is part of the cost."""
        return {"epoch": 0, "samples": 0}

    def load_state_dict(self, state: dict[str, int]) -> None:
        pass


def intervals(count: int, mean_s: float, jitter: float, seed: int) -> list[float]:
    draw = random.Random(seed)
    return [mean_s * draw.uniform(1 - jitter, 1 + jitter) for _ in range(count)]


def run(batches: int, warm_up: int, jitter: float, depth: int | None, seed: int) -> tuple[float, float]:
    """(Share of the step time that the consumer waited, its CPU microseconds a batch in `next`)."""
    source = Source(batches, jitter, seed)
    steps = intervals(batches, STEP_S, jitter, seed + 1)
    iterator = iter(source if depth is None else hr.DevicePrefetcher(source, "cpu", depth=depth))
    waited = worked = cpu = 0.0
    for number, step_s in enumerate(steps):
        before, cpu_before = time.perf_counter(), time.thread_time()
        next(iterator)
        after, cpu_after = time.perf_counter(), time.thread_time()
        time.sleep(step_s)
        if number >= warm_up:
            waited += after - before
            cpu += cpu_after - cpu_before
            worked += time.perf_counter() - before
    return waited / worked, cpu / (batches - warm_up) * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, default=300)
    parser.add_argument("--warm-up", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    print(f"step {STEP_S * 1e3:.0f} ms, source {HEADROOM} x as fast, medians of {options.rounds} rounds")
    print(f"{'jitter':<8}{'source':<24}{'waits':>8}{'µs in next':>12}")
    for jitter in (0.0, 0.5):
        for depth in (None, 1, 2, 4):
            rounds = [run(options.batches, options.warm_up, jitter, depth, seed) for seed in range(options.rounds)]
            share, cpu = median(r[0] for r in rounds), median(r[1] for r in rounds)
            name = "alone" if depth is None else f"DevicePrefetcher({depth=})"
            print(f"±{jitter:<7.0%}{name:<24}{share:>8.2%}{cpu:>12.1f}", flush=True)


if __name__ == "__main__":
    main()
