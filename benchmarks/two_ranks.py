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

import os
import socket
import statistics
import tempfile
import time
from collections import deque
from pathlib import Path

import numpy as np
import torch
import torch.distributed
import torch.multiprocessing
from bucket_ranks import LONG_MAX, SHORT_SIDES, made_sizes
from harness import arguments
from PIL import Image

import headrace as hr
from headrace.data.sizes import image_sizes
from headrace.plan.step_views import output_sizes
from headrace.tools.demo_dataset import natural_image

AHEAD = 4
TIMES = 3
"""How often an epoch has each photograph: at its beginning no batch is ready yet, which long epochs do not feel."""


def write_photographs(folder, count):
    """Write parts of one drawn photograph, of sizes drawn from ADE20K-like ones."""
    rng, source = np.random.default_rng(1), natural_image(1600, 1200, seed=3)
    for number, (height, width) in enumerate(rng.permutation(made_sizes())[:count]):
        top, left = rng.integers(0, 1200), rng.integers(0, 1600)
        part = source[np.ix_((top + np.arange(height)) % 1200, (left + np.arange(width)) % 1600)]
        Image.fromarray(part).save(folder / f"{number:05}.jpg", quality=90)


def loader_of(folder, mode, rank):
    photographs = hr.open(folder)
    data = photographs.select([*range(len(photographs))] * TIMES)
    data = data.select(range(rank, len(data), 2)) if mode == "independent" else data
    ranks = (
        {"rank": rank, "world_size": 2, "seed": 0} if mode == "shared" else {"rank": 0, "world_size": 1, "seed": rank}
    )
    return hr.Loader(
        data, {"image": hr.Image()}, view=hr.RandomScale(SHORT_SIDES, long_max=LONG_MAX), batch_size=2, shuffle=True,
        buckets=hr.Buckets("aspect", count=12), remainder="drop", threads=1, prefetch=12, **ranks,
    )  # fmt: skip


def image_pixels(loader, epoch):
    """Count the pixels of this rank's batches of an epoch, without padding."""
    plan, sizes = loader._feed.recipe.plan, image_sizes(loader.dataset, "image")
    batches = [plan.batch(epoch, step) for step in range(len(loader))]
    shapes = [output_sizes(batch.view.ops[:1], *sizes[batch.samples].T) for batch in batches if batch.view is not None]
    return sum(int((height * width).sum()) for height, width in shapes)


def costs_of(loader, epoch):
    """Yield the pixels of each batch, padding included."""
    loader.set_epoch(epoch)
    for batch in loader:
        yield batch["image"].shape[0] * batch["image"].shape[2] * batch["image"].shape[3]


def capacity(loader, epoch):
    """Return the pixels a second that a loader makes, the mean of both ranks, which make them side by side."""
    torch.distributed.barrier()
    begin = time.perf_counter()
    both = torch.tensor([sum(costs_of(loader, epoch)) / (time.perf_counter() - begin)])
    torch.distributed.all_reduce(both)
    return float(both) / 2


def train(loader, epoch, rate, together):
    """Return an epoch's time, and this rank's pixels. The first batch is there before the clock starts."""
    costs, pixels = costs_of(loader, epoch), 0
    cost = next(costs, None)
    if together:
        torch.distributed.barrier()
    begin = time.monotonic()
    ends = deque([torch.tensor([begin], dtype=torch.float64)] * AHEAD, maxlen=AHEAD)  # of the device's latest steps
    while cost is not None:
        end = ends[-1].clamp(min=time.monotonic()) + cost / rate
        if together:
            torch.distributed.all_reduce(end, torch.distributed.ReduceOp.MAX)
        time.sleep(max(0.0, float(ends[0]) - time.monotonic()))
        ends.append(end)
        pixels += cost
        cost = next(costs, None)
    return float(ends[-1]) - begin, pixels


def run_rank(rank, folder, port, args):
    os.environ |= {"MASTER_ADDR": "localhost", "MASTER_PORT": str(port)}
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", rank=rank, world_size=2)
    loaders = {mode: loader_of(folder, mode, rank) for mode in ("one", "shared", "independent")}
    found = {mode: [] for mode in loaders}
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
            if number > 0:  # the first round warms up
                found[mode].append((useful / seconds * (1 if mode == "one" else 2), padded / seconds / full))
    if rank == 0:
        report(found)
    torch.distributed.destroy_process_group()


def report(found):
    print(f"{'mode':<12} {'Mpixels/s':>9}  {'of its loader':>13}  {'beside one rank':>15}  (of each round)")
    for mode, rounds in found.items():
        ratios = [each[0] / one[0] for each, one in zip(rounds, found["one"], strict=True)]
        speed, load, ratio = map(statistics.median, (*zip(*rounds, strict=True), ratios))
        each = " ".join(f"{ratio:.2f}" for ratio in ratios)
        print(f"{mode:<12} {speed / 1e6:>9.1f}  {load:>13.0%}  {ratio:>15.2f}  {each}")


def main():
    args = arguments(__doc__, images=160, rounds=5, load=0.85)
    with tempfile.TemporaryDirectory() as name:
        with socket.socket() as free:
            free.bind(("localhost", 0))
            port = free.getsockname()[1]
        write_photographs(Path(name), args.images)
        torch.multiprocessing.spawn(run_rank, (Path(name), port, args), nprocs=2)


if __name__ == "__main__":
    main()
