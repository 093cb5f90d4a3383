"""What does a call of `decode_batch` cost beyond decoding, and compared to a Loader for each call?

    python benchmarks/decode_batch.py --photos FOLDER [--threads 1] [--rounds 20]

Batches of 1, 64 and 256 files' bytes in memory, as lists and as Arrow, cropped to 224 pixels. In each round every way
takes its turn: `read_images` (decode and stack, no fields), `decode_batch`, and one pass of a Loader over
`open(items)`, which copies the bytes. Medians and minima of the wall time.
"""

import statistics
from functools import partial
from pathlib import Path

import pyarrow as pa
from harness import arguments, in_turns, jpegs, seconds

import headrace as hr

VIEW = hr.RandomResizedCrop(224, flip=0.5)


def by_loader(items, threads):
    next(iter(hr.Loader(hr.open(items), view=VIEW, batch_size=len(items), threads=threads, prefetch=1)))


def main():
    args = arguments(__doc__, photos={"type": Path, "required": True}, threads=1, rounds=20)
    files = [path.read_bytes() for path in jpegs(args.photos, 256)]
    print(f"{len(files)} photos, {sum(map(len, files)) / len(files) / 1e3:.0f} KB on average, {args.threads} threads")
    for count in (1, 64, 256):
        items, decode = files[:count], partial(hr.decode_batch, view=VIEW, threads=args.threads)
        ways = {
            "read_images": partial(hr.read_images, items, view=VIEW, rng=0, threads=args.threads),
            "decode_batch": partial(decode, items),
            "decode_batch, Arrow": partial(decode, pa.array(items)),
            "open and Loader": partial(by_loader, items, args.threads),
        }
        times = in_turns({name: partial(seconds, way) for name, way in ways.items()}, args.rounds)
        for name, taken in times.items():
            middle, least = 1e3 * statistics.median(taken), 1e3 * min(taken)
            print(f"{count:4} items  {name:20} median {middle:7.2f} ms, minimum {least:7.2f} ms")


if __name__ == "__main__":
    main()
