"""RGB PNGs of 1024x768 to 480x640, as dense prediction reads them: Headrace against Pillow at equal cores.

    python benchmarks/png_dense.py PHOTOS [--count 48] [--cores 2] [--rounds 5]

The PNGs are cut from photographs (any folder of large JPEGs). Pillow runs in as many processes as Headrace has threads.
"""

import argparse
import statistics
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
from PIL import Image

import headrace as hr


def make(photos, folder, count):
    sources = [path for path in sorted(Path(photos).rglob("*.jp*g")) if path.is_file()]
    made = 0
    for path in sources * count:
        image = Image.open(path).convert("RGB")
        if min(image.size) < 700:
            continue
        image.resize((1024, 768), Image.Resampling.LANCZOS).save(Path(folder) / f"{made:04d}.png")
        made += 1
        if made == count:
            return
    raise SystemExit(f"expected photographs of at least 700 pixels a side below {photos}")


def by_pillow(path):
    image = Image.open(path).convert("RGB").resize((640, 480), Image.Resampling.BILINEAR)
    return int(np.asarray(image)[0, 0, 0])


def main():
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("photos")
    ask.add_argument("--count", type=int, default=48)
    ask.add_argument("--cores", type=int, default=2)
    ask.add_argument("--rounds", type=int, default=5)
    args = ask.parse_args()
    with tempfile.TemporaryDirectory() as folder, ProcessPoolExecutor(args.cores) as pool:
        make(args.photos, folder, args.count)
        files = sorted(str(path) for path in Path(folder).iterdir())
        loader = hr.Loader(folder, {"image": hr.Image()}, view=hr.Resize((480, 640)), batch_size=8, threads=args.cores)
        own, pillow = [], []
        for _ in range(args.rounds + 1):
            start = time.perf_counter()
            for _ in loader:
                pass
            own.append(args.count / (time.perf_counter() - start))
            start = time.perf_counter()
            list(pool.map(by_pillow, files, chunksize=4))
            pillow.append(args.count / (time.perf_counter() - start))
    ours, theirs = statistics.median(own[1:]), statistics.median(pillow[1:])
    print(f"Headrace {ours:,.1f}, Pillow {theirs:,.1f} images/s at {args.cores} cores: {ours / theirs:.2f} x")


if __name__ == "__main__":
    main()
