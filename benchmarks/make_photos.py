"""Make ImageNet-like JPEGs: random crops of photographs, 500×375 mostly, at the quality that gives about 70 kB.

    python benchmarks/make_photos.py OUT [--photos FOLDER] [--count 1500]

FOLDER holds large photographs, such as the wallpapers in Debian's packages (`apt-get download
plasma-workspace-wallpapers mate-backgrounds gnome-backgrounds`, then `dpkg -x`); without it the same sources are
tried as by `headrace demo`.
"""

import argparse
from pathlib import Path

from rich.progress import track

from headrace.tools.demo_dataset import find_source, write_dataset


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("out", type=Path)
    ask.add_argument("--photos", type=Path)
    ask.add_argument("--count", type=int, default=1500)
    ask.add_argument("--classes", type=int, default=100)
    ask.add_argument("--seed", type=int, default=0)
    args = ask.parse_args()
    source = find_source(args.photos)
    photographs = list(track(source.load(), "Loading photographs", total=len(source)))
    files = write_dataset(photographs, args.out, args.count, classes=args.classes, seed=args.seed)
    sizes = list(track(files, "Writing photographs", total=args.count))
    print(
        f"{len(photographs)} photographs ({source.origin}), {args.count} files, "
        f"{sum(sizes) / args.count:,.0f} bytes each"
    )


if __name__ == "__main__":
    main()
