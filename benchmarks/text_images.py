"""Images and captions for training: Headrace beside a Dataset that does one thing after another, under DataLoader.

    python benchmarks/text_images.py PHOTOS [--workers 2] [--batch-size 64] [--rounds 3] [--device-ms 60]

PHOTOS is a folder of JPEGs; captions and a BPE tokenizer are made by captioned_photos.py. The script's `__getitem__`
decodes with Pillow, cuts a RandomResizedCrop(224) with torchvision's sampling, flips half, converts, normalises, draws
one of three captions and tokenises it, padded to 77. Headrace makes the same: float32 images, ids and mask padded to
the batch (--pad max for 77).

First, batches as fast as they come, rounds of both in turn, the median of each; and the CPU time of text beside that of
images, which the loader counts. Then a device that takes --device-ms for a batch (it sleeps): the shares of the time in
which it waits for the next one, and in which the loop lets go of the last.
"""

import argparse
import json
import math
import random
import statistics
import tempfile
import time
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from captioned_photos import make
from PIL import Image
from tokenizers import Tokenizer
from torch.utils.data import DataLoader, Dataset

import headrace as hr

LENGTH = 77
SIDE = 224
WARM_UP = 10  # batches: processes and threads start meanwhile, and memory is touched for the first time


class Pairs(Dataset):
    """One sample after another, as most scripts have it."""

    def __init__(self, photos, folder):
        self.photos = photos
        self.rows = [json.loads(line) for line in (folder / "captions.jsonl").read_text().splitlines()]
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.tokenizer.enable_truncation(LENGTH)
        pad = self.tokenizer.padding
        self.tokenizer.enable_padding(pad_id=pad["pad_id"], pad_token=pad["pad_token"], length=LENGTH)
        self.mean, self.std = (torch.tensor(values)[:, None, None] for values in (hr.IMAGENET.mean, hr.IMAGENET.std))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        row = self.rows[index]
        image = Image.open(self.photos / row["image"]).convert("RGB")
        image = image.resize((SIDE, SIDE), Image.Resampling.BILINEAR, box=random_crop(*image.size))
        if random.random() < 0.5:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous()
        text = self.tokenizer.encode(random.choice(row["text"]))
        return {
            "image": (pixels.float().div(255) - self.mean) / self.std,
            "ids": torch.tensor(text.ids),
            "mask": torch.tensor(text.attention_mask, dtype=torch.bool),
        }


def random_crop(width, height):
    """torchvision's RandomResizedCrop: left, top, right, bottom."""
    for _ in range(10):
        area = width * height * random.uniform(0.08, 1)
        ratio = math.exp(random.uniform(math.log(3 / 4), math.log(4 / 3)))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            x, y = random.randint(0, width - w), random.randint(0, height - h)
            return x, y, x + w, y + h
    return 0, 0, width, height


def plain(photos, folder, args):
    return DataLoader(
        Pairs(photos, folder), args.batch_size, shuffle=True, num_workers=args.workers, drop_last=True,
        persistent_workers=True,
    )  # fmt: skip


def headrace(photos, folder, args):
    return hr.Loader(
        hr.open(folder / "captions.jsonl", root=photos),
        {
            "image": hr.Image(dtype="float32", normalize=hr.IMAGENET),
            "text": hr.Text(folder / "tokenizer.json", max_length=LENGTH, pad=args.pad),
        },
        view=hr.RandomResizedCrop(SIDE, flip=0.5),
        batch_size=args.batch_size,
        shuffle=True,
        remainder="drop",
        threads=args.workers,
    )


def epochs(loader):
    while True:
        yield from loader


def rate(batches, size, count):
    """Samples a second."""
    for _ in islice(batches, WARM_UP):
        pass
    start = time.perf_counter()
    for _ in islice(batches, count):
        pass
    return count * size / (time.perf_counter() - start)


def stall(batches, count, device_s):
    """The shares of its time in which a device that takes `device_s` for a batch waits for the next one, and in which
    the loop lets go of the one before."""
    for _ in islice(batches, WARM_UP):
        time.sleep(device_s)
    waited = let_go = 0.0
    batch, start = None, time.perf_counter()
    for _ in range(count):
        asked = time.perf_counter()
        fresh = next(batches)
        got = time.perf_counter()
        batch = fresh
        waited, let_go = waited + got - asked, let_go + time.perf_counter() - got
        time.sleep(device_s)
    del batch
    total = time.perf_counter() - start
    return waited / total, let_go / total


def show(name, values, unit, digits):
    low, high = min(values), max(values)
    print(f"  {name:32s}{statistics.median(values):9.{digits}f} {unit} ({low:.{digits}f} to {high:.{digits}f})")


def text_share(loader):
    """CPU time of text by that of images, as the loader has counted it."""
    stages = loader.stats().stages
    images = sum(stages[name].busy_s for name in ("read", "probe", "decode", "resample"))
    return stages["text"].busy_s / images


def measure(photos, folder, args):
    theirs, ours = plain(photos, folder, args), headrace(photos, folder, args)
    steps = len(ours)
    count = max(1, args.samples // args.batch_size)
    sides = {"Pillow, tokenizers, DataLoader": theirs, "Headrace": ours}
    rates, stalls = {name: [] for name in sides}, {name: [] for name in sides}
    for _ in range(args.rounds):
        for name, loader in sides.items():
            batches = epochs(loader)
            rates[name].append(rate(batches, args.batch_size, count))
            batches.close()
    print(f"batches of {args.batch_size}, {steps} an epoch, as fast as they come")
    for name, values in rates.items():
        show(name, values, "samples/s", 0)
    medians = [statistics.median(values) for values in rates.values()]
    print(f"  {medians[1] / medians[0]:.2f} x; text takes {text_share(ours):.1%} of the images' CPU time")
    for _ in range(args.rounds):
        for name, loader in sides.items():
            batches = epochs(loader)
            stalls[name].append(stall(batches, count // 2, args.device_ms / 1e3))
            batches.close()
    for number, what in enumerate(("it waits for a batch", "the loop lets go of the batch before")):
        print(f"a device of {args.device_ms:g} ms a batch: share of the time in which {what}")
        for name, values in stalls.items():
            show(name, [100 * value[number] for value in values], "%", 2)


def main():
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("photos", type=Path)
    ask.add_argument("--workers", type=int, default=2)
    ask.add_argument("--batch-size", type=int, default=64)
    ask.add_argument("--samples", type=int, default=6000)
    ask.add_argument("--rounds", type=int, default=3)
    ask.add_argument("--device-ms", type=float, default=60)
    ask.add_argument("--pad", choices=("batch", "max"), default="batch")
    args = ask.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        make(args.photos, Path(folder))
        measure(args.photos, Path(folder), args)


if __name__ == "__main__":
    main()
