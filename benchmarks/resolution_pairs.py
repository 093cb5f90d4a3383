"""Pairs of two resolutions for super-resolution: Headrace beside BasicSR's own PairedImageDataset under DataLoader.

    python benchmarks/resolution_pairs.py PHOTOGRAPHS BASICSR [--workers 2] [--batch-size 16] [--rounds 5]

PHOTOGRAPHS holds large images, of which pairs of PNGs are made as BasicSR prepares DIV2K: parts of 480x480, and the
same at 120x120 by Pillow's bicubic filter. BASICSR is a checkout of https://github.com/XPixelGroup/BasicSR, whose
dataset runs as it is: crops of 64x64 and 256x256, flips and turns, float32. It needs cv2, torchvision and PyYAML.

First both must agree on whole images. Then rounds of both in turn, an epoch each after one that warms up; medians, and
the median of the ratios.
"""

import random
import sys
import tempfile
import types
from pathlib import Path

import torch
from harness import arguments, epoch, in_turns, machine, ratio
from PIL import Image
from torch.utils.data import DataLoader

import headrace as hr

SCALE, CROP, PART = 4, 64, 480


def basicsr(root):
    """Return BasicSR's dataset class. The packages' own `__init__` would import all models as well."""
    for name in ("basicsr", "basicsr.data"):
        package = sys.modules[name] = types.ModuleType(name)
        package.__path__ = [str(root / name.replace(".", "/"))]
    from basicsr.data.paired_image_dataset import PairedImageDataset

    return PairedImageDataset


def write_pairs(photographs, folder, count):
    draw, opened = random.Random(0), []
    for path in sorted(path for path in photographs.rglob("*") if path.suffix.lower() in (".jpg", ".png")):
        with Image.open(path) as image:
            if min(image.size) >= 2 * PART:
                opened.append(image.convert("RGB").reduce(2))
    for name in ("lq", "gt"):
        (folder / name).mkdir()
    for number in range(count):
        image = opened[number % len(opened)]
        left, top = (draw.randrange(side - PART + 1) for side in image.size)
        part = image.crop((left, top, left + PART, top + PART))
        part.save(folder / "gt" / f"{number:04}.png")
        part.resize((PART // SCALE,) * 2, Image.Resampling.BICUBIC).save(folder / "lq" / f"{number:04}.png")


def theirs(kind, folder, phase="train"):
    options = {"dataroot_lq": str(folder / "lq"), "dataroot_gt": str(folder / "gt"), "io_backend": {"type": "disk"}}
    return kind(options | {"phase": phase, "scale": SCALE, "gt_size": SCALE * CROP, "use_hflip": True, "use_rot": True})


def ours(folder, **options):
    data = hr.open({"lq": folder / "lq", "gt": folder / "gt"})
    fields = {"lq": hr.Image(dtype="float32"), "gt": hr.Image(dtype="float32", scale=SCALE)}
    return hr.Loader(data, fields, **options)


def main():
    args = arguments(__doc__, "photographs", "basicsr", workers=2, batch_size=16, rounds=5, pairs=800)
    with tempfile.TemporaryDirectory() as out:
        folder = Path(out)
        write_pairs(args.photographs, folder, args.pairs)
        kind = basicsr(args.basicsr)
        whole = theirs(kind, folder, phase="val")
        at = {Path(paths["lq_path"]).stem: index for index, paths in enumerate(whole.paths)}
        for number, batch in zip(range(8), ours(folder, batch_size=1), strict=False):
            sample = whole[at[f"{number:04}"]]
            for name in ("lq", "gt"):
                assert torch.allclose(batch[name][0], sample[name], rtol=0, atol=1e-6), f"{name} of {number} differs"
        view = [hr.RandomCrop(CROP, flip=0.5), hr.RandomQuarterTurn()]
        of_sides = {"batch_size": args.batch_size, "shuffle": True}
        workers = {"num_workers": args.workers, "persistent_workers": True, "drop_last": True}
        sides = {
            "BasicSR": DataLoader(theirs(kind, folder), **of_sides, **workers),
            "Headrace": ours(folder, view=view, **of_sides, remainder="drop", threads=args.workers),
        }
        found = in_turns(
            {name: lambda side=side: epoch(side)[0] for name, side in sides.items()}, args.rounds, warm_up=1
        )
        print(machine())
        for name, times in found.items():
            rates = sorted(args.pairs // args.batch_size * args.batch_size / time_s for time_s in times)
            middle = rates[len(rates) // 2]
            print(f"{name:10s}{middle:8.0f} pairs/s ({rates[0]:.0f} to {rates[-1]:.0f})")
        print(f"Headrace is {ratio(found['BasicSR'], found['Headrace']):.2f} x")


if __name__ == "__main__":
    main()
