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

import numpy as np
from harness import arguments

import headrace as hr
from headrace.data.columns import FileColumn, ValueColumn
from headrace.data.location import ColumnFiles
from headrace.data.storage.strings import StringColumn
from headrace.data.table import SampleTable
from headrace.plan import Order, Sampling, ViewedImages, plan_of
from headrace.plan.step_views import output_sizes
from headrace.views import compile_view

COUNT, BATCH = 20_210, 2
SHORT_SIDES, LONG_MAX = (300, 375, 450, 525, 600), 1000


def made_sizes():
    """Return (height, width) of each image."""
    rng = np.random.default_rng(2017)
    aspect = rng.choice([4 / 3, 1.5, 0], COUNT, p=[0.55, 0.2, 0.25])
    aspect = np.where(aspect == 0, rng.uniform(1, 2, COUNT), aspect)
    short = np.where(rng.random(COUNT) < 0.6, 512, rng.integers(256, 800, COUNT))
    short = np.where(rng.random(COUNT) < 0.1, rng.integers(1000, 2400, COUNT), short)
    long = np.round(short * aspect)
    landscape = rng.random(COUNT) < 0.72
    return np.stack([np.where(landscape, short, long), np.where(landscape, long, short)], axis=1).astype(np.int32)


def sized_dataset(keys, widths, heights):
    """Return a dataset of images that are not there, of known sizes."""
    files = ColumnFiles("/", keys, archives=False)
    columns = {"image": FileColumn(files), "height": ValueColumn(heights), "width": ValueColumn(widths)}
    return hr.Dataset(SampleTable("made up", keys, columns, {}))


def bucketed_plan(dataset, rank, world_size, batch_size, buckets, program):
    """Return the plan of a Loader with buckets by aspect."""
    return plan_of(
        dataset, Order(world_size=world_size, rank=rank, shuffle=True, seed=5, remainder="short"),
        batch_size=batch_size, buckets=hr.Buckets("aspect", count=buckets), program=program,
        images=ViewedImages(column="image", exif=False, threads=2, limits=None), texts=(), pack=None,
        sampling=Sampling(),
    )  # fmt: skip


def summary(slowest, real, padded, counts, steps):
    """Return the columns of a row; counts are samples by quarter of the aspects and scale."""
    error = (0.2 * 0.8 / steps) ** 0.5
    within = counts / counts.sum(axis=1, keepdims=True)
    joint = np.abs(within - 0.2).max() / (2 * error)  # a quarter of the steps each
    shares = " ".join(f"{share:.3f}" for share in counts.sum(axis=0) / counts.sum())
    return f"{slowest:>8.3f} {1 - real / padded:>8.1%} {steps:>6}  {shares} ({error:.3f})  {joint:.1f}"


def independent(sizes, quarter, scaled, ranks, epochs):
    rng = np.random.default_rng(ranks)
    landscape, upright = np.flatnonzero(sizes[:, 1] >= sizes[:, 0]), np.flatnonzero(sizes[:, 1] < sizes[:, 0])
    steps = epochs * (COUNT // (BATCH * ranks))
    wide = rng.random((steps, ranks, 1)) < len(landscape) / COUNT
    samples = np.where(wide, rng.choice(landscape, (steps, ranks, BATCH)), rng.choice(upright, (steps, ranks, BATCH)))
    scales = rng.integers(0, len(SHORT_SIDES), (steps, ranks, 1))
    shapes, counts = scaled[scales, samples], np.zeros((4, len(SHORT_SIDES)), np.int64)
    padded = shapes.max(axis=2).prod(axis=-1) * BATCH
    np.add.at(counts, (quarter[samples], np.broadcast_to(scales, samples.shape)), 1)
    slowest = (padded.max(axis=1) / padded.mean(axis=1)).mean()
    return summary(slowest, shapes.prod(axis=-1).sum(), padded.sum(), counts, steps)


def shared(plans, quarter, scaled, epochs):
    slowest, real, padded, counts = [], 0, 0, np.zeros((4, len(SHORT_SIDES)), np.int64)
    for epoch in range(epochs):
        for step in range(plans[0].steps):
            batches = [plan.batch(epoch, step) for plan in plans]
            view = batches[0].view
            assert all(batch.view.size == view.size for batch in batches)
            costs = np.array([len(batch.samples) for batch in batches]) * view.size[0] * view.size[1]
            slowest.append(costs.max() / costs.mean())
            scale = SHORT_SIDES.index(int(view.ops[0, 1]))
            samples = np.concatenate([batch.samples for batch in batches])
            real, padded = real + int(scaled[scale, samples].prod(axis=-1).sum()), padded + int(costs.sum())
            counts[:, scale] += np.bincount(quarter[samples], minlength=4)
    return summary(np.mean(slowest), real, padded, counts, len(slowest))


def main():
    args = arguments(__doc__, ranks=[2, 8, 64], buckets=12, epochs=3, multiple_of=1)
    sizes = made_sizes()
    quarter = np.argsort(np.argsort(sizes[:, 1] / sizes[:, 0], kind="stable")) * 4 // COUNT
    dataset = sized_dataset(StringColumn.from_list(map(str, range(COUNT))), sizes[:, 1], sizes[:, 0])
    program = compile_view(hr.RandomScale(SHORT_SIDES, long_max=LONG_MAX, multiple_of=args.multiple_of))
    scaled = np.array([np.stack(output_sizes(table, *sizes.T), axis=1) for table in program.scales])
    print(f"{'ranks':>5} {'how':<12} {'slowest':>8} {'padding':>8} {'steps':>6}  scales (error)  joint")
    for ranks in args.ranks:
        print(f"{ranks:>5} {'independent':<12} {independent(sizes, quarter, scaled, ranks, args.epochs)}")
        for name, batch_size in (("buckets", BATCH), ("budget", hr.Budget(pixels=BATCH * SHORT_SIDES[-1] * LONG_MAX))):
            plans = [bucketed_plan(dataset, rank, ranks, batch_size, args.buckets, program) for rank in range(ranks)]
            print(f"{ranks:>5} {name:<12} {shared(plans, quarter, scaled, args.epochs)}", flush=True)


if __name__ == "__main__":
    main()
