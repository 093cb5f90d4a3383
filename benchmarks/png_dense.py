"""RGB PNGs of 1024x768 to 480x640, as dense prediction reads them: Headrace against Pillow at equal cores.

    python benchmarks/png_dense.py PHOTOS [--count 48] [--cores 2] [--rounds 5]

The PNGs are cut from photographs (any folder of large JPEGs). Pillow runs in as many processes as Headrace has threads.
"""

import tempfile
from concurrent.futures import ProcessPoolExecutor
from itertools import cycle, islice
from pathlib import Path

import numpy as np
from harness import arguments, exhaust, jpegs, median_s
from PIL import Image

import headrace as hr


def by_pillow(path):
    image = Image.open(path).convert("RGB").resize((640, 480), Image.Resampling.BILINEAR)
    return int(np.asarray(image)[0, 0, 0])


def main():
    args = arguments(__doc__, "photos", count=48, cores=2, rounds=5)
    large = [path for path in jpegs(args.photos) if min(Image.open(path).size) >= 700]
    if not large:
        raise SystemExit(f"expected photographs of at least 700 pixels a side below {args.photos}")
    with tempfile.TemporaryDirectory() as folder, ProcessPoolExecutor(args.cores) as pool:
        files = [Path(folder, f"{number:04d}.png") for number in range(args.count)]
        for path, file in zip(islice(cycle(large), args.count), files, strict=True):
            Image.open(path).convert("RGB").resize((1024, 768), Image.Resampling.LANCZOS).save(file)
        loader = hr.Loader(folder, {"image": hr.Image()}, view=hr.Resize((480, 640)), batch_size=8, threads=args.cores)
        ways = {"own": lambda: exhaust(loader), "Pillow": lambda: list(pool.map(by_pillow, files, chunksize=4))}
        times = median_s(ways, args.rounds, warm_up=1)
    ours, theirs = (args.count / time_s for time_s in times.values())
    print(f"Headrace {ours:,.1f}, Pillow {theirs:,.1f} images/s at {args.cores} cores: {ours / theirs:.2f} x")


if __name__ == "__main__":
    main()
