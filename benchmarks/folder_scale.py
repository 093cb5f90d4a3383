"""How long does it take to list a folder of many small files, beside what the system itself takes?

    python benchmarks/folder_scale.py [--files 200000] [--folder DIR] [--rounds 5]

Makes trees of empty files called .jpg in DIR (default: a temporary folder): class folders of 200, folders three deep,
and all in one folder. Listings are interleaved and lie in the page cache; medians. `os.walk` is Python's own walk, and
`find` the system's, each without what a dataset needs beside the names.
"""

import os
import subprocess
import tempfile
from pathlib import Path

from harness import arguments, machine, median_s

import headrace as hr

TREES = {
    "classes": lambda number: f"class_{number // 200:05d}",
    "deep": lambda number: f"{number // 20_000:03d}/{number // 1_000:04d}/{number // 50:05d}",
    "flat": lambda number: ".",
}


def write_tree(root, files, folder_of):
    for number in range(files):
        folder = root / folder_of(number)
        folder.mkdir(parents=True, exist_ok=True)
        os.close(os.open(folder / f"image_{number:07d}.jpg", os.O_CREAT | os.O_WRONLY))


def main():
    args = arguments(__doc__, files=200_000, folder=Path, rounds=5)
    print(f"{machine()}\n{args.files:,} files, seconds, medians of {args.rounds} rounds")
    print(f"{'':10}{'open':>10}{'os.walk':>10}{'find':>10}")
    for name, folder_of in TREES.items():
        with tempfile.TemporaryDirectory(dir=args.folder) as root:
            write_tree(Path(root), args.files, folder_of)
            assert len(hr.open(root)) == args.files
            ways = {
                "open": lambda root=root: hr.open(root),
                "os.walk": lambda root=root: sum(len(names) for _, _, names in os.walk(root)),
                "find": lambda root=root: subprocess.run(["find", root], stdout=subprocess.DEVNULL, check=True),
            }
            times = median_s(ways, args.rounds, warm_up=1)
        print(f"{name:10}" + "".join(f"{value:10.3f}" for value in times.values()))


if __name__ == "__main__":
    main()
