"""CIFAR-10's recipe from arrays, beside torchvision v2 in a torch DataLoader: images/s by the second epoch.

    python benchmarks/image_arrays.py --environment DIR [--images 50000] [--batch-size 512] [--rounds 5]

uint8 [N, 32, 32, 3] of noise in memory; a crop of 32 with a padding of 4, a flip, and normalised float32 batches, with
two threads or two workers. DIR: a virtual environment with torch and torchvision; Headrace runs in the Python that runs
this script. `torchvision` crops one tensor a sample, and `torchvision, Pillow` one image, as `datasets.CIFAR10` does.
Headrace also reads the same array from an `.npy`, and from HDF5 with gzip, whose first opening is timed. Rounds are
interleaved, each run in a process of its own; medians with their quartiles.
"""

import json
import subprocess
import tempfile
from functools import partial
from pathlib import Path

from harness import HIDDEN, arguments, epoch, in_turns, machine, print_quartiles, process_json, seconds

MEAN, STD = (0.491, 0.482, 0.447), (0.247, 0.244, 0.262)
WORKERS = 2


def pixels(count):
    import numpy as np

    return np.random.default_rng(0).integers(0, 256, (count, 32, 32, 3), np.uint8)


def headrace(where, args):
    import headrace as hr

    opened = hr.open(where)
    image = hr.Image(dtype="float32", normalize=hr.Normalize(MEAN, STD))
    view = hr.RandomCrop(32, padding=4, flip=0.5)
    return hr.Loader(opened, {"image": image}, view=view, batch_size=args.batch_size, shuffle=True, threads=WORKERS)


def torchvision(array, args, *, pillow):
    import torch
    from harness import Mapped
    from PIL import Image
    from torch.utils.data import DataLoader
    from torchvision.transforms import v2

    augment = [v2.RandomCrop(32, padding=4), v2.RandomHorizontalFlip()]
    convert = [v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)]
    transform = v2.Compose([*augment, *([v2.ToImage()] if pillow else []), *convert])
    tensors = array if pillow else torch.from_numpy(array).permute(0, 3, 1, 2).contiguous()
    samples = Mapped(range(len(array)), lambda at: transform(Image.fromarray(array[at]) if pillow else tensors[at]))
    return DataLoader(samples, args.batch_size, shuffle=True, num_workers=WORKERS, persistent_workers=True)


def rate(args):
    """Return images/s in the second epoch of the loader that `--loader` names."""
    if args.loader == "headrace":
        loader = headrace({"image": pixels(args.images)} if args.file is None else str(args.file), args)
    else:
        loader = torchvision(pixels(args.images), args, pillow=args.loader == "pillow")
    epoch(loader)
    return args.images / epoch(loader)[0]


def other(python, *command):
    ran = subprocess.run([str(python), __file__, *map(str, command)], check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(ran.stdout.splitlines()[-1])


def main():
    args = arguments(
        __doc__, environment=Path, images=50_000, batch_size=512, rounds=5, loader={"default": None, **HIDDEN},
        file={"type": Path, **HIDDEN},
    )  # fmt: skip
    if args.loader is not None:
        print(json.dumps(rate(args)))
        return
    print(f"{args.images:,} images of 32 x 32; batches of {args.batch_size}, {args.rounds} rounds; {machine()}")
    window = ["--images", args.images, "--batch-size", args.batch_size]
    with tempfile.TemporaryDirectory() as folder:
        npy, gzip = (Path(folder) / name for name in ("x.npy", "x.h5"))
        write(npy, gzip, args.images)
        own = partial(process_json, __file__, "--loader", "headrace", *window, HEADRACE_CACHE=folder)
        cases = {"Headrace": own, "Headrace, .npy": partial(own, "--file", npy)}
        cases["Headrace, HDF5 gzip"] = partial(own, "--file", gzip)
        if args.environment is not None:
            python = args.environment / "bin" / "python"
            cases["torchvision"] = partial(other, python, "--loader", "tensor", *window)
            cases["torchvision, Pillow"] = partial(other, python, "--loader", "pillow", *window)
        print_quartiles(in_turns(cases, args.rounds), "images/s", more_is_better=True)


def write(npy, gzip, count):
    import h5py
    import numpy as np

    import headrace as hr

    array = pixels(count)
    np.save(npy, array)
    with h5py.File(gzip, "w") as file:
        file.create_dataset("image", data=array, chunks=(64, 32, 32, 3), compression="gzip")
    first, later = (seconds(lambda: hr.open(gzip, cache=gzip.parent)) for _ in range(2))
    print(f"HDF5 with gzip, {array.nbytes / 1e6:,.0f} MB: first opening {first:.2f} s, later {later * 1e3:.0f} ms")


if __name__ == "__main__":
    main()
