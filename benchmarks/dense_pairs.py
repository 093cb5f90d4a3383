"""Depth training out of one tar: Headrace beside a dataset of tarfile, Pillow and torch under DataLoader.

    python benchmarks/dense_pairs.py PAIRS [--workers 2] [--batch-size 2] [--rounds 3] [--members 100000]

PAIRS holds pairs.tar and list.txt ("rgb depth" a line): 1024x768 PNGs, depth of 16 bits in millimetres. Both sides make
480x640 by the nearest filter, flip half of the samples, and normalise depth by its own quantiles 0.02 and 0.98, as
Marigold's training does (Ke et al., CVPR 2024). The script does what Marigold's dataset class does for each sample: a
lookup by name in the tar, RGB as bytes and as floats, depth raw and filled, both masks, both normalised, all resized
and sent between processes; Headrace hands out what the training step uses.

First both must agree: without flips, every value to float rounding. Then rounds of both in turn, the median of each.
--members adds members that are never read to a copy of the tar, as Hypersim's has them, for the lookups.
"""

import io
import random
import shutil
import tarfile
import tempfile
import time
from itertools import islice
from pathlib import Path
from statistics import median

import numpy as np
import torch
from harness import arguments, exhaust, in_turns
from PIL import Image
from torch.utils.data import DataLoader, Dataset

import headrace as hr

SIZE, LOW, HIGH = (480, 640), 0.02, 0.98


class TarPairs(Dataset):
    """One sample as Marigold's training has it."""

    def __init__(self, folder, flip):
        self.path, self.flip, self.tar = folder / "pairs.tar", flip, None
        self.lines = [line.split() for line in (folder / "list.txt").read_text().splitlines()]

    def __len__(self):
        return len(self.lines)

    def image(self, name):
        if self.tar is None:  # one a worker
            self.tar = tarfile.open(self.path)  # noqa: SIM115  # open as long as its worker, as Marigold's
        return np.asarray(Image.open(io.BytesIO(self.tar.extractfile("./" + name).read())))

    def __getitem__(self, index):
        rgb_name, depth_name = self.lines[index]
        rgb = torch.from_numpy(np.transpose(self.image(rgb_name), (2, 0, 1)).astype(int))
        depth = torch.from_numpy(self.image(depth_name) / 1000.0).float()[None]
        sample = {"rgb_int": rgb, "rgb_norm": rgb / 255.0 * 2.0 - 1.0}
        sample |= {"depth_raw": depth, "depth_filled": depth.clone()}
        for kind in ("raw", "filled"):
            sample[f"valid_{kind}"] = (sample[f"depth_{kind}"] > 1e-5) & (sample[f"depth_{kind}"] < 65.0)
        if self.flip and random.random() < 0.5:
            sample = {name: values.flip(-1) for name, values in sample.items()}
        for kind in ("raw", "filled"):
            sample[f"depth_{kind}_norm"] = normalised(sample[f"depth_{kind}"], sample["valid_raw"])
        sample["depth_filled_norm"][~sample["valid_filled"]] = 1.0
        return {name: resized(values) for name, values in sample.items()}


def normalised(depth, valid):
    low, high = torch.quantile(depth[valid], torch.tensor([LOW, HIGH]))
    return ((depth - low) / (high - low) * 2 - 1).clip(-1, 1)


def resized(values):
    out = torch.nn.functional.interpolate(values[None].float(), SIZE, mode="nearest-exact")[0]
    return out.to(values.dtype)


def loader(folder, batch_size, threads, flip):
    data, filters = hr.open(folder / "list.txt", root=folder / "pairs.tar", columns=["rgb", "depth"]), "nearest-exact"
    half = hr.Normalize(mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))
    quantiles = hr.Quantiles(LOW, HIGH)
    fields = {
        "rgb": hr.Image(dtype="float32", normalize=half, filter=filters),
        "depth": hr.Depth(scale=1 / 1000, near=1e-5, far=65.0, normalize=quantiles, filter=filters),
    }
    view = hr.Resize(SIZE, flip=flip)
    return hr.Loader(data, fields, view=view, batch_size=batch_size, shuffle=flip > 0, threads=threads)


def compare(folder, count):
    """Print the largest differences of samples without flips."""
    pairs, ours, worst = TarPairs(folder, flip=False), iter(loader(folder, 1, 2, 0.0)), {"rgb": 0.0, "depth": 0.0}
    for index in range(count):
        theirs, mine = pairs[index], next(ours)
        valid = theirs["valid_raw"]
        assert torch.equal(mine["depth_valid"][0], valid), f"sample {index}: other pixels are valid"
        for name, other in (("rgb", theirs["rgb_norm"]), ("depth", torch.where(valid, theirs["depth_raw_norm"], 0.0))):
            worst[name] = max(worst[name], float((mine[name][0] - other).abs().max()))
    ours.close()
    print("largest difference at the same view: " + ", ".join(f"{name} {value:.1e}" for name, value in worst.items()))


def rate(batches, limit):
    """Return samples/s after the first batches, which start workers and threads; and the MB of one sample."""
    iterator = iter(batches)
    first = next(iterator)
    size = sum(values.nbytes for values in first.values()) / len(next(iter(first.values()))) / 1e6
    exhaust(islice(iterator, 3))
    start, samples = time.perf_counter(), 0
    for batch in iterator:
        samples += len(next(iter(batch.values())))
        if samples >= limit:
            break
    elapsed = time.perf_counter() - start
    del iterator
    return samples / elapsed, size


def report(folder, args, title):
    options = {"shuffle": True, "num_workers": args.workers, "drop_last": True}
    found = in_turns(
        {
            "tarfile, Pillow, DataLoader": lambda: rate(
                DataLoader(TarPairs(folder, flip=True), args.batch_size, **options), args.samples
            ),
            "Headrace": lambda: rate(loader(folder, args.batch_size, args.workers, 0.5), args.samples),
        },
        args.rounds,
    )
    print(title)
    middles = []
    for name, rounds in found.items():
        rates = sorted(value for value, _ in rounds)
        middles.append(median(rates))
        spread = f"({rates[0]:.1f} to {rates[-1]:.1f}), {rounds[0][1]:5.2f} MB a sample"
        print(f"  {name:28s}{middles[-1]:8.1f} samples/s {spread}")
    print(f"  {middles[1] / middles[0]:.2f} x")


def main():
    args = arguments(__doc__, "pairs", workers=2, batch_size=2, samples=200, rounds=3, members=100_000)
    compare(args.pairs, 12)
    report(args.pairs, args, "the pairs alone")
    if args.members:
        with tempfile.TemporaryDirectory() as out:
            for name in ("list.txt", "pairs.tar"):
                shutil.copy(args.pairs / name, out)
            with tarfile.open(Path(out, "pairs.tar"), "a") as tar:
                for index in range(args.members):
                    tar.addfile(tarfile.TarInfo(f"./other/{index // 1000:03d}/unread_{index:06d}.png"))
            report(Path(out), args, f"and {args.members:,} other members")


if __name__ == "__main__":
    main()
