"""Images decoded, cut and resized on the device, compared with the core: rate, and levels of difference.

    python benchmarks/device_decode.py PHOTOS [--device cuda] [--images 2000] [--batch 256] [--size 224]

Prints images/s of `decode="core"` with few and with all threads and of `decode="device"`, in turns, and by how many
levels the device's images differ. torchvision's nvJPEG decoder and DALI run as well if they are installed. With
`--device cpu`, nvImageCodec's CPU backend rehearses all of it but the hardware's pixels.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

import headrace as hr


def loader(paths: list[str], args: argparse.Namespace, decode: str, threads: int | None = None) -> hr.Loader:
    return hr.Loader(
        paths,
        {"image": hr.Image(dct_scaling=False)},
        view=hr.RandomResizedCrop(args.size, flip=0.5),
        batch_size=args.batch,
        seed=0,
        device=args.device,
        decode=decode,
        threads=threads,
    )


def waited(batches: Iterator[Any], device: str) -> Iterator[Any]:
    """Yield batches once the device has made them."""
    for batch in batches:
        if device != "cpu":
            torch.cuda.synchronize()
        yield batch


def rate(make: Callable[[], Iterator[Any]], args: argparse.Namespace) -> float:
    """Return images/s after the first two batches."""
    batches = waited(make(), args.device)
    for _ in range(2):
        next(batches)
    began = time.perf_counter()
    count = sum(args.batch for _ in batches)
    return count / (time.perf_counter() - began)


def levels(paths: list[str], args: argparse.Namespace) -> str:
    """Return how the device's images differ from the core's."""
    found = []
    for ours, core in zip(loader(paths, args, "device"), loader(paths, args, "core"), strict=True):
        found.append((ours["image"].int() - core["image"].int()).abs().flatten().cpu().numpy())
    apart = np.concatenate(found)
    most = np.quantile(apart, 0.999)
    return f"99.9 % within {most:.0f} levels, at most {apart.max()}, {np.mean(apart == 0):.1%} equal"


def torchvision_batches(paths: list[str], args: argparse.Namespace) -> Iterator[Any]:
    from torchvision.io import ImageReadMode, decode_jpeg, read_file
    from torchvision.transforms import v2

    crop = v2.Compose([v2.RandomResizedCrop(args.size, antialias=True), v2.RandomHorizontalFlip()])
    for start in range(0, len(paths), args.batch):
        files = [read_file(path) for path in paths[start : start + args.batch]]
        images = decode_jpeg(files, mode=ImageReadMode.RGB, device=args.device)
        yield torch.stack([crop(image) for image in images])


def dali_batches(paths: list[str], args: argparse.Namespace) -> Iterator[Any]:
    from nvidia.dali import fn, pipeline_def
    from nvidia.dali.plugin.pytorch import DALIGenericIterator

    @pipeline_def(batch_size=args.batch, num_threads=4, device_id=0)
    def pipeline() -> Any:
        encoded, _ = fn.readers.file(files=paths, name="files")
        images = fn.decoders.image_random_crop(encoded, device="mixed")
        images = fn.resize(images, size=(args.size, args.size), antialias=True)
        return fn.flip(images, horizontal=fn.random.coin_flip())

    yield from DALIGenericIterator(pipeline(), ["image"], reader_name="files")


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("photos", type=Path)
    ask.add_argument("--device", default="cuda")
    ask.add_argument("--images", type=int, default=8_192)
    ask.add_argument("--batch", type=int, default=256)
    ask.add_argument("--size", type=int, default=224)
    ask.add_argument("--rounds", type=int, default=3)
    args = ask.parse_args()
    found = sorted(str(path) for path in args.photos.rglob("*.jpg"))
    paths = [found[at % len(found)] for at in range(args.images)]
    ways: dict[str, Callable[[], Iterator[Any]]] = {
        "headrace, core, 4 threads": lambda: iter(loader(paths, args, "core", threads=4)),
        "headrace, core, all threads": lambda: iter(loader(paths, args, "core")),
        "headrace, device": lambda: iter(loader(paths, args, "device")),
    }
    if args.device != "cpu":
        ways |= {
            "torchvision, nvJPEG": lambda: torchvision_batches(paths, args),
            "DALI, mixed": lambda: dali_batches(paths, args),
        }
    rates: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(1 + args.rounds):  # the first round warms up
        for name, make in ways.items():
            try:
                rates[name].append(rate(make, args))
            except ImportError as error:
                rates.pop(name, None)
                print(f"{name}: not installed ({error.name})")
        ways = {name: make for name, make in ways.items() if name in rates}
    for name, measured in rates.items():
        print(f"{name:30} {statistics.median(measured[1:]):10,.0f} images/s")
    print(levels(paths[: 4 * args.batch], args))


if __name__ == "__main__":
    main()
