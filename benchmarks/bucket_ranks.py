"""How much longer does the slowest rank work than the mean, if each draws its own scale, and if all share one?

    python benchmarks/bucket_ranks.py [--ranks 2 8 64] [--buckets 12] [--epochs 3] [--multiple-of 1]

Segmentation training as of ADE20K, simulated: 20,210 images, short sides (300, 375, 450, 525, 600), long side at most
1,000, two images a rank. Sizes are made up to be like ADE20K's (its median is 683 x 512): 72 % landscape; 55 % of
all are 4:3, 20 % are 3:2, the rest has any aspect from 1:1 to 2:1, and one in ten is a large photograph, up to 2,400
pixels high. Cost is pixels as a batch holds them, padding included.

`independent`: every rank takes random images of one orientation, draws a scale, and pads to its own largest image.
`buckets`: `Loader(buckets=hr.Buckets("aspect", count=…), view=hr.RandomScale(…), batch_size=2)`, planned for all ranks.
`budget`: the same with `batch_size=hr.Budget(pixels=2 * 600 * 1000)`.

    slowest   mean over steps of the slowest rank's pixels / the mean of all ranks
    padding   share of all pixels that is padding
    scales    share of samples that got each short side; independent draws: 0.200 each
    (error)   the standard error of such a share in that many epochs, if each step drew its scale independently
    joint     the same within each quarter of the aspects: the greatest difference from 0.200, in standard errors of
              independent steps; of 20 such differences the greatest is about 2. Each sample comes once an epoch, so
              aspects themselves have the distribution of the data
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

import headrace as hr
from headrace.data.columns import FileColumn, ValueColumn
from headrace.data.location import ColumnFiles
from headrace.data.storage.strings import StringColumn
from headrace.data.table import SampleTable
from headrace.plan import EpochPlan, Order, ViewedImages, plan_of
from headrace.plan.step_views import output_sizes
from headrace.views import compile_view

COUNT = 20_210
SHORT_SIDES, LONG_MAX = (300, 375, 450, 525, 600), 1000
BATCH = 2


def made_sizes() -> NDArray[np.int32]:
    """(height, width) of each image."""
    rng = np.random.default_rng(2017)
    aspect = rng.choice([4 / 3, 1.5, 0], COUNT, p=[0.55, 0.2, 0.25])
    aspect = np.where(aspect == 0, rng.uniform(1, 2, COUNT), aspect)
    short = np.where(rng.random(COUNT) < 0.6, 512, rng.integers(256, 800, COUNT))
    short = np.where(rng.random(COUNT) < 0.1, rng.integers(1000, 2400, COUNT), short)
    long = np.round(short * aspect)
    landscape = rng.random(COUNT) < 0.72
    return np.stack([np.where(landscape, short, long), np.where(landscape, long, short)], axis=1).astype(np.int32)


def dataset_of(sizes: NDArray[np.int32]) -> hr.Dataset:
    """Images that are not there, of known sizes."""
    keys = StringColumn.from_list(str(number) for number in range(len(sizes)))
    columns = {
        "image": FileColumn(ColumnFiles("/", keys, archives=False)),
        "height": ValueColumn(sizes[:, 0]),
        "width": ValueColumn(sizes[:, 1]),
    }
    return hr.Dataset(SampleTable("made up", keys, columns, {}))


@dataclass
class Steps:
    """What all ranks did in the steps of some epochs."""

    slowest: float
    padding: float
    counts: NDArray[np.int64]
    """[quarter of the aspects, scale]: samples."""
    steps: int

    @property
    def shares(self) -> NDArray[np.float64]:
        return self.counts.sum(axis=0) / self.counts.sum()

    @property
    def error(self) -> float:
        return float((0.2 * 0.8 / self.steps) ** 0.5)

    @property
    def joint(self) -> float:
        within = self.counts / self.counts.sum(axis=1, keepdims=True)
        return float(np.abs(within - 0.2).max() / (2 * self.error))  # a quarter of the steps each


def independent(sizes: NDArray[np.int32], scaled: NDArray[np.int64], ranks: int, epochs: int) -> Steps:
    rng = np.random.default_rng(ranks)
    landscape = np.flatnonzero(sizes[:, 1] >= sizes[:, 0])
    upright = np.flatnonzero(sizes[:, 1] < sizes[:, 0])
    steps = epochs * (COUNT // (BATCH * ranks))
    wide = rng.random((steps, ranks, 1)) < len(landscape) / COUNT
    samples = np.where(wide, rng.choice(landscape, (steps, ranks, BATCH)), rng.choice(upright, (steps, ranks, BATCH)))
    scales = rng.integers(0, len(SHORT_SIDES), (steps, ranks, 1))
    shapes = scaled[scales, samples]
    padded = shapes.max(axis=2).prod(axis=-1) * BATCH
    counts = np.zeros((4, len(SHORT_SIDES)), np.int64)
    np.add.at(counts, (quarters(sizes)[samples], np.broadcast_to(scales, samples.shape)), 1)
    real = shapes.prod(axis=-1).sum()
    return Steps(float((padded.max(axis=1) / padded.mean(axis=1)).mean()), 1 - real / padded.sum(), counts, steps)


def quarters(sizes: NDArray[np.int32]) -> NDArray[np.int64]:
    """Which quarter of all aspects each image's is in."""
    return np.argsort(np.argsort(sizes[:, 1] / sizes[:, 0], kind="stable")) * 4 // COUNT


