"""Make ImageNet-like JPEGs: random crops of photographs, 500×375 mostly, at the quality that gives about 70 kB.

    python benchmarks/make_photos.py OUT [--photos FOLDER] [--count 1500]

FOLDER holds large photographs, such as the wallpapers in Debian's packages (`apt-get download
plasma-workspace-wallpapers mate-backgrounds gnome-backgrounds`, then `dpkg -x`); without it the same sources are
tried as by `headrace demo`.
"""

from pathlib import Path

from harness import arguments
from rich.progress import track

from headrace.tools.demo_dataset import find_source, write_dataset


def main():
    args = arguments(__doc__, "out", photos=Path, count=1500, classes=100, seed=0)
    source = find_source(args.photos)
    photographs = list(track(source.load(), "Loading photographs", total=len(source)))
    files = write_dataset(photographs, args.out, args.count, classes=args.classes, seed=args.seed)
    size = sum(track(files, "Writing photographs", total=args.count)) / args.count
    print(f"{len(photographs)} photographs ({source.origin}), {args.count} files, {size:,.0f} bytes each")


if __name__ == "__main__":
    main()
