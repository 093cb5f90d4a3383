"""Loaders that deliver on a CUDA device: what a training step loses to them, and what is copied how.

    python benchmarks/device_loader.py PHOTOS [--device cuda] [--batch-size 256] [--steps 40] [--rounds 3]

1. ResNet-50 in bfloat16, rounds in turn: one batch that lies on the device (the lower bound), and a Loader of PHOTOS
   with device=. Beside the step's time: the share of the pass in which the step waits, of its time the share of the
   H2D copies, and how much of copies and conversion ran alongside training.
2. A mixture of two loaders, and captions by a tokenizer, each with and without device=: samples a second, and the time
   that copies from memory that is not pinned took: of labels and ids alone, which are small.

Captions and their tokenizer are made by captioned_photos.py. --device cpu shows that it runs, not what it measures.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

import captioned_photos
import numpy as np
import torch
from resnet50 import resnet50
from torch import nn

import headrace as hr
from headrace.device import DeviceFeed

VIEW = hr.RandomResizedCrop(224, flip=0.5)
FLOATS = hr.Image(dtype="bfloat16", normalize=hr.IMAGENET)


def finish(device: str) -> None:
    if device != "cpu":
        torch.cuda.synchronize()


def repeated(photos: Path, count: int) -> Any:
    """At least `count` samples, so that no epoch ends while it is timed."""
    data = hr.open(photos)
    return data.select(np.resize(np.arange(len(data)), max(count, len(data))))


def images(photos: Path, options: argparse.Namespace, device: str | None) -> Any:
    count = (options.steps + options.warm_up + 4) * options.batch_size
    fields = {"image": FLOATS, "label": hr.Label()}
    settings: dict[str, Any] = {"batch_size": options.batch_size, "shuffle": True, "remainder": "drop"}
    return hr.Loader(repeated(photos, count), fields, view=VIEW, device=device, **settings)


def on_device(options: argparse.Namespace) -> Iterator[dict[str, torch.Tensor]]:
    size = options.batch_size
    image = torch.randn(size, 3, 224, 224, device=options.device, dtype=torch.bfloat16)
    batch = {"image": image.contiguous(memory_format=torch.channels_last)}
    batch["label"] = torch.zeros(size, dtype=torch.int64, device=options.device)
    for _ in range(options.steps + options.warm_up):
        yield batch


def step_ms(batches: Iterable[dict[str, torch.Tensor]], model: nn.Module, options: argparse.Namespace) -> float:
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    since = 0.0
    for number, batch in enumerate(islice(batches, options.steps + options.warm_up)):
        if number == options.warm_up:
            finish(options.device)
            since = time.perf_counter()
        with torch.autocast(torch.device(options.device).type, torch.bfloat16):
            loss = nn.functional.cross_entropy(model(batch["image"]), batch["label"])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
    finish(options.device)
    return (time.perf_counter() - since) / options.steps * 1e3


def print_steps(photos: Path, options: argparse.Namespace) -> None:
    model: nn.Module = resnet50().to(options.device).to(memory_format=torch.channels_last)
    bare, fed, stats = [], [], None
    for _ in range(options.rounds):
        bare.append(step_ms(on_device(options), model, options))
        loader = images(photos, options, options.device)
        fed.append(step_ms(loader, model, options))
        stats = loader.stats()
    print(f"ResNet-50, bfloat16, batch {options.batch_size}, medians of {options.rounds} rounds")
    print(f"  a batch on the device {median(bare):9.2f} ms a step")
    print(f"  with the loader       {median(fed):9.2f} ms a step {median(fed) / median(bare):8.3f} x")
    assert stats is not None
    waited = f"  the step waited {stats.consumer_wait_s / stats.wall_s:.1%} of the last pass"
    if stats.copy_s is not None and stats.convert_s is not None:
        alongside = "" if stats.overlap is None else f", {stats.overlap:.0%} of both alongside training"
        waited += (
            f"; H2D copies took {stats.copy_s / stats.wall_s:.1%}, conversion {stats.convert_s / stats.wall_s:.1%}"
        )
        waited += alongside
    print(waited)


def mixture(photos: Path, options: argparse.Namespace, device: str | None) -> Any:
    sources = {name: images(photos, options, device) for name in ("a", "b")}
    return hr.mix(sources, weights={"a": 3, "b": 1})


def captions(photos: Path, made: Path, options: argparse.Namespace, device: str | None) -> Any:
    fields = {"image": FLOATS, "text": hr.Text(made / "tokenizer.json", max_length=77)}
    data = hr.open(made / "captions.jsonl", root=photos)
    return hr.Loader(data, fields, view=VIEW, batch_size=options.batch_size, shuffle=True, device=device)


def samples_per_s(loader: Any, options: argparse.Namespace) -> tuple[float, float]:
    """Return samples a second after the warm-up, and the seconds that staging of unpinned memory took."""
    iterator = iter(loader)
    for _ in range(options.warm_up):
        next(iterator)
    since, count, staged_s = time.perf_counter(), 0, 0.0
    for batch in islice(iterator, options.steps):
        count += len(batch["image"])
        finish(options.device)
    elapsed = time.perf_counter() - since
    feed = getattr(loader._pass, "_feed", None)
    if isinstance(feed, DeviceFeed):
        staged_s = feed.stats().copies.stage_s
    iterator.close()
    return count / elapsed, staged_s


def print_rates(photos: Path, made: Path, options: argparse.Namespace) -> None:
    cases = {
        "mixture of two loaders": lambda device: mixture(photos, options, device),
        "images and captions": lambda device: captions(photos, made, options, device),
    }
    for name, make in cases.items():
        here, there, staged = [], [], 0.0
        for _ in range(options.rounds):
            here.append(samples_per_s(make(None), options)[0])
            rate, staged = samples_per_s(make(options.device), options)
            there.append(rate)
        print(
            f"{name}: {median(here):,.0f} samples/s on the host, {median(there):,.0f} on the device "
            f"({median(there) / median(here):.3f} x), {staged * 1e3:.1f} ms of copies from unpinned memory"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photos", type=Path)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--warm-up", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    if options.device != "cpu" and not torch.cuda.is_available():
        raise SystemExit("skipped: torch sees no CUDA device here, so there is nothing to measure")
    with tempfile.TemporaryDirectory() as made:
        times = -(
            -(options.steps + options.warm_up + 4) * options.batch_size // len(list(options.photos.rglob("*.jpg")))
        )
        captioned_photos.make(options.photos, Path(made), captions=1, times=times)
        print_steps(options.photos, options)
        print_rates(options.photos, Path(made), options)


if __name__ == "__main__":
    main()
