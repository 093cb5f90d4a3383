"""How fast are two ranks beside one, where a step takes as long as its batch has pixels?

    python benchmarks/two_ranks.py [--images 160] [--rounds 5] [--load 0.85]

Two processes with gloo train on JPEGs of sizes as ADE20K's (benchmarks/bucket_ranks.py has their distribution): short
sides (300, 375, 450, 525, 600), long side at most 1,000, two images a rank, one thread a loader. Each has a device. Its
step takes a time in proportion to the pixels of its batch, padding included, and ends for both when the slower one is
through: an all_reduce, in which gradients would meet. As with a GPU, the process may be some steps ahead of its device
(4), and sleeps when it is. A pixel takes so long that a rank asks for `--load` of what its loader makes while the other
rank's works beside it, which each round measures first.

    one          one rank, the other one idle
    shared       both, of one `Loader(buckets=hr.Buckets("aspect", …), view=hr.RandomScale(…))`: one shape at each step
    independent  both, each with a loader of its own: a half of the images, and scales of its own

Speed is in pixels of images a second, over all ranks and without padding: what is drawn differs between modes. `of its
loader` is what a rank took of what its loader makes. Modes take turns; ratios are medians over rounds.
"""

from __future__ import annotations

import argparse
import os
import socket
import statistics
import tempfile
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import torch.distributed
import torch.multiprocessing
from bucket_ranks import LONG_MAX, SHORT_SIDES, made_sizes
from PIL import Image

import headrace as hr
from headrace.data.sizes import image_sizes
from headrace.plan.step_views import output_sizes
from headrace.tools.demo_dataset import natural_image

BATCH, AHEAD = 2, 4
TIMES = 3
"""How often an epoch has each photograph: at its beginning no batch is ready yet, which long epochs do not feel."""
MODES = ("one", "shared", "independent")


class Round(NamedTuple):
    """What one mode did."""

    speed: float
    """Pixels of images a second, over all ranks."""
    load: float
    """Pixels that a rank took, as a share of what its loader makes."""


def write_photographs(folder: Path, count: int) -> None:
    """Parts of one drawn photograph, of sizes drawn from ADE20K-like ones."""
    rng = np.random.default_rng(1)
    source = natural_image(1600, 1200, seed=3)
    for number, (height, width) in enumerate(rng.permutation(made_sizes())[:count]):
        top, left = rng.integers(0, 1200), rng.integers(0, 1600)
        part = source[np.ix_((top + np.arange(height)) % 1200, (left + np.arange(width)) % 1600)]
        Image.fromarray(part).save(folder / f"{number:05}.jpg", quality=90)


def loader_of(folder: Path, mode: str, rank: int) -> hr.Loader:
    photographs = hr.open(folder)
    data = photographs.select([*range(len(photographs))] * TIMES)
    if mode == "independent":
        data = data.select(range(rank, len(data), 2))
    shared = mode == "shared"
    return hr.Loader(
        data,
        {"image": hr.Image()},
        view=hr.RandomScale(SHORT_SIDES, long_max=LONG_MAX),
        buckets=hr.Buckets("aspect", count=12),
        batch_size=BATCH,
        shuffle=True,
        seed=0 if shared else rank,
        remainder="drop",
        threads=1,
        prefetch=12,
        rank=rank if shared else 0,
        world_size=2 if shared else 1,
    )


def image_pixels(loader: hr.Loader, epoch: int) -> int:
    """Of this rank's batches of an epoch, without padding."""
    plan, sizes = loader._feed.recipe.plan, image_sizes(loader.dataset, "image")
    batches = [plan.batch(epoch, step) for step in range(len(loader))]
    shapes = [output_sizes(batch.view.ops[:1], *sizes[batch.samples].T) for batch in batches if batch.view is not None]
    return sum(int((height * width).sum()) for height, width in shapes)


