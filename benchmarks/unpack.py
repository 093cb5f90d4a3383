"""How fast does `headrace unpack` make files, beside `tar -x` on the same disk?

    python benchmarks/unpack.py [--files 10000] [--folder FOLDER]

Many files of 78 KB, a few of 256 MB, and the small ones compressed by gzip. Each way is a command, from its start to
its end, on archives that lie in the page cache. Rounds are interleaved, with `sync` before each run, in every order,
since how a way leaves memory and disk is felt by the next; medians. `again` finds all files there.
"""

import gzip
import os
import random
import shutil
import statistics
import subprocess
import tempfile
from pathlib import Path

from harness import HEADRACE, arguments, machine, seconds, write_tar

SMALL_BYTES, LARGE_BYTES = 78_000, 256_000_000
TAR, OWN, AGAIN = "tar -x", "headrace unpack", "headrace unpack, again"


def write(path, files, size):
    content = random.Random(0).randbytes(size)
    return write_tar(path, ((f"train/n{n // 500:05d}/image_{n:07d}.jpg", content) for n in range(files)))


def run_s(way, archive, target):
    """Return the seconds of a way; AGAIN goes on from what the way before it has made."""
    if way != AGAIN:
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir()
    os.sync()
    own = [*HEADRACE, "unpack", archive, "--to", target]
    command = ["tar", "-xf", archive, "-C", target] if way == TAR else own
    return seconds(lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL))


def compare(title, archive, size, rounds, *, again=True):
    ways, target = [TAR, OWN, *([AGAIN] if again else [])], archive.parent / "target"
    found = {way: [] for way in ways}
    for number in range(rounds):
        for way in ways if number % 2 == 0 else [*ways[1:], TAR]:
            found[way].append(run_s(way, archive, target))
    shutil.rmtree(target)
    print(f"\n{title}")
    reference = statistics.median(found[TAR])
    for way, times in found.items():
        median = statistics.median(times)
        print(f"  {way:28}{median:8.2f} s{size / median / 1e6:9.0f} MB/s{reference / median:8.2f} x tar -x")


def main():
    on = {"type": Path, "help": "on the disk to measure; default: that of temporary files"}
    args = arguments(__doc__, files=10_000, rounds=6, folder=on)
    print(f"{machine()}; medians of {args.rounds} rounds")
    with tempfile.TemporaryDirectory(dir=args.folder) as name:
        small, total = write(Path(name, "small.tar"), args.files, SMALL_BYTES), args.files * SMALL_BYTES
        compare(f"{args.files:,} files of 78 KB", small, total, args.rounds)
        packed = Path(f"{small}.gz")
        with small.open("rb") as plain, gzip.open(packed, "wb", compresslevel=1) as out:
            shutil.copyfileobj(plain, out, 1 << 20)
        small.unlink()
        compare(f"{args.files:,} files of 78 KB, gzip", packed, total, args.rounds, again=False)
        packed.unlink()
        large = write(Path(name, "large.tar"), 4, LARGE_BYTES)
        compare("4 files of 256 MB", large, 4 * LARGE_BYTES, args.rounds)


if __name__ == "__main__":
    main()
