"""The loader against its own targets, on a folder of JPEGs: scaling, Python's share, tar and folder, memory, import.

    python benchmarks/loader_figures.py PHOTOS [--rounds 5] [--epochs 100]

Rounds are interleaved; medians are printed. Photographs come from benchmarks/make_photos.py.
"""

import statistics
import tempfile
import time
from functools import partial
from pathlib import Path

from harness import arguments, exhaust, in_turns, jpegs, medians, memory_mb, process_json, repeated, write_tar

import headrace as hr

SETTINGS = {"view": hr.RandomResizedCrop(224, flip=0.5), "batch_size": 256, "shuffle": True}


def rate(where, threads, epochs=3):
    """Return images/s after a first epoch, and the feed's Python CPU milliseconds a batch of 256."""
    loader = hr.Loader(str(where), **SETTINGS, remainder="wrap", threads=threads)
    exhaust(loader)
    python_s, batches, start = 0.0, 0, time.perf_counter()
    for _ in range(epochs):
        exhaust(loader)
        python_s, batches = python_s + loader.stats().python_s, batches + loader.stats().batches
    return 256 * batches / (time.perf_counter() - start), python_s / batches * 1e3


def scaling(photos, rounds):
    found = medians(in_turns({threads: partial(rate, photos, threads) for threads in (1, 2)}, rounds))
    (one, python_ms), (two, _) = found.values()
    print(f"1 thread {one:,.0f}, 2 threads {two:,.0f} images/s: {two / one:.2f} x")
    print(f"Python: {python_ms:.2f} ms of CPU a batch of 256, measured with one core thread")


def tar_against_folder(photos, rounds):
    with tempfile.TemporaryDirectory() as name:
        members = ((str(path.relative_to(photos)), path.read_bytes()) for path in jpegs(photos))
        tar = write_tar(Path(name, "photos.tar"), members)
        found = medians(in_turns({where: partial(rate, where, 2) for where in (photos, tar)}, rounds))
    (folder, _), (tar, _) = found.values()
    print(f"tar {tar:,.0f}, folder {folder:,.0f} images/s: {tar / folder:.3f} x")


def import_time():
    code = "import time; t = time.perf_counter(); import {}; print((time.perf_counter() - t) * 1e3)"
    cases = {name: partial(process_json, "-c", code.format(name)) for name in ("numpy", "headrace")}
    numpy_ms, own_ms = medians(in_turns(cases, 7)).values()
    print(f"import headrace: {own_ms - numpy_ms:.0f} ms beyond numpy's own")


def memory(photos, epochs):
    dataset = repeated(photos, max(2000, len(hr.open(photos))))
    loader, at = hr.Loader(dataset, **SETTINGS), []
    for _ in range(epochs):
        exhaust(loader)
        at += memory_mb("VmRSS")
    early, late = statistics.median(at[epochs // 10 : epochs // 5]), statistics.median(at[-(epochs // 10) :])
    print(f"{epochs} epochs over {len(dataset):,} images: {early:,.0f} MB early, {late:,.0f} MB late")


def main():
    args = arguments(__doc__, "photos", rounds=5, epochs=100)
    scaling(args.photos, args.rounds)
    tar_against_folder(args.photos, args.rounds)
    import_time()
    memory(args.photos, args.epochs)


if __name__ == "__main__":
    main()
