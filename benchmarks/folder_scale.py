"""How long does it take to list a folder of many small files, beside what the system itself takes?

    python benchmarks/folder_scale.py [--files 200000] [--folder DIR] [--rounds 5]

Makes trees of empty files called .jpg in DIR (default: a temporary folder): class folders of 200, folders three deep,
and all in one folder. Listings are interleaved and lie in the page cache; medians. `os.walk` is Python's own walk, and
`find` the system's, each without what a dataset needs beside the names.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import headrace as hr
from headrace.tools.bench.comparison import environment

TREES: Mapping[str, Callable[[int], str]] = {
    "classes": lambda number: f"class_{number // 200:05d}",
    "deep": lambda number: f"{number // 20_000:03d}/{number // 1_000:04d}/{number // 50:05d}",
    "flat": lambda number: ".",
}


def write_tree(root: Path, files: int, folder_of: Callable[[int], str]) -> None:
    for number in range(files):
        folder = root / folder_of(number)
        if not folder.exists():
            folder.mkdir(parents=True)
        os.close(os.open(folder / f"image_{number:07d}.jpg", os.O_CREAT | os.O_WRONLY))


def seconds(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def one_round(root: Path) -> dict[str, float]:
    return {
        "open": seconds(lambda: hr.open(root)),
        "os.walk": seconds(lambda: sum(len(names) for _, _, names in os.walk(root))),
        "find": seconds(lambda: subprocess.run(["find", str(root)], stdout=subprocess.DEVNULL, check=True)),
    }


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("--files", type=int, default=200_000)
    ask.add_argument("--folder", help="where the trees are made")
    ask.add_argument("--rounds", type=int, default=5)
    options = ask.parse_args()
    machine = environment()
    print(f"{machine.cpu}, {machine.cores} cores, Python {machine.python}")
    print(f"{options.files:,} files, seconds, medians of {options.rounds} rounds")
    print(f"{'':10}{'open':>10}{'os.walk':>10}{'find':>10}")
    for name, folder_of in TREES.items():
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            root = Path(folder)
            write_tree(root, options.files, folder_of)
            rounds = [one_round(root) for _ in range(options.rounds + 1)][1:]
            if len(hr.open(root)) != options.files:
                raise SystemExit(f"{name}: not all files were found")
            medians = {what: statistics.median(round_[what] for round_ in rounds) for what in rounds[0]}
        print(f"{name:10}" + "".join(f"{value:10.3f}" for value in medians.values()))


if __name__ == "__main__":
    main()
