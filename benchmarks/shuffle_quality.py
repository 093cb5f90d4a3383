"""How well do orders mix: global, windowed, WebDataset's buffer and Streaming's py1e, and what does it do to training?

    python benchmarks/shuffle_quality.py [--samples N] [--seeds 5] [--epochs 3] [--streaming FOLDER] [--skip-training]

Samples are as large as ImageNet's (110 KB), sorted by class, 1,000 in a class. Of each order over five epochs:

    held          what memory or a cache has to hold, in MB
    displacement  mean distance between a sample's places in storage and in the epoch; 1 is that of the uniform order
    correlation   Spearman's between the two places; 0 is the uniform order's
    neighbours    share of neighbours in storage that lie within 32 of each other in the epoch
    again         share of neighbours in one epoch that lie within 32 of each other in the next
    chi-square    of the classes in a batch of 256, divided by its degrees of freedom; 1 is the uniform order's
    classes       different classes in a batch of 256
    accuracy      of a perceptron with batch normalisation on made data of as many classes after `--epochs`: mean and
                  standard deviation over the seeds

WebDataset's pipeline is the package's: a shuffled list of shards, and `shuffle(N)`; in place of tars, a stage gives the
numbers of a shard's 1,000 samples. It runs in one worker. Streaming's py1e is the package's function, from FOLDER
(`pip install --no-deps --target FOLDER mosaicml-streaming`) or where it is installed; its shards are of 64 MB. Orders
without their package are left out, and said to be.
"""

import random
import statistics
import sys
import types
from importlib import import_module
from importlib.machinery import PathFinder
from pathlib import Path

import numpy as np
from harness import arguments, head, machine, row

from headrace.plan import UniformPlan, Windowed, WindowShape

SAMPLE_BYTES, CLASS_SAMPLES, BATCH, NEAR, EPOCHS = 110_000, 1000, 256, 32, 5
WDS_SHARD, STREAMING_SHARD = 1000, (1 << 26) // SAMPLE_BYTES


def of_plan(window, *, shuffle=True):
    """Return the order of (samples, seed, epoch): the sample at each position."""

    def order(samples, seed, epoch):
        plan = UniformPlan(length=samples, batch_size=BATCH, seed=seed, window=window, shuffle=shuffle)
        return np.concatenate([plan.batch(epoch, step).samples for step in range(plan.steps)])

    return order


def of_webdataset(buffer):
    import webdataset

    def order(samples, seed, epoch):
        def members(shards):
            for shard in shards:
                yield from range(int(shard["url"]), min(int(shard["url"]) + WDS_SHARD, samples))

        draw = random.Random(f"{seed} {epoch}")
        shards = [str(first) for first in range(0, samples, WDS_SHARD)]
        pipeline = webdataset.DataPipeline(
            webdataset.SimpleShardList(shards),
            webdataset.shuffle(len(shards), initial=len(shards), rng=draw),
            members,
            webdataset.shuffle(buffer, initial=buffer, rng=draw),
        )
        return np.fromiter(pipeline, np.int64)

    return order


def of_streaming(block):
    function = import_module("streaming.base.shuffle.py1e").get_shuffle_py1e

    def order(samples, seed, epoch):
        shards = np.diff(np.append(np.arange(0, samples, STREAMING_SHARD), samples))
        return np.asarray(function(shards, 1, seed, epoch, block), np.int64)

    return order


def find_streaming(folder):
    """Make the function's modules importable without the package's own start, which needs clients of every cloud."""
    sys.path += [] if folder is None else [folder]
    found = PathFinder.find_spec("streaming")
    if found is None or found.origin is None:
        raise ImportError("no module named streaming")
    for name in ("streaming", "streaming.base", "streaming.base.shuffle"):
        package = types.ModuleType(name)
        package.__path__ = [str(Path(found.origin).parent.parent.joinpath(*name.split(".")))]
        sys.modules[name] = package