def batches_of(loader: hr.Loader, epoch: int) -> Iterator[torch.Tensor]:
    loader.set_epoch(epoch)
    for batch in loader:
        yield batch["image"]


def capacity(loader: hr.Loader, epoch: int) -> float:
    """Pixels a second, padding included, that a loader makes, the mean of both ranks, which make them side by side."""
    torch.distributed.barrier()
    begin = time.perf_counter()
    pixels = sum(images.shape[0] * images.shape[2] * images.shape[3] for images in batches_of(loader, epoch))
    both = torch.tensor([pixels / (time.perf_counter() - begin)])
    torch.distributed.all_reduce(both)
    return float(both) / 2


def train(loader: hr.Loader, epoch: int, rate: float, together: bool) -> tuple[float, float]:
    """An epoch's time, and padded pixels of this rank. The first batch is there before the clock starts."""
    batches = batches_of(loader, epoch)
    images, pixels = next(batches, None), 0
    if together:
        torch.distributed.barrier()
    begin = time.monotonic()
    ends = deque([torch.tensor([begin], dtype=torch.float64)] * AHEAD, maxlen=AHEAD)  # of the device's latest steps
    while images is not None:
        cost = images.shape[0] * images.shape[2] * images.shape[3]
        end = ends[-1].clamp(min=time.monotonic()) + cost / rate
        if together:
            torch.distributed.all_reduce(end, torch.distributed.ReduceOp.MAX)
        time.sleep(max(0.0, float(ends[0]) - time.monotonic()))
        ends.append(end)
        pixels += cost
        images = next(batches, None)
    return float(ends[-1]) - begin, pixels


def run_rank(rank: int, folder: Path, port: int, args: argparse.Namespace) -> None:
    os.environ |= {"MASTER_ADDR": "localhost", "MASTER_PORT": str(port)}
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", rank=rank, world_size=2)
    loaders = {mode: loader_of(folder, mode, rank) for mode in MODES}
    found: dict[str, list[Round]] = {mode: [] for mode in MODES}
    for number in range(args.rounds + 1):
        full = capacity(loaders["shared"], number)
        for mode, loader in loaders.items():
            torch.distributed.barrier()
            sums = torch.zeros(3, dtype=torch.float64)  # seconds, pixels of images, padded ones; over both ranks
            if rank == 0 or mode != "one":
                elapsed, padded = train(loader, number, args.load * full, mode != "one")
                sums += torch.tensor([elapsed, image_pixels(loader, number), padded])
            torch.distributed.all_reduce(sums)
            seconds, useful, padded = sums.tolist()
            found[mode].append(Round(useful / seconds * (1 if mode == "one" else 2), padded / seconds / full))
    if rank == 0:
        report({mode: rounds[1:] for mode, rounds in found.items()})  # the first one warms up
    torch.distributed.destroy_process_group()


def report(found: dict[str, list[Round]]) -> None:
    print(f"{'mode':<12} {'Mpixels/s':>9}  {'of its loader':>13}  {'beside one rank':>15}  (of each round)")
    for mode, rounds in found.items():
        ratios = [each.speed / one.speed for each, one in zip(rounds, found["one"], strict=True)]
        speed, load = statistics.median(each.speed for each in rounds), statistics.median(each.load for each in rounds)
        ratio, each = statistics.median(ratios), " ".join(f"{ratio:.2f}" for ratio in ratios)
        print(f"{mode:<12} {speed / 1e6:>9.1f}  {load:>13.0%}  {ratio:>15.2f}  {each}")


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("--images", type=int, default=160)
    ask.add_argument("--rounds", type=int, default=5)
    ask.add_argument("--load", type=float, default=0.85)
    args = ask.parse_args()
    with tempfile.TemporaryDirectory() as name, socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
        free.close()
        write_photographs(Path(name), args.images)
        torch.multiprocessing.spawn(run_rank, (Path(name), port, args), nprocs=2)


if __name__ == "__main__":
    main()
