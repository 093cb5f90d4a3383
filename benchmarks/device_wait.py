"""How long does a training step wait for a DevicePrefetcher, and what does it cost the training thread?

The device is simulated: a step is a sleep of 20 ms (the CPU is free meanwhile, as it is while a GPU works), optionally
with jitter of ±50 %. The source sleeps too, for 1/1.2 of the mean step: 1.2 × headroom. Reported after a warm-up:

    waits   the share of step time that the consumer waits, for the prefetcher at several depths and for the same source
            without it
    µs      the CPU time of the consumer's own thread in `next`, by `time.thread_time()`: of the prefetcher; of a bare
            pair of C queues, which is what waking another thread costs in the kernel; and of an iterator that has the
            batch at hand, which is what reading the clock costs. The prefetcher's Python is what is above the queues.
"""

from __future__ import annotations

import argparse
import itertools
import random
import threading
import time
from collections.abc import Callable, Iterator
from queue import SimpleQueue
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


def run(batches: int, warm_up: int, jitter: float, depth: int | None, seed: int) -> float:
    """Share of the step time that the consumer waited."""
    source = Source(batches, jitter, seed)
    steps = intervals(batches, STEP_S, jitter, seed + 1)
    iterator = iter(source if depth is None else hr.DevicePrefetcher(source, "cpu", depth=depth))
    waited = worked = 0.0
    for number, step_s in enumerate(steps):
        before = time.perf_counter()
        next(iterator)
        after = time.perf_counter()
        time.sleep(step_s)
        if number >= warm_up:
            waited += after - before
            worked += time.perf_counter() - before
    return waited / worked


def handed_over() -> Iterator[object]:
    """The least that a hand-over between two threads needs."""
    items: SimpleQueue[object] = SimpleQueue()
    places: SimpleQueue[object] = SimpleQueue()

    def feed() -> None:
        while places.get() is not None:
            time.sleep(STEP_S / HEADROOM)
            items.put(items)

    thread = threading.Thread(target=feed)
    thread.start()
    try:
        for _ in range(2):
            places.put(items)
        while True:
            yield items.get()
            places.put(items)  # by the next `next`: counted as the prefetcher's is
    finally:
        places.put(None)
        thread.join()


def consumer_us(iterator: Iterator[object], steps: int) -> float:
    """Median CPU microseconds of this thread in `next`."""
    times = []
    for _ in range(steps):
        before = time.thread_time_ns()
        next(iterator)
        times.append((time.thread_time_ns() - before) / 1e3)
        time.sleep(STEP_S)
    return median(times[steps // 10 :])


def print_consumer(options: argparse.Namespace) -> None:
    makers: dict[str, Callable[[], Iterator[object]]] = {
        "an iterator with the batch at hand": lambda: itertools.repeat(None),
        "a bare pair of C queues": handed_over,
        "DevicePrefetcher": lambda: iter(hr.DevicePrefetcher(Source(options.batches, 0, 0), "cpu")),
    }
    print("\nCPU time of the training thread in next")
    rounds: dict[str, list[float]] = {name: [] for name in makers}
    for _ in range(options.rounds):
        for name, make in makers.items():
            iterator = make()
            rounds[name].append(consumer_us(iterator, options.batches // 2))
            del iterator
    for name, times in rounds.items():
        print(f"  {name:<36}{median(times):>8.1f} µs")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, default=300)
    parser.add_argument("--warm-up", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    print(f"step {STEP_S * 1e3:.0f} ms, source {HEADROOM} x as fast, medians of {options.rounds} rounds")
    print(f"{'jitter':<8}{'source':<26}{'waits':>8}")
    for jitter in (0.0, 0.5):
        for depth in (None, 1, 2, 4):
            shares = [run(options.batches, options.warm_up, jitter, depth, seed) for seed in range(options.rounds)]
            name = "alone" if depth is None else f"DevicePrefetcher({depth=})"
            print(f"±{jitter:<7.0%}{name:<26}{median(shares):>8.2%}", flush=True)
    print_consumer(options)


if __name__ == "__main__":
    main()
