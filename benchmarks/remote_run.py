"""One run of a Loader for remote.py, in a process of its own: prints its figures as one line of JSON.

    python benchmarks/remote_run.py '{"source": "/data/t-{000..099}.tar", "indices": "/tmp/indices", …}'

CPU time is that of threads, by the kernel's clocks: the core's (decode), obstore's (store), "headrace-fetch" (fetch),
which runs the requests, "headrace-feed" (feed), which plans them, too, and the loop that takes batches (loop).
"""

import json
import sys
import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from harness import exhaust, memory_mb

import headrace as hr
from headrace.stores import link

BATCH = 256


@dataclass(frozen=True, kw_only=True)
class Run:
    """What is run. `source`: a pattern of tars, on this machine or in a store."""

    source: str
    indices: str
    endpoint: str | None = None
    order: str = "global"
    window_blocks: int = 32
    cache: str | None = None
    warm_epochs: int = 1
    """Epochs before those that count: they fill the cache."""
    epochs: int = 1
    hedge: bool = True
    threads: int | None = None
    """Threads that decode; None: the Loader's own choice."""
    samples: int | None = None
    """Only so many of the dataset's."""
    steps: int | None = None
    """Steps of the one epoch, after which it is left."""
    step_s: float = 0.0
    """Time that the loop spends on each batch, as a training step would."""


def opened(run):
    keys = {"region": "us-east-1", "access_key_id": "bench", "secret_access_key": "bench"}
    options = {} if run.endpoint is None else {"store_options": {"endpoint": run.endpoint, **keys}}
    dataset = hr.open(run.source, cache=run.indices, **options)
    return dataset if run.samples is None else dataset.select(range(run.samples))


def thread_cpu_s():
    """Return the CPU seconds of this process's live threads, by what they do."""
    names, found = {thread.native_id: thread.name for thread in threading.enumerate()}, Counter()
    for thread in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            ran_s = int((thread / "schedstat").read_text().split()[0]) / 1e9
            name = names.get(int(thread.name), (thread / "comm").read_text().strip()).removeprefix("headrace-")
            stage = "decode" if name.isdigit() else "store" if "tokio" in name else name
            found[stage if stage in ("decode", "store", "fetch", "feed") else "loop"] += ran_s
    return found


def epoch(loader, steps, step_s):
    """Run an epoch, and return its figures from the second batch on, when all threads are there."""
    began_s, batches = time.perf_counter(), iter(loader)
    count = len(next(batches)["image"])
    first_s, before = time.perf_counter() - began_s, thread_cpu_s()
    used, images, last, longest_s, waited_s = before, 0, 0, 0.0, 0.0
    time.sleep(step_s)
    asked_s = time.perf_counter()
    for step, batch in enumerate(batches, 2):
        wait_s = time.perf_counter() - asked_s
        waited_s, longest_s, images = waited_s + wait_s, max(longest_s, wait_s), images + len(batch["image"])
        if step <= max(3, len(loader) - 8):  # before the last ones are decoded: the threads end then
            used, last = thread_cpu_s(), images
        if step == steps:
            break
        time.sleep(step_s)
        asked_s = time.perf_counter()
    wall_s, stats = time.perf_counter() - began_s, loader.stats()
    found = {
        "images": count + images, "wall_s": wall_s, "first_s": first_s, "longest_s": longest_s, "waited_s": waited_s,
        "cpu_ms": {stage: (used[stage] - before[stage]) / max(1, last) * 1e3 for stage in used},
        "hit_rate": None if stats.cache is None else stats.cache.hit_rate, "rss_mb": memory_mb("VmRSS")[0],
    }  # fmt: skip
    if stats.fetch is not None:
        fetch, counts = stats.fetch, stats.fetch.counts
        found |= {"fetched_mb": counts.bytes / 1e6, "wanted_mb": fetch.wanted_bytes / 1e6, "stall_s": fetch.stall_s}
        found |= {"requests": counts.requests, "hedges": counts.hedges}
    return found


def main():
    run = Run(**json.loads(sys.argv[1]))
    if not run.hedge:
        link._FREE_HEDGES = link._HEDGES_A_REQUEST = 0
    began_s = time.perf_counter()
    dataset = opened(run)
    open_s = time.perf_counter() - began_s
    options = {"order": hr.Windowed(window_blocks=run.window_blocks)} if run.order == "windowed" else {}
    loader = hr.Loader(
        dataset, view=hr.RandomResizedCrop(224, flip=0.5), batch_size=BATCH, shuffle=True, seed=1, remainder="wrap",
        output="numpy", cache=run.cache, threads=run.threads, **options,
    )  # fmt: skip
    for _ in range(run.warm_epochs):
        exhaust(loader)
    epochs = [epoch(loader, run.steps, run.step_s) for _ in range(run.epochs)]
    print(json.dumps({"open_s": open_s, "epochs": epochs, "peak_mb": memory_mb("VmHWM")[0]}))


if __name__ == "__main__":
    main()
