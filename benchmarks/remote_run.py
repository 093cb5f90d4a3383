"""One run of a Loader for remote.py, in a process of its own: prints its figures as one line of JSON.

    python benchmarks/remote_run.py '{"source": "/data/t-{000..099}.tar", "indices": "/tmp/indices", …}'

CPU time is that of threads, by the kernel's clocks: the core's (decode), obstore's (store), "headrace-fetch" (fetch),
which runs the requests, "headrace-feed" (feed), which plans them, too, and the loop that takes batches (loop).
"""

import json
import os
import resource
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass

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


def store_options(endpoint):
    return {"endpoint": endpoint, "region": "us-east-1", "access_key_id": "bench", "secret_access_key": "bench"}


def opened(run):
    if run.endpoint is None:
        dataset = hr.open(run.source, cache=run.indices)
    else:
        dataset = hr.open(run.source, cache=run.indices, store_options=store_options(run.endpoint))
    return dataset if run.samples is None else dataset.select(range(run.samples))


def thread_cpu_s():
    """CPU seconds of this process's live threads, by what they do."""
    names = {thread.native_id: thread.name for thread in threading.enumerate()}
    found = Counter()
    for thread in os.listdir("/proc/self/task"):
        try:
            with open(f"/proc/self/task/{thread}/schedstat") as clock, open(f"/proc/self/task/{thread}/comm") as comm:
                ran_s, name = int(clock.read().split()[0]) / 1e9, names.get(int(thread), comm.read().strip())
        except (FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            continue
        is_core = name.removeprefix("headrace-").isdigit()
        stage = "decode" if is_core else "store" if "tokio" in name else name.removeprefix("headrace-")
        found[stage if stage in ("decode", "store", "fetch", "feed") else "loop"] += ran_s
    return found


def epoch(loader, steps, step_s):
    """Run an epoch, and return its figures from the second batch on, when all threads are there."""
    began_s = time.perf_counter()
    batches = iter(loader)
    count = len(next(batches)["image"])
    first_s, before = time.perf_counter() - began_s, thread_cpu_s()
    images, last = 0, 0
    time.sleep(step_s)
    used, longest_s, waited_s, asked_s = before, 0.0, 0.0, time.perf_counter()
    for step, batch in enumerate(batches, 2):
        waited_s += time.perf_counter() - asked_s
        longest_s = max(longest_s, time.perf_counter() - asked_s)
        images += len(batch["image"])
        if step <= max(3, len(loader) - 8):  # before the last ones are decoded: the threads end then
            used, last = thread_cpu_s(), images
        if step == steps:
            break
        time.sleep(step_s)
        asked_s = time.perf_counter()
    wall_s = time.perf_counter() - began_s
    stats = loader.stats()
    found = {
        "images": count + images,
        "wall_s": wall_s,
        "first_s": first_s,
        "longest_s": longest_s,
        "waited_s": waited_s,
        "cpu_ms": {stage: (used[stage] - before[stage]) / max(1, last) * 1e3 for stage in used},
        "hit_rate": None if stats.cache is None else stats.cache.hit_rate,
        "rss_mb": rss_mb(),
    }
    if stats.fetch is not None:
        counts = stats.fetch.counts
        found |= {
            "requests": counts.requests,
            "fetched_mb": counts.bytes / 1e6,
            "wanted_mb": stats.fetch.wanted_bytes / 1e6,
            "hedges": counts.hedges,
            "retries": counts.retries,
            "wait_s": stats.fetch.wait_s,
            "stall_s": stats.fetch.stall_s,
        }
    return found


def rss_mb():
    with open("/proc/self/statm") as pages:
        return int(pages.read().split()[1]) * resource.getpagesize() / 1e6


def main():
    run = Run(**json.loads(sys.argv[1]))
    if not run.hedge:
        link._FREE_HEDGES = link._HEDGES_A_REQUEST = 0
    began_s = time.perf_counter()
    dataset = opened(run)
    open_s = time.perf_counter() - began_s
    order = {"windowed": hr.Windowed(window_blocks=run.window_blocks), "global": None}[run.order]
    options = {} if order is None else {"order": order}
    loader = hr.Loader(
        dataset,
        view=hr.RandomResizedCrop(224, flip=0.5),
        batch_size=BATCH,
        shuffle=True,
        seed=1,
        remainder="wrap",
        output="numpy",
        cache=run.cache,
        threads=run.threads,
        **options,
    )
    for _ in range(run.warm_epochs):
        for _ in loader:
            pass
    epochs = [epoch(loader, run.steps, run.step_s) for _ in range(run.epochs)]
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
    print(json.dumps({"open_s": open_s, "samples": len(dataset), "epochs": epochs, "peak_mb": peak_mb}))


if __name__ == "__main__":
    main()
