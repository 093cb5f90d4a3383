"""Loaders that deliver on a CUDA device: what a training step loses to them, and what is copied how.

    python benchmarks/device_loader.py PHOTOS [--device cuda] [--batch-size 256] [--steps 40] [--rounds 3]

1. ResNet-50 in bfloat16, rounds in turn: one batch that lies on the device (the lower bound), and a Loader of PHOTOS
   with device=. Beside the step's time: the share of the pass in which the step waits, of its time the share of the
   H2D copies, and how much of copies and conversion ran alongside training.
2. A mixture of two loaders, and captions by a tokenizer, each with and without device=: samples a second, and the time
   that copies from memory that is not pinned took: of labels and ids alone, which are small.

Captions and their tokenizer are made by captioned_photos.py. --device cpu shows that it runs, not what it measures.
"""

import tempfile
import time
from functools import partial
from itertools import islice, repeat
from pathlib import Path
from statistics import median

import captioned_photos
import torch
from harness import arguments, finish_device, in_turns, jpegs, medians, repeated, require_device
from resnet50 import resnet50, train

import headrace as hr
from headrace.device import DeviceFeed

VIEW = hr.RandomResizedCrop(224, flip=0.5)
FLOATS = hr.Image(dtype="bfloat16", normalize=hr.IMAGENET)


def images(args, device):
    fields, settings = {"image": FLOATS, "label": hr.Label()}, {"shuffle": True, "remainder": "drop"}
    data = repeated(args.photos, max(args.needed, len(jpegs(args.photos))))
    return hr.Loader(data, fields, view=VIEW, device=device, batch_size=args.batch_size, **settings)


def mixture(args, device):
    return hr.mix({name: images(args, device) for name in ("a", "b")}, weights={"a": 3, "b": 1})


def captions(args, device):
    fields = {"image": FLOATS, "text": hr.Text(args.made / "tokenizer.json", max_length=77)}
    data = hr.open(args.made / "captions.jsonl", root=args.photos)
    return hr.Loader(data, fields, view=VIEW, batch_size=args.batch_size, shuffle=True, device=device)


def print_steps(args):
    model = resnet50().to(args.device).to(memory_format=torch.channels_last)
    image = torch.randn(args.batch_size, 3, 224, 224, device=args.device, dtype=torch.bfloat16)
    resident = (
        image.contiguous(memory_format=torch.channels_last),
        torch.zeros_like(image[:, 0, 0, 0], dtype=torch.int64),
    )
    loaders = []

    def step_ms(batches):
        return train(model, batches(), args.warm_up, args.steps, args.device)

    def fed():
        loaders.append(images(args, args.device))
        return ((batch["image"], batch["label"]) for batch in loaders[-1])

    cases = {"bare": partial(step_ms, lambda: repeat(resident)), "fed": partial(step_ms, fed)}
    bare, with_loader = medians(in_turns(cases, args.rounds)).values()
    stats = loaders[-1].stats()
    print(f"ResNet-50, bfloat16, batch {args.batch_size}, medians of {args.rounds} rounds")
    print(f"  a batch on the device {bare:9.2f} ms a step")
    print(f"  with the loader       {with_loader:9.2f} ms a step {with_loader / bare:8.3f} x")
    waited = f"  the step waited {stats.consumer_wait_s / stats.wall_s:.1%} of the last pass"
    if stats.copy_s is not None and stats.convert_s is not None:
        copies, conversion = stats.copy_s / stats.wall_s, stats.convert_s / stats.wall_s
        waited += f"; H2D copies took {copies:.1%}, conversion {conversion:.1%}"
        waited += "" if stats.overlap is None else f", {stats.overlap:.0%} of both alongside training"
    print(waited)


def samples_per_s(make, args, device):
    """Return samples a second after the warm-up, and the seconds that staging of unpinned memory took."""
    loader = make(args, device)
    iterator, staged_s = iter(loader), 0.0
    for _ in range(args.warm_up):
        next(iterator)
    since, count = time.perf_counter(), 0
    for batch in islice(iterator, args.steps):
        count += len(batch["image"])
        finish_device(args.device)
    elapsed, feed = time.perf_counter() - since, getattr(loader._pass, "_feed", None)
    if isinstance(feed, DeviceFeed):
        staged_s = feed.stats().copies.stage_s
    iterator.close()
    return count / elapsed, staged_s


def print_rates(args):
    for name, make in (("mixture of two loaders", mixture), ("images and captions", captions)):
        cases = {device: partial(samples_per_s, make, args, device) for device in (None, args.device)}
        found = in_turns(cases, args.rounds)
        here, there = (median(rate for rate, _ in rounds) for rounds in found.values())
        staged_ms = found[args.device][-1][1] * 1e3
        print(
            f"{name}: {here:,.0f} samples/s on the host, {there:,.0f} on the device ({there / here:.3f} x), "
            f"{staged_ms:.1f} ms of copies from unpinned memory"
        )


def main():
    args = arguments(__doc__, "photos", device="cuda", batch_size=256, steps=40, warm_up=8, rounds=3)
    require_device(args.device)
    args.needed = (args.steps + args.warm_up + 4) * args.batch_size  # no epoch ends while it is timed
    with tempfile.TemporaryDirectory() as made:
        args.made = Path(made)
        captioned_photos.make(args.photos, args.made, captions=1, times=-(-args.needed // len(jpegs(args.photos))))
        print_steps(args)
        print_rates(args)


if __name__ == "__main__":
    main()
