"""How long does a training step wait for a DevicePrefetcher, and what does it cost the training thread?

    python benchmarks/device_wait.py [--batches 300] [--warm-up 30] [--rounds 3]

The device is simulated: a step is a sleep of 20 ms (the CPU is free meanwhile, as it is while a GPU works), optionally
with jitter of ±50 %. The source sleeps too, for 1/1.2 of the mean step: 1.2 × headroom. Reported after a warm-up:

    waits   the share of step time that the consumer waits, for the prefetcher at several depths and for the same source
            without it
    µs      the CPU time of the consumer's own thread in `next`, by `time.thread_time()`: of the prefetcher; of a bare
            pair of C queues, which is what waking another thread costs in the kernel; and of an iterator that has the
            batch at hand, which is what reading the clock costs. The prefetcher's Python is what is above the queues.
"""

import random
import threading
import time
from itertools import repeat
from queue import SimpleQueue
from statistics import median

import torch
from harness import arguments, in_turns, medians

import headrace as hr

STEP_S, HEADROOM = 0.020, 1.2


class Source:
    """Batches at intervals that do not depend on who takes them: each sleeps its own time."""

    def __init__(self, batches, jitter, seed):
        self._times = intervals(batches, STEP_S / HEADROOM, jitter, seed)
        self._batch = {"image": torch.zeros(32, 3, 64, 64, dtype=torch.uint8), "label": torch.zeros(32)}

    def __iter__(self):
        for seconds in self._times:
            time.sleep(seconds)
            yield self._batch

    def state_dict(self):
        """Return a state, so that the snapshot a batch is part of the cost."""
        return {"epoch": 0, "samples": 0}

    def load_state_dict(self, state):
        pass


def intervals(count, mean_s, jitter, seed):
    draw = random.Random(seed)
    return [mean_s * draw.uniform(1 - jitter, 1 + jitter) for _ in range(count)]


def waits(args, jitter, depth, seed):
    """Return the share of the step time that the consumer waited."""
    source = Source(args.batches, jitter, seed)
    iterator = iter(source if depth is None else hr.DevicePrefetcher(source, "cpu", depth=depth))
    waited = worked = 0.0
    for number, step_s in enumerate(intervals(args.batches, STEP_S, jitter, seed + 1)):
        before = time.perf_counter()
        next(iterator)
        after = time.perf_counter()
        time.sleep(step_s)
        if number >= args.warm_up:
            waited, worked = waited + after - before, worked + time.perf_counter() - before
    return waited / worked


def handed_over():
    """Do the least that a hand-over between two threads needs."""
    items, places = SimpleQueue(), SimpleQueue()

    def feed():
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


def consumer_us(iterator, steps):
    """Return the median CPU microseconds of this thread in `next`."""
    times = []
    for _ in range(steps):
        before = time.thread_time_ns()
        next(iterator)
        times.append((time.thread_time_ns() - before) / 1e3)
        time.sleep(STEP_S)
    return median(times[steps // 10 :])


def main():
    args = arguments(__doc__, batches=300, warm_up=30, rounds=3)
    print(f"step {STEP_S * 1e3:.0f} ms, source {HEADROOM} x as fast, medians of {args.rounds} rounds")
    print(f"{'jitter':<8}{'source':<26}{'waits':>8}")
    for jitter in (0.0, 0.5):
        for depth in (None, 1, 2, 4):
            share = median(waits(args, jitter, depth, seed) for seed in range(args.rounds))
            name = "alone" if depth is None else f"DevicePrefetcher({depth=})"
            print(f"±{jitter:<7.0%}{name:<26}{share:>8.2%}", flush=True)
    steps = args.batches // 2
    cases = {
        "an iterator with the batch at hand": lambda: consumer_us(repeat(None), steps),
        "a bare pair of C queues": lambda: consumer_us(handed_over(), steps),
        "DevicePrefetcher": lambda: consumer_us(iter(hr.DevicePrefetcher(Source(args.batches, 0, 0), "cpu")), steps),
    }
    print("\nCPU time of the training thread in next")
    for name, time_us in medians(in_turns(cases, args.rounds)).items():
        print(f"  {name:<36}{time_us:>8.1f} µs")


if __name__ == "__main__":
    main()