def shared(plans: list[EpochPlan], sizes: NDArray[np.int32], scaled: NDArray[np.int64], epochs: int) -> Steps:
    slowest, real, padded = [], 0, 0
    counts, steps, quarter = np.zeros((4, len(SHORT_SIDES)), np.int64), plans[0].steps, quarters(sizes)
    for epoch in range(epochs):
        for step in range(steps):
            batches = [plan.batch(epoch, step) for plan in plans]
            view = batches[0].view
            assert view is not None
            assert all(batch.view is not None and batch.view.size == view.size for batch in batches)
            costs = np.array([len(batch.samples) for batch in batches]) * view.size[0] * view.size[1]
            slowest.append(costs.max() / costs.mean())
            scale = SHORT_SIDES.index(int(view.ops[0, 1]))
            samples = np.concatenate([batch.samples for batch in batches])
            real += int(scaled[scale, samples].prod(axis=-1).sum())
            padded += int(costs.sum())
            counts[:, scale] += np.bincount(quarter[samples], minlength=4)
    return Steps(float(np.mean(slowest)), 1 - real / padded, counts, steps * epochs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 8, 64])
    parser.add_argument("--buckets", type=int, default=12)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--multiple-of", type=int, default=1)
    given = parser.parse_args()
    sizes = made_sizes()
    dataset = dataset_of(sizes)
    view = hr.RandomScale(SHORT_SIDES, long_max=LONG_MAX, multiple_of=given.multiple_of)
    program = compile_view(view)
    scaled = np.array([np.stack(output_sizes(table, *sizes.T), axis=1) for table in program.scales])
    print(f"{'ranks':>5} {'how':<12} {'slowest':>8} {'padding':>8} {'steps':>6}  scales (error)  joint")
    for ranks in given.ranks:
        found = {"independent": independent(sizes, scaled, ranks, given.epochs)}
        for name, batch_size in (("buckets", BATCH), ("budget", hr.Budget(pixels=BATCH * SHORT_SIDES[-1] * LONG_MAX))):
            plans = [
                plan_of(
                    dataset,
                    Order(world_size=ranks, rank=rank, shuffle=True, seed=5, remainder="short"),
                    batch_size=batch_size,
                    buckets=hr.Buckets("aspect", count=given.buckets),
                    program=program,
                    images=ViewedImages(column="image", exif=False, threads=2, limits=None),
                )
                for rank in range(ranks)
            ]
            found[name] = shared(plans, sizes, scaled, given.epochs)
        for name, steps in found.items():
            shares = " ".join(f"{share:.3f}" for share in steps.shares)
            print(
                f"{ranks:>5} {name:<12} {steps.slowest:>8.3f} {steps.padding:>8.1%} {steps.steps:>6}  "
                f"{shares} ({steps.error:.3f})  {steps.joint:.1f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
