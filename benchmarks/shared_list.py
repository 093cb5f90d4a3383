"""What do workers cost that hold millions of strings: in a plain list, and in a shared_list?

    python benchmarks/shared_list.py [--strings 10000000] [--workers 2]

For each kind: how long it takes to build, to start a spawned worker with it, and to get one item at random; and how
much a worker's own memory grows (private dirty bytes of /proc/PID/smaps_rollup) while it reads all items once, forked,
with all workers reading at the same time. The list goes to a spawned worker by pickle, the shared_list by a descriptor.
Each worker is measured by itself, and the median is shown. The list needs about 110 bytes a string, twice where it is
spawned; --no-spawned-list leaves that out.
"""

import gc
import multiprocessing
import random
import statistics
import time

from harness import arguments, machine, memory_mb, seconds

from headrace.dropins.shared_sequence import shared_list

GETS, TIMEOUT_S = 200_000, 600


def read_all(items, start, end):
    """Send the MB that this forked worker has grown by."""
    gc.disable()
    for _ in range(3):
        before = memory_mb("Private_Dirty")[0]
    start.wait(TIMEOUT_S)
    sum(map(len, items))
    start.wait(TIMEOUT_S)  # so that nobody's pages become another's alone because it has ended
    end.send(memory_mb("Private_Dirty")[0] - before)


def growth_mb(items, workers):
    context = multiprocessing.get_context("fork")
    start = context.Barrier(workers)
    pipes = [context.Pipe(duplex=False) for _ in range(workers)]
    processes = [context.Process(target=read_all, args=(items, start, ours)) for _, ours in pipes]
    for process in processes:
        process.start()
    grown = [end.recv() for end, _ in pipes]
    for process in processes:
        process.join()
    return statistics.median(grown)


def send_length(items, end):
    end.send(len(items))


def spawned_s(items):
    """Return the seconds until a spawned worker has the items."""
    context = multiprocessing.get_context("spawn")
    end, theirs = context.Pipe(duplex=False)
    process = context.Process(target=send_length, args=(items, theirs))
    taken = seconds(lambda: (process.start(), end.recv()))
    process.join()
    return taken


def get_all(items, wanted):
    for index in wanted:
        items[index]


def path_of(number):
    return f"train/n{number % 1000:08d}/image_{number:08d}.JPEG"


def main():
    args = arguments(__doc__, strings=10_000_000, workers=2, no_spawned_list=False)
    print(f"{machine()}\n{args.strings:,} strings such as {path_of(7)!r}, {args.workers} forked workers")
    print(f"{'':14}{'build':>11}{'spawn one':>11}{'get':>12}{'a worker grows by':>19}")
    wanted = random.Random(0).choices(range(args.strings), k=GETS)
    for kind, is_spawned in ((shared_list, True), (list, not args.no_spawned_list)):
        begin = time.perf_counter()
        items = kind(map(path_of, range(args.strings)))
        built = time.perf_counter() - begin
        got = statistics.median(seconds(lambda items=items: get_all(items, wanted)) for _ in range(5)) / GETS
        grown = growth_mb(items, args.workers)
        spawned = f"{spawned_s(items):9.2f} s" if is_spawned else f"{'not run':>11}"
        print(f"{kind.__name__:14}{built:9.1f} s{spawned}{got * 1e6:9.2f} us{grown:13.1f} MB", flush=True)


if __name__ == "__main__":
    main()
