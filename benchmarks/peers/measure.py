"""One step of one loader in its own environment and a process of its own; prints events, each one line of JSON.

    python measure.py prepare NAME PHOTOS OUT
    python measure.py run NAME TASK SOURCE --warm 6 --counted 24

Events of both: imported (versions, and how long it took), finished (the figures). Between the events counting and
counted nothing else may burden the machine.
"""

import argparse
import importlib
import json
import time
from collections import Counter
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np
from processes import tree_cpu_s
from registry import KNOWN
from task import AUGMENTED, TASKS

MEASURED = TASKS | AUGMENTED


def main():
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    steps = ask.add_subparsers(dest="step", required=True)
    preparing = steps.add_parser("prepare")
    preparing.add_argument("name", choices=KNOWN)
    preparing.add_argument("photos", type=Path)
    preparing.add_argument("out", type=Path)
    running = steps.add_parser("run")
    running.add_argument("name", choices=KNOWN)
    running.add_argument("task", choices=MEASURED)
    running.add_argument("source", type=Path)
    running.add_argument("--warm", type=int, default=6)
    running.add_argument("--counted", type=int, default=24)
    running.add_argument("--batch-size", type=int)
    args = ask.parse_args()
    peer = KNOWN[args.name]
    loader = import_loader(peer)
    if args.step == "prepare":
        event("finished", **prepare(loader, peer, args.photos, args.out))
    else:
        task = MEASURED[args.task]
        task = replace(task, batch_size=args.batch_size or task.batch_size)
        event("finished", **run(lambda: loader.batches(args.source, task, peer.variant), task, args.warm, args.counted))


def event(name, **facts):
    print(json.dumps({"event": name, **facts}), flush=True)


def import_loader(peer):
    begin = time.perf_counter()
    loader = importlib.import_module(f"loaders.{peer.module}")
    import_s = time.perf_counter() - begin
    event("imported", import_s=import_s, versions={package: known_version(package) for package in peer.packages})
    return loader


def known_version(package):
    """None for one that runs from its sources."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def prepare(loader, peer, photos, out):
    """Convert, and give the seconds and bytes that it took."""
    begin = time.perf_counter()
    loader.prepare(photos, out, peer.variant)
    seconds = time.perf_counter() - begin
    files = [path for path in out.rglob("*") if path.is_file()]
    return {"prepare_s": seconds, "prepared_bytes": sum(path.stat().st_size for path in files)}


def run(start, task, warm, counted):
    """Take `warm` batches, then time `counted` more; the clock of the first batch begins before the dataset opens."""
    begin = time.perf_counter()
    batches = start()
    images, labels = next(batches)
    first_batch_s = time.perf_counter() - begin
    blank = blank_images(images, labels, task)
    for _ in range(warm - 1):
        images, labels = next(batches)
    event("counting")
    cpu_s, start_s, count = tree_cpu_s(), time.perf_counter(), 0
    for _ in range(counted):
        images, labels = next(batches)
        count += len(labels)
    wall_s, cpu_s = time.perf_counter() - start_s, tree_cpu_s() - cpu_s
    event("counted")
    blank += blank_images(images, labels, task)
    if hasattr(batches, "close"):
        batches.close()  # what it left in /dev/shm would be there for ever
    return {
        "first_batch_s": first_batch_s,
        "images_per_s": count / wall_s,
        "cpu_ms_per_image": cpu_s / count * 1e3,
        "blank_images": blank,
    }


def blank_images(images, labels, task):
    """Hold a batch to the contract of task.py, so that no figure is of something else; count images of one colour."""
    size, labels = task.batch_size, np.asarray(labels)
    arrays = [np.asarray(array) for array in (images if isinstance(images, list | tuple) else [images])]
    found = Counter()
    for array in arrays:
        side = array.shape[-2]
        if array.shape[-3:] not in ((3, side, side), (side, side, 3)) or len(array) != size:
            raise ValueError(f"expected {size} samples of square RGB images, got an array {array.shape}")
        if array.dtype != task.dtype:
            raise ValueError(f"expected {task.dtype}, got {array.dtype}")
        if task.dtype == "float32" and not -3 < array.min() < 0 < array.max() < 3:
            raise ValueError(f"expected normalised images, got values from {array.min()} to {array.max()}")
        found[side] += array.size // (3 * side * side * size)
    if found != task.crops:
        raise ValueError(f"expected crops {dict(task.crops)} (side: count), got {dict(found)}")
    if labels.shape != (size, *task.label_shape):
        raise ValueError(f"expected labels {(size, *task.label_shape)}, got an array {labels.shape}")
    return sum(bool((image == image.flat[0]).all()) for array in arrays for image in array)


if __name__ == "__main__":
    main()
