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

import json
import random
import tempfile
import time
from functools import partial
from itertools import chain, islice, repeat
from pathlib import Path
from statistics import median

import numpy as np
import torch
from captioned_photos import make
from harness import Mapped, arguments, exhaust, in_turns, random_window
from PIL import Image
from tokenizers import Tokenizer
from torch.utils.data import DataLoader

import headrace as hr

LENGTH, SIDE = 77, 224
WARM_UP = 10  # batches: processes and threads start meanwhile, and memory is touched for the first time
MEAN, STD = (torch.tensor(values)[:, None, None] for values in (hr.IMAGENET.mean, hr.IMAGENET.std))


def pair(row, photos, tokenizer):
    """Make one sample after another, as most scripts do."""
    image = Image.open(photos / row["image"]).convert("RGB")
    image = image.resize((SIDE, SIDE), Image.Resampling.BILINEAR, box=random_window(*image.size, random))
    if random.random() < 0.5:
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous()
    text = tokenizer.encode(random.choice(row["text"]))
    mask = torch.tensor(text.attention_mask, dtype=torch.bool)
    return {"image": (pixels.float().div(255) - MEAN) / STD, "ids": torch.tensor(text.ids), "mask": mask}


def plain(photos, folder, args):
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_truncation(LENGTH)
    pad = tokenizer.padding
    tokenizer.enable_padding(pad_id=pad["pad_id"], pad_token=pad["pad_token"], length=LENGTH)
    rows = [json.loads(line) for line in (folder / "captions.jsonl").read_text().splitlines()]
    dataset = Mapped(rows, partial(pair, photos=photos, tokenizer=tokenizer))
    options = {"num_workers": args.workers, "drop_last": True, "persistent_workers": True}
    return DataLoader(dataset, args.batch_size, shuffle=True, **options)


def headrace(photos, folder, args):
    text = hr.Text(folder / "tokenizer.json", max_length=LENGTH, pad=args.pad)
    fields = {"image": hr.Image(dtype="float32", normalize=hr.IMAGENET), "text": text}
    options = {"batch_size": args.batch_size, "shuffle": True, "remainder": "drop", "threads": args.workers}
    data = hr.open(folder / "captions.jsonl", root=photos)
    return hr.Loader(data, fields, view=hr.RandomResizedCrop(SIDE, flip=0.5), **options)


def epochs(loader):
    return chain.from_iterable(repeat(loader))


def rate(loader, size, count):
    """Return samples a second."""
    batches = epochs(loader)
    exhaust(islice(batches, WARM_UP))
    start = time.perf_counter()
    exhaust(islice(batches, count))
    return count * size / (time.perf_counter() - start)


def stall(loader, count, device_s):
    """Return the % of time in which a device waits for the next batch, and in which the loop lets go of the last."""
    batches, batch, waited, let_go = epochs(loader), None, 0.0, 0.0
    for _ in islice(batches, WARM_UP):
        time.sleep(device_s)
    start = time.perf_counter()
    for _ in range(count):
        asked = time.perf_counter()
        fresh = next(batches)
        got = time.perf_counter()
        batch = fresh
        waited, let_go = waited + got - asked, let_go + time.perf_counter() - got
        time.sleep(device_s)
    del batch
    total = time.perf_counter() - start
    return 100 * waited / total, 100 * let_go / total


def show(name, values, unit, digits):
    low, high = min(values), max(values)
    print(f"  {name:32s}{median(values):9.{digits}f} {unit} ({low:.{digits}f} to {high:.{digits}f})")


def text_share(loader):
    """Return the CPU time of text by that of images, as the loader has counted it."""
    stages = loader.stats().stages
    return stages["text"].busy_s / sum(stages[name].busy_s for name in ("read", "probe", "decode", "resample"))


def main():
    args = arguments(
        __doc__, "photos", workers=2, batch_size=64, samples=6000, rounds=3, device_ms=60.0, pad=("batch", "max")
    )
    with tempfile.TemporaryDirectory() as name:
        make(args.photos, Path(name))
        ours = headrace(args.photos, Path(name), args)
        sides = {"Pillow, tokenizers, DataLoader": plain(args.photos, Path(name), args), "Headrace": ours}
        count = max(1, args.samples // args.batch_size)
        cases = {name: partial(rate, side, args.batch_size, count) for name, side in sides.items()}
        print(f"batches of {args.batch_size}, {len(ours)} an epoch, as fast as they come")
        rates = in_turns(cases, args.rounds)
        for name, values in rates.items():
            show(name, values, "samples/s", 0)
        theirs, own = map(median, rates.values())
        print(f"  {own / theirs:.2f} x; text takes {text_share(ours):.1%} of the images' CPU time")
        cases = {name: partial(stall, side, count // 2, args.device_ms / 1e3) for name, side in sides.items()}
        stalls = in_turns(cases, args.rounds)
        for number, what in enumerate(("it waits for a batch", "the loop lets go of the batch before")):
            print(f"a device of {args.device_ms:g} ms a batch: share of the time in which {what}")
            for name, values in stalls.items():
                show(name, [value[number] for value in values], "%", 2)


if __name__ == "__main__":
    main()
