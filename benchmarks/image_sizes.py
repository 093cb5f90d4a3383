"""How long does it take to learn the sizes of all images of a folder, and to learn them again?

    python benchmarks/image_sizes.py FOLDER [--threads 2] [--rounds 5]

FOLDER holds images, such as `benchmarks/make_photos.py OUT --count 5000` makes. "whole files" reads all of each, by
Python's own read in as many threads. "Pillow" opens each in this one thread. "kept" is the second call of
`image_sizes`, which finds the sizes in a file; the others cache nothing. The page cache is warm; medians.
"""

import tempfile
from concurrent.futures import ThreadPoolExecutor

from harness import arguments, median_s
from PIL import Image

import headrace as hr
from headrace.data.native_reading import probe_sizes
from headrace.data.sizes import image_sizes


def main():
    args = arguments(__doc__, "folder", threads=2, rounds=5)
    dataset = hr.open(args.folder)
    paths = [args.folder / key for key in dataset.keys]
    with tempfile.TemporaryDirectory() as cache, ThreadPoolExecutor(args.threads) as pool:
        ways = {
            "headers": lambda: probe_sizes(dataset, "image", exif=False, threads=args.threads, limits=hr.Limits()),
            "whole files": lambda: sum(pool.map(lambda path: len(path.read_bytes()), paths)),
            "Pillow": lambda: [Image.open(path).size for path in paths],
            "kept": lambda: image_sizes(dataset, "image", threads=args.threads, cache=cache),
        }
        print(f"{len(dataset):,} images, {args.threads} threads")
        for name, spent_s in median_s(ways, args.rounds, warm_up=1).items():
            print(f"{name:12} {len(dataset) / spent_s:12,.0f} images/s {1e3 * spent_s:10.2f} ms")


if __name__ == "__main__":
    main()
