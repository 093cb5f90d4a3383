"""The loader against its own targets, on a folder of JPEGs: scaling, Python's share, tar against folder, memory, import.

    python benchmarks/loader_figures.py PHOTOS [--rounds 5] [--epochs 100]

Rounds are interleaved; medians are printed. Photographs come from benchmarks/make_photos.py.
"""

import argparse
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

import psutil

import headrace as hr

VIEW = hr.RandomResizedCrop(224, flip=0.5)


def rate(where, threads, epochs=3):
    """Images a second after a first epoch, and the feed's Python CPU milliseconds a batch of 256."""
    loader = hr.Loader(where, view=VIEW, batch_size=256, shuffle=True, remainder="wrap", threads=threads)
    for _ in loader:
        pass
    count, python_s, batches = 0, 0.0, 0
    start = time.perf_counter()
    for _ in range(epochs):
        for batch in loader:
            count += len(batch["image"])
        python_s, batches = python_s + loader.stats().python_s, batches + loader.stats().batches
    return count / (time.perf_counter() - start), python_s / batches * 1e3


def medians(cases, rounds):
    """Interleaves the cases, and gives the median of each one's figures."""
    results = {name: [] for name in cases}
    for _ in range(rounds):
        for name, case in cases.items():
            results[name].append(case())
    return {name: [statistics.median(column) for column in zip(*rows, strict=True)] for name, rows in results.items()}


def scaling(photos, rounds):
    found = medians({1: lambda: rate(photos, 1), 2: lambda: rate(photos, 2)}, rounds)
    print(f"1 thread {found[1][0]:,.0f}, 2 threads {found[2][0]:,.0f} images/s: {found[2][0] / found[1][0]:.2f} x")
    print(f"Python: {found[1][1]:.2f} ms of CPU a batch of 256, measured with one core thread")


def tar_against_folder(photos, rounds):
    with tempfile.TemporaryDirectory() as folder:
        tar = Path(folder) / "photos.tar"
        with tarfile.open(tar, "w") as archive:
            for path in sorted(Path(photos).rglob("*.jpg")):
                archive.add(path, arcname=str(path.relative_to(photos)))
        found = medians({"folder": lambda: rate(photos, 2), "tar": lambda: rate(str(tar), 2)}, rounds)
    print(f"tar {found['tar'][0]:,.0f}, folder {found['folder'][0]:,.0f} images/s: "
          f"{found['tar'][0] / found['folder'][0]:.3f} x")  # fmt: skip


def memory(photos, epochs):
    dataset = hr.open(photos)
    dataset = dataset.select(list(range(len(dataset))) + list(range(2000 - len(dataset)))) if len(dataset) < 2000 else dataset
    loader = hr.Loader(dataset, view=VIEW, batch_size=256, shuffle=True)
    process, at = psutil.Process(), {}
    for epoch in range(epochs):
        for _ in loader:
            pass
        at[epoch] = process.memory_info().rss / 1e6
    early = statistics.median(at[e] for e in range(epochs // 10, epochs // 5))
    late = statistics.median(at[e] for e in range(epochs - epochs // 10, epochs))
    print(f"{epochs} epochs over {len(dataset):,} images: {early:,.0f} MB early, {late:,.0f} MB late")


def import_time():
    def milliseconds(module):
        code = f"import time; t = time.perf_counter(); import {module}; print((time.perf_counter() - t) * 1e3)"
        return float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)

    runs = [(milliseconds("numpy"), milliseconds("headrace")) for _ in range(7)]
    beyond = statistics.median(own for _, own in runs) - statistics.median(numpy for numpy, _ in runs)
    print(f"import headrace: {beyond:.0f} ms beyond numpy's own")


def main():
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("photos")
    ask.add_argument("--rounds", type=int, default=5)
    ask.add_argument("--epochs", type=int, default=100)
    args = ask.parse_args()
    scaling(args.photos, args.rounds)
    tar_against_folder(args.photos, args.rounds)
    import_time()
    memory(args.photos, args.epochs)


if __name__ == "__main__":
    main()
