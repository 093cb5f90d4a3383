"""How fast does `headrace unpack` make files, beside `tar -x` on the same disk?

    python benchmarks/unpack.py [--files 10000] [--folder FOLDER]

Many files of 78 KB, a few of 256 MB, and the small ones compressed by gzip. Each way is a command, from its start to
its end, on archives that lie in the page cache. Rounds are interleaved, with `sync` before each run, in every order,
since how a way leaves memory and disk is felt by the next; medians. `again` finds all files there.
"""

from __future__ import annotations

import argparse
import gzip
import io
import itertools
import os
import random
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from headrace.tools.bench.comparison import environment

SMALL_BYTES, LARGE_BYTES = 78_000, 256_000_000
UNPACK = "import sys; from headrace.tools.command_line import main; sys.argv[0] = 'headrace'; main()"


def write_tar(path: Path, *, files: int, size: int) -> Path:
    content = random.Random(0).randbytes(size)
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as tar:
        for number in range(files):
            info = tarfile.TarInfo(f"train/n{number // 500:05d}/image_{number:07d}.jpg")
            info.size, info.mtime, info.mode = size, 1_700_000_000 + number, 0o644
            tar.addfile(info, io.BytesIO(content))
    return path


def compress(path: Path) -> Path:
    packed = Path(f"{path}.gz")
    with open(path, "rb") as plain, gzip.open(packed, "wb", compresslevel=1) as out:
        shutil.copyfileobj(plain, out, 1 << 20)
    return packed


def command(way: str, archive: Path, target: Path) -> list[str]:
    if way == "tar -x":
        return ["tar", "-xf", str(archive), "-C", str(target)]
    return [sys.executable, "-c", UNPACK, "unpack", str(archive), "--to", str(target)]


def seconds(way: str, archive: Path, target: Path) -> float:
    """`again` goes on from what the way before it has made."""
    if "again" not in way:
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir()
    os.sync()
    begin = time.perf_counter()
    subprocess.run(command(way, archive, target), check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begin


def _with_again(apart: Sequence[str], ways: Sequence[str]) -> list[str]:
    """Each way with its second run, if it has one, right behind it."""
    return [each for way in apart for each in ways if each in (way, f"{way}, again")]


def compare(title: str, archive: Path, size: int, folder: Path, ways: Sequence[str], rounds: int) -> None:
    found: dict[str, list[float]] = {way: [] for way in ways}
    orders = list(itertools.permutations(way for way in ways if "again" not in way))
    for number in range(rounds):
        for way in _with_again(orders[number % len(orders)], ways):
            found[way].append(seconds(way, archive, folder / "target"))
    shutil.rmtree(folder / "target")
    reference = statistics.median(found["tar -x"])
    print(f"\n{title}")
    for way, times in found.items():
        median = statistics.median(times)
        print(f"  {way:28}{median:8.2f} s{size / median / 1e6:9.0f} MB/s{reference / median:8.2f} x tar -x")


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("--files", type=int, default=10_000)
    ask.add_argument("--rounds", type=int, default=6)
    ask.add_argument("--folder", help="on the disk to measure; default: that of temporary files")
    options = ask.parse_args()
    machine = environment()
    print(f"{machine.cpu}, {machine.cores} cores, Python {machine.python}; medians of {options.rounds} rounds")
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        plain = ["tar -x", "headrace unpack", "headrace unpack, again"]
        small = write_tar(folder / "small.tar", files=options.files, size=SMALL_BYTES)
        total = options.files * SMALL_BYTES
        compare(f"{options.files:,} files of 78 KB", small, total, folder, plain, options.rounds)
        packed = compress(small)
        small.unlink()
        compare(f"{options.files:,} files of 78 KB, gzip", packed, total, folder, plain[:2], options.rounds)
        packed.unlink()
        large = write_tar(folder / "large.tar", files=4, size=LARGE_BYTES)
        compare("4 files of 256 MB", large, 4 * LARGE_BYTES, folder, plain, options.rounds)


if __name__ == "__main__":
    main()
