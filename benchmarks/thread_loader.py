"""What does a Dataset gain under ThreadDataLoader, beside DataLoader with as many processes?

    python benchmarks/thread_loader.py FOLDER [--files 2000] [--workers 2] [--rounds 7] [--batch-size 64]

One Dataset, whose samples are photographs through `ImageReader` (RandomResizedCrop(224), flip, uint8) and whose batches
torch's own collate makes, under each loader. Two questions:

    throughput    images a second over an epoch without its first batch, by workers that are warm; and the CPU time of
                  an image in all processes, which says more where others use the machine too
    first batch   from iter(loader) to the first batch, with workers that start; the first epoch of a fresh loader

and the Python that ThreadDataLoader itself adds to a sample, with a Dataset that gives what it has. Rounds are
interleaved, and medians are printed with their quartiles.
"""

import os
import statistics
import time
from functools import partial

from harness import Mapped, arguments, described, epoch, exhaust, in_turns, jpegs, machine, print_quartiles, seconds
from torch.utils.data import DataLoader

from headrace import RandomResizedCrop
from headrace.dropins.image_reader import ImageReader
from headrace.dropins.random_sources import sample_random
from headrace.dropins.thread_loader.thread_dataloader import ThreadDataLoader
from headrace.tools.bench.runs import cpu_s, tree

READ = ImageReader(view=RandomResizedCrop(224, flip=0.5))


def photo(path):
    return READ(path, rng=sample_random().numpy), 0


def one_epoch(loader):
    """Return images/s from the first batch's arrival on, and CPU seconds an image, workers included."""
    batches = iter(loader)
    next(batches)
    processes = tree(os.getpid())
    cpu, start = cpu_s(processes), time.perf_counter()
    count = sum(len(numbers) for _, numbers in batches)
    return count / (time.perf_counter() - start), (cpu_s(processes) - cpu) / count


def first_batch_s(make):
    loader = make()
    return seconds(lambda: next(iter(loader)))


def overhead_us(workers):
    """Return the CPU time of a sample's way through the loader, all threads and the consumer together."""
    numbers = Mapped(range(64 * 300), int)
    loader = ThreadDataLoader(numbers, 64, num_workers=workers, collate_fn=list, persistent_workers=workers > 0)
    exhaust(loader)  # threads, and code, that are warm
    return epoch(loader)[1] / len(numbers) * 1e6


def main():
    args = arguments(__doc__, "folder", files=2000, workers=2, rounds=7, batch_size=64)
    files = jpegs(args.folder, args.files, more_than=args.batch_size)
    photos = Mapped(list(map(str, files)), photo)
    options = {"batch_size": args.batch_size, "shuffle": True, "num_workers": args.workers}
    print(
        f"{described(files)}; batches of {args.batch_size}, {args.workers} workers, {args.rounds} rounds; {machine()}"
    )
    cases = {
        "ThreadDataLoader": partial(one_epoch, ThreadDataLoader(photos, **options)),
        "DataLoader": partial(one_epoch, DataLoader(photos, **options, persistent_workers=True)),
    }
    runs = in_turns(cases, args.rounds, warm_up=1)
    print("throughput")
    print_quartiles({name: [run[0] for run in each] for name, each in runs.items()}, "images/s", more_is_better=True)
    print("CPU time")
    print_quartiles({name: [run[1] for run in each] for name, each in runs.items()}, "us", 1e6, more_is_better=False)
    del cases
    starts = {"ThreadDataLoader": partial(first_batch_s, partial(ThreadDataLoader, photos, **options))}
    for method in ("fork", "forkserver", "spawn"):
        make = partial(DataLoader, photos, **options, multiprocessing_context=method)
        starts[f"DataLoader, {method}"] = partial(first_batch_s, make)
    print("first batch")
    print_quartiles(in_turns(starts, args.rounds, warm_up=1), "ms", 1000, more_is_better=False)
    print("Python of the loader itself, a sample")
    for workers in (0, 1, args.workers):
        print(f"  num_workers={workers}: {statistics.median(overhead_us(workers) for _ in range(args.rounds)):.1f} us")


if __name__ == "__main__":
    main()
