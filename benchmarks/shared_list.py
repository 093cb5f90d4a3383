"""What do workers cost that hold millions of strings: in a plain list, and in a shared_list?

    python benchmarks/shared_list.py [--strings 10000000] [--workers 2]

For each kind: how long it takes to build, to start a spawned worker with it, and to get one item at random; and how
much a worker's own memory grows (private dirty bytes of /proc/PID/smaps_rollup) while it reads all items once, forked,
with all workers reading at the same time. The list goes to a spawned worker by pickle, the shared_list by a descriptor.
Each worker is measured by itself, and the median is shown. The list needs about 110 bytes a string, twice where it is
spawned; --no-spawned-list leaves that out.
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import random
import statistics
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from pathlib import Path

from headrace.dropins.shared_sequence import shared_list
from headrace.tools.bench.comparison import environment

GETS = 200_000
TIMEOUT_S = 600


def private_bytes() -> int:
    rollup = Path("/proc/self/smaps_rollup").read_text()
    return 1024 * next(int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Private_Dirty:"))


def read_all(items: Sequence[str], start: Barrier, end: Connection) -> None:
    """In a forked worker: bytes that it has grown by."""
    gc.disable()
    for _ in range(2):
        private_bytes()
    before = private_bytes()
    start.wait(TIMEOUT_S)
    total = sum(map(len, items))
    start.wait(TIMEOUT_S)  # so that nobody's pages become another's alone because it has ended
    end.send((private_bytes() - before, total))


def say_started(items: Sequence[str], end: Connection) -> None:
    end.send(len(items))


def growth_bytes(items: Sequence[str], workers: int) -> float:
    context = multiprocessing.get_context("fork")
    start = context.Barrier(workers)
    pipes = [context.Pipe(duplex=False) for _ in range(workers)]
    processes = [context.Process(target=read_all, args=(items, start, ours)) for _, ours in pipes]
    for process in processes:
        process.start()
    grown = [end.recv()[0] for end, _ in pipes]
    for process in processes:
        process.join()
    return statistics.median(grown)


def spawned_s(items: Sequence[str]) -> float:
    """Seconds until a spawned worker has the items."""
    context = multiprocessing.get_context("spawn")
    end, theirs = context.Pipe(duplex=False)
    process = context.Process(target=say_started, args=(items, theirs))
    begin = time.perf_counter()
    process.start()
    end.recv()
    taken = time.perf_counter() - begin
    process.join()
    return taken


def get_s(items: Sequence[str]) -> float:
    wanted = random.Random(0).choices(range(len(items)), k=GETS)
    begin = time.perf_counter()
    for index in wanted:
        items[index]
    return (time.perf_counter() - begin) / GETS


def measure(name: str, build: Callable[[], Sequence[str]], workers: int, *, spawn: bool) -> None:
    begin = time.perf_counter()
    items = build()
    built = time.perf_counter() - begin
    got = statistics.median(get_s(items) for _ in range(5))
    grown = growth_bytes(items, workers)
    spawned = f"{spawned_s(items):9.2f} s" if spawn else f"{'not run':>11}"
    print(f"{name:14}{built:9.1f} s{spawned}{got * 1e6:9.2f} us{grown / 1e6:13.1f} MB", flush=True)


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("--strings", type=int, default=10_000_000)
    ask.add_argument("--workers", type=int, default=2)
    ask.add_argument("--no-spawned-list", action="store_true", help="do not pickle the plain list to a worker")
    options = ask.parse_args()
    machine = environment()
    print(f"{machine.cpu}, {machine.cores} cores, Python {machine.python}")
    print(f"{options.strings:,} strings such as {path_of(7)!r}, {options.workers} forked workers")
    print(f"{'':14}{'build':>11}{'spawn one':>11}{'get':>12}{'a worker grows by':>19}")
    count, workers = options.strings, options.workers
    measure("shared_list", lambda: shared_list(map(path_of, range(count))), workers, spawn=True)
    measure("list", lambda: list(map(path_of, range(count))), workers, spawn=not options.no_spawned_list)


def path_of(number: int) -> str:
    return f"train/n{number % 1000:08d}/image_{number:08d}.JPEG"


if __name__ == "__main__":
    main()
