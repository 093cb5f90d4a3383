"""Colour on a device: the core's drawn operations, batched, beside torchvision v2 and kornia where they are installed.

    python benchmarks/device_colour.py [--device cuda] [--batch-size 256] [--size 224] [--rounds 5]

Two recipes on uint8 images that lie on the device: ColorJitter(0.4, 0.4, 0.4, 0.1), and SimCLR's colours and blur.
Milliseconds a batch, and images a second, medians over rounds in turn. What each does:

    headrace            each image's own draws, made by the core on the host; as the Loader does with
                        augment_on="device", and compiled ("device-compiled")
    draws alone         the part of that which the host does
    torchvision, batch  one draw for the whole batch, in one call
    torchvision, each   a draw for each image, in a loop, as in a Dataset
    kornia              each image's own draws; float images, and colours in its own arithmetic

--device cpu shows that it runs.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import replace
from statistics import median
from typing import Any

import torch

import headrace as hr
from headrace import _core
from headrace.augment import BatchedChains, compile_augment
from headrace.device.colour_operations import run_chains

JITTER = (0.4, 0.4, 0.4, 0.1)
SIMCLR = (0.8, 0.8, 0.8, 0.2)
KERNEL, SIGMA = 23, (0.1, 2.0)
WARM_UP, REPEATS = 3, 10
OURS = {
    "ColorJitter": [hr.ColorJitter(*JITTER)],
    "SimCLR": [
        hr.RandomApply([hr.ColorJitter(*SIMCLR)], p=0.8),
        hr.RandomGrayscale(0.2),
        hr.RandomApply([hr.GaussianBlur(KERNEL, SIGMA)], p=0.5),
    ],
}
Work = Callable[[], object]


def chains_of(recipe: str, images: torch.Tensor, compiled: bool) -> BatchedChains:
    program = compile_augment("image", OURS[recipe])
    assert program is not None
    height, width = images.shape[-2:]
    drawn = [_core.draw_chain(program.native, 1, id_, 0, width=width, height=height) for id_ in range(len(images))]
    return BatchedChains.of(drawn, compiled=compiled)


def on_device(chains: BatchedChains, device: str) -> BatchedChains:
    names = ("rows", "numbers", "taps", "erasures")
    return replace(chains, **{name: torch.from_numpy(getattr(chains, name)).to(device) for name in names})


def ours(recipe: str, images: torch.Tensor, device: str) -> dict[str, Work]:
    def run(compiled: bool) -> Work:
        return lambda: run_chains(images, on_device(chains_of(recipe, images, compiled), device))

    return {
        "headrace": run(False),
        "headrace, compiled": run(True),
        "draws alone": lambda: chains_of(recipe, images, False),
    }


def torchvision_work(recipe: str, images: torch.Tensor) -> dict[str, Work]:
    from torchvision.transforms import v2

    steps: Any = v2.ColorJitter(*JITTER)
    if recipe == "SimCLR":
        jitter, blur = v2.ColorJitter(*SIMCLR), v2.GaussianBlur(KERNEL, SIGMA)
        steps = v2.Compose([v2.RandomApply([jitter], 0.8), v2.RandomGrayscale(0.2), v2.RandomApply([blur], 0.5)])
    return {
        "torchvision, batch": lambda: steps(images),
        "torchvision, each": lambda: torch.stack([steps(image) for image in images]),
    }


def kornia_work(recipe: str, images: torch.Tensor) -> dict[str, Work]:
    import kornia.augmentation as K  # noqa: N812  # as its documentation has it

    steps: Any = K.ColorJitter(*JITTER, p=1.0)
    if recipe == "SimCLR":
        blur = K.RandomGaussianBlur((KERNEL, KERNEL), SIGMA, p=0.5)
        steps = torch.nn.Sequential(K.ColorJitter(*SIMCLR, p=0.8), K.RandomGrayscale(p=0.2), blur)
    floats = images.float() / 255
    return {"kornia": lambda: steps(floats)}


def batch_ms(work: Work, device: str) -> float:
    start = 0.0
    for number in range(WARM_UP + REPEATS):
        if number == WARM_UP:
            finish(device)
            start = time.perf_counter()
        work()
    finish(device)
    return (time.perf_counter() - start) / REPEATS * 1e3


def finish(device: str) -> None:
    if device != "cpu":
        torch.cuda.synchronize()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    if options.device != "cpu" and not torch.cuda.is_available():
        raise SystemExit("skipped: torch sees no CUDA device here, so there is nothing to measure")
    shape = (options.batch_size, 3, options.size, options.size)
    images = torch.randint(0, 256, shape, dtype=torch.uint8).to(options.device, memory_format=torch.channels_last)
    for recipe in OURS:
        works = ours(recipe, images, options.device)
        for make in (torchvision_work, kornia_work):
            try:
                works |= make(recipe, images)
            except ImportError as error:
                print(f"{recipe}: left out, {error}")
        times: dict[str, list[float]] = {name: [] for name in works}
        for _ in range(options.rounds):
            for name, work in works.items():
                times[name].append(batch_ms(work, options.device))
        print(f"{recipe}, uint8 {list(shape)}, medians of {options.rounds} rounds")
        for name, found in times.items():
            ms = median(found)
            print(f"  {name:<20}{ms:>10.2f} ms a batch {options.batch_size / ms * 1e3:>12,.0f} images/s")


if __name__ == "__main__":
    main()
