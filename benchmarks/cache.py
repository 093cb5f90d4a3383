"""What does a cache gain from the second epoch on, how much of a limit is hit, and what does a miss cost?

    python benchmarks/cache.py PHOTOS [--side 256] [--threads 2] [--rounds 5] [--folder FOLDER]

PHOTOS is a folder of images (benchmarks/make_photos.py makes one). Decoded images, shrunk and cropped at the centre, as
uint8, in shuffled epochs. Each round takes, one after the other: an epoch without a cache; for RAM and for a disk
(`--folder`, default: a temporary one) the first epoch, which caches every sample, and the second, which finds them all;
and an epoch whose cache is full and holds none of its samples. Printed are medians over rounds of images/s, of
microseconds of CPU time an image, and of each round's ratios; then the share of hits in three later epochs at a limit
of 35 % of the data.
"""

import statistics
import tempfile
from pathlib import Path

from harness import arguments, epoch, machine, medians

import headrace as hr

LIMIT, LATER_EPOCHS = 0.35, 3
RATIOS = {
    "second epoch quicker than the first, RAM": ("RAM, first epoch", "RAM, second epoch"),
    "second epoch quicker than the first, disk": ("disk, first epoch", "disk, second epoch"),
    "a miss in a full cache, to none": ("full, nothing of it found", "no cache"),
    "a miss that is kept in RAM, to none": ("RAM, first epoch", "no cache"),
    "a miss that is kept on disk, to none": ("disk, first epoch", "no cache"),
}


def main():
    args = arguments(__doc__, "photos", side=256, threads=2, rounds=5, folder=Path)
    data, sample_bytes = hr.open(args.photos), 3 * args.side**2
    data_bytes = len(data) * sample_bytes

    def loader(cache=None):
        options = {"batch_size": 64, "shuffle": True, "threads": args.threads, "output": "numpy", "cache": cache}
        return hr.Loader(data, {"image": hr.Image()}, view=[hr.Resize(args.side), hr.CenterCrop(args.side)], **options)

    def one_round(folder):
        found = {"no cache": epoch(loader())}
        for name, place in (("RAM", "ram"), ("disk", f"disk:{folder}")):
            cached = loader(f"{place}:{2 * data_bytes}B")
            found |= {f"{name}, first epoch": epoch(cached), f"{name}, second epoch": epoch(cached)}
            assert cached.stats().cache.hit_rate == 1
            del cached
            for file in folder.iterdir():
                file.unlink()
        full = loader(f"ram:{4096 * (3 + len(data) * 32 // 4096) + sample_bytes}B")  # its index, and one sample
        epoch(full)
        found["full, nothing of it found"] = epoch(full)
        assert full.stats().cache.hits <= 1
        return found

    print(f"{machine()}\n{len(data):,} images of {args.photos}, {args.threads} threads, {args.rounds} rounds\n")
    epoch(loader())  # the files come from the page cache from now on
    with tempfile.TemporaryDirectory(dir=args.folder, prefix="headrace-cache-") as name:
        rounds = [one_round(Path(name)) for _ in range(args.rounds)]
        report({case: [each[case] for each in rounds] for case in rounds[0]}, len(data))
        limited, rates = loader(f"disk:{name}:{int(LIMIT * data_bytes)}B"), []
        for _ in range(1 + LATER_EPOCHS):
            epoch(limited)
            rates.append(f"{limited.stats().cache.hit_rate:.2%}")
    print(f"\nhits in later epochs at a limit of {LIMIT:.0%} of the data: {', '.join(rates[1:])}")


def report(found, images):
    print(f"{'':<28}{'images/s':>10}{'CPU µs/image':>15}")
    for name, (wall_s, cpu_s) in medians(found).items():
        print(f"{name:<28}{images / wall_s:>10,.0f}{cpu_s / images * 1e6:>15,.1f}")
    print(f"\n{'ratio, median (least, most)':<44}{'time':>24}{'CPU time':>24}")
    for label, (slow, fast) in RATIOS.items():
        print(f"{label:<44}", end="")
        for kind in (0, 1):
            ratios = [a[kind] / b[kind] for a, b in zip(found[slow], found[fast], strict=True)]
            print(f"{f'{statistics.median(ratios):.3f} ({min(ratios):.3f}, {max(ratios):.3f})':>24}", end="")
        print()


if __name__ == "__main__":
    main()