def all_orders(folder):
    """Return each order by its name, with the samples that it has to hold."""
    found = {"storage order": (0, of_plan(None, shuffle=False)), "global": (None, of_plan(None))}
    for megabytes, blocks in ((8, 16), (8, 64), (4, 256), (8, 128), (16, 64), (8, 256)):
        shape = WindowShape(block=(megabytes << 20) // SAMPLE_BYTES, blocks=blocks, lanes=Windowed().lanes)
        found[f"windowed, {blocks} blocks of {megabytes} MB"] = (shape.block * blocks, of_plan(shape))
    try:
        for buffer in (1000, 10_000):
            found[f"WebDataset, shuffle({buffer:,})"] = (buffer, of_webdataset(buffer))
    except ImportError as error:
        print(f"WebDataset is left out: {error}")
    try:
        find_streaming(folder)
        for block in (10_000, 1 << 18):
            found[f"Streaming py1e, block of {block:,}"] = (block, of_streaming(block))
    except ImportError as error:
        print(f"Streaming is left out: {error}")
    return found


def quality(order_of, samples):
    """Return the columns of one order, means over epochs."""
    storage, classes, rows, before = np.arange(samples), -(-samples // CLASS_SAMPLES), [], None
    expected = BATCH * np.bincount(storage // CLASS_SAMPLES) / samples
    for epoch in range(EPOCHS):
        order = order_of(samples, 0, epoch)
        assert np.array_equal(np.sort(order), storage), "expected every sample once"
        place = np.empty_like(order)
        place[order] = storage
        labels = order[: samples // BATCH * BATCH].reshape(-1, BATCH) // CLASS_SAMPLES
        counts = np.stack([np.bincount(batch, minlength=classes) for batch in labels])
        rows.append((
            np.abs(order - storage).mean() / (samples / 3),
            np.corrcoef(order, storage)[0, 1],
            (np.abs(np.diff(place)) <= NEAR).mean(),
            np.nan if before is None else (np.abs(np.diff(place[before])) <= NEAR).mean(),
            ((counts - expected) ** 2 / expected).sum(axis=1).mean() / (classes - 1),
            (counts > 0).sum(axis=1).mean(),
        ))  # fmt: skip
        before = order
    shift, correlation, near, again, chi, different = np.nanmean(rows, axis=0)
    return [f"{shift:.2f}", f"{correlation:+.2f}", f"{near:.2%}", f"{again:.2%}", f"{chi:.2f}", f"{different:.0f}"]


def accuracy(order_of, samples, seed, epochs):
    """Train on made data sorted by class, in this order; return the accuracy in % on data of its own."""
    import torch
    from torch import nn

    classes, width, steps, draw = -(-samples // CLASS_SAMPLES), 32, samples // BATCH, np.random.default_rng(seed)
    centres, labels = draw.normal(size=(classes, width)), np.arange(samples) // CLASS_SAMPLES
    tests = draw.integers(0, classes, 20_000)
    train_x, test_x = (
        torch.from_numpy((centres[of] + 1.3 * draw.normal(size=(len(of), width))).astype(np.float32))
        for of in (labels, tests)
    )
    train_y = torch.from_numpy(labels)
    torch.set_num_threads(1)  # more are slower at this size
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(width, 128), nn.BatchNorm1d(128), nn.ReLU(), nn.Linear(128, classes))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
    decay = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps * epochs)
    for epoch in range(epochs):
        for rows in torch.from_numpy(order_of(samples, seed, epoch))[: steps * BATCH].split(BATCH):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(train_x[rows]), train_y[rows]).backward()
            optimizer.step()
            decay.step()
    model.eval()
    with torch.inference_mode():
        return 100 * float((model(test_x).argmax(dim=1).numpy() == tests).mean())


def main():
    streaming = {"metavar": "FOLDER", "help": "where mosaicml-streaming is installed"}
    args = arguments(__doc__, samples=100_000, seeds=5, epochs=3, streaming=streaming, skip_training=False)
    orders = all_orders(args.streaming)
    print(machine())
    print(head("order", "held MB", "displacement", "correlation", "neighbours", "again", "chi-square", "classes",
               "accuracy %"))  # fmt: skip
    for name, (held, order_of) in orders.items():
        megabytes = "all" if held is None else f"{min(held, args.samples) * SAMPLE_BYTES / 1e6:,.0f}"
        reached = [] if args.skip_training else [
            accuracy(order_of, args.samples, seed, args.epochs) for seed in range(args.seeds)
        ]  # fmt: skip
        spread = statistics.stdev(reached) if len(reached) > 1 else 0.0
        figures = [f"{statistics.fmean(reached):.1f} ± {spread:.1f}"] if reached else []
        print(row(name, megabytes, *quality(order_of, args.samples), *figures), flush=True)


if __name__ == "__main__":
    main()
