"""What does a tar of a million members cost: to index, to keep, to open, until the first batch, and in memory?

    python benchmarks/tar_scale.py [--members 1000000] [--bytes 79872] [--folder DIR] [--rounds 5] [--drop-caches]

Writes a tar of that many members into DIR (default: a temporary folder) as headers with holes between them, which takes
4 KB a member of the disk, or of memory where DIR is a tmpfs. On a disk that discards what is freed, a file of so many
pieces takes minutes to delete. `--bytes 0` writes no holes: 512 bytes a member, for a look at 10,000,000.

Warm figures are medians. For the cold one the kernel is asked to forget the file, and with `--drop-caches` (as root)
whatever it keeps of any; a tmpfs has nothing to forget. The first batch is taken in a fresh process that has imported
torch and headrace before: from `Loader(dataset)` until the batch is there, of random crops. JPEGs of the members' size
are written into those members that the plan draws first.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from PIL import Image

import headrace as hr
from headrace._core import scan_tar
from headrace.data.storage import safetensors
from headrace.plan import UniformPlan
from headrace.tools.bench.comparison import environment
from headrace.tools.demo_dataset import natural_image

BLOCK = 512
BATCH, BATCHES = 64, 10
AHEAD = 16  # batches that may be under way beside those taken
LOADING = """
import json, sys, time
import torch
import headrace as hr

def memory():
    lines = dict(line.split(":") for line in open("/proc/self/status") if ":" in line)
    return {name: int(lines[name].split()[0]) / 1e3 for name in ("RssAnon", "RssFile", "VmRSS")}

path, batch, batches = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
before = memory()
start = time.perf_counter()
dataset = hr.open(path)
opened = time.perf_counter()
after_open = memory()
ready = time.perf_counter()
loader = hr.Loader(dataset, view=hr.RandomResizedCrop(224), batch_size=batch, shuffle=True, on_error="raise")
taken = iter(loader)
next(taken)
first = time.perf_counter()
for _ in range(batches - 1):
    next(taken)
after_batches = memory()
asked = time.perf_counter()
loader.state_dict()
state_s = time.perf_counter() - asked
print(json.dumps({
    "open_s": opened - start, "first_batch_s": first - ready, "state_s": state_s,
    "opened": {name: after_open[name] - before[name] for name in before},
    "loaded": {name: after_batches[name] - before[name] for name in before},
}))
"""


def write_tar(path: Path, members: int, size: int) -> None:
    """Headers alone; the data between them is never written."""
    stride = BLOCK + (size + BLOCK - 1) // BLOCK * BLOCK
    with path.open("wb", buffering=0 if size else 1 << 20) as file:
        for number in range(members):
            info = tarfile.TarInfo(f"train/{number // 1000:04d}/{number:07d}.jpg")
            info.size = size
            if size:
                file.seek(number * stride)
            file.write(info.tobuf(tarfile.USTAR_FORMAT))
        file.truncate(members * stride + 2 * BLOCK)


def seconds(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def forget(path: Path, *, all_files: bool) -> None:
    """Lets the kernel drop what it holds of the file."""
    os.sync()
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    if all_files:
        Path("/proc/sys/vm/drop_caches").write_text("3")


def show_indexing(path: Path, members: int, rounds: int, *, drop_caches: bool) -> None:
    scans = [seconds(lambda: scan_tar(os.fsencode(path))) for _ in range(rounds + 1)][1:]
    print(f"scan alone, warm          {members / statistics.median(scans):12,.0f} members/s")
    kept = Path(f"{path}.headrace")
    builds = []
    for _ in range(rounds):
        kept.unlink(missing_ok=True)
        builds.append(seconds(lambda: hr.open(path)))
    print(f"index built and kept, warm{members / statistics.median(builds):12,.0f} members/s")
    kept.unlink()
    forget(path, all_files=drop_caches)
    print(f"index built and kept, cold{members / seconds(lambda: hr.open(path)):12,.0f} members/s")


def show_sidecar(path: Path, members: int) -> None:
    arrays, _ = safetensors.read_arrays(f"{path}.headrace")
    names = arrays["names.blob"].nbytes
    beyond = (os.path.getsize(f"{path}.headrace") - names) / members
    print(f"sidecar                   {beyond:12.1f} bytes a member beyond {names / members:.1f} of names")


def write_first_drawn(path: Path, size: int) -> None:
    """Pictures of the members' size into those that the loader draws first."""
    dataset = hr.open(path)
    plan = UniformPlan(length=len(dataset), batch_size=BATCH, shuffle=True)
    picture = _picture(size)
    with path.open("r+b", buffering=0) as file:
        for step in range(min(BATCHES + AHEAD, plan.steps)):
            at = dataset.locate("image", plan.batch(0, step).samples)
            for offset in at.offset:
                os.pwrite(file.fileno(), picture, int(offset))
    hr.open(path)  # where a picture changed what the tar is known by, it is indexed anew


def _picture(size: int) -> bytes:
    """The largest JPEG of one scene that fits; what is left of a member lies behind the picture's end."""
    image = Image.fromarray(natural_image(500, 375, seed=0))
    for quality in range(95, 0, -5):
        out = io.BytesIO()
        image.save(out, "JPEG", quality=quality)
        if out.tell() <= size:
            return out.getvalue()
    raise SystemExit(f"no picture fits {size:,} bytes: ask for more with --bytes, or for 0")


def show_loading(path: Path, rounds: int) -> None:
    found = [
        json.loads(
            subprocess.run(
                [sys.executable, "-c", LOADING, str(path), str(BATCH), str(BATCHES)],
                stdout=subprocess.PIPE,
                check=True,
            ).stdout
        )
        for _ in range(rounds)
    ]
    for name, what in (("open_s", "opened"), ("first_batch_s", "first batch"), ("state_s", "state_dict()")):
        print(f"{what:26}{statistics.median(round_[name] for round_ in found) * 1e3:12.1f} ms")
    for when, what in (("opened", "memory, opened"), ("loaded", f"memory, {BATCHES} batches")):
        most = {name: max(round_[when][name] for round_ in found) for name in found[0][when]}
        print(f"{what:26}{most['VmRSS']:12.1f} MB more, of which {most['RssAnon']:.1f} not of files")


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("--members", type=int, default=1_000_000)
    ask.add_argument("--bytes", type=int, default=79_872, help="of each member")
    ask.add_argument("--folder", help="where the tar is written")
    ask.add_argument("--rounds", type=int, default=5)
    ask.add_argument("--drop-caches", action="store_true", help="the whole machine's, before the cold round")
    options = ask.parse_args()
    machine = environment()
    print(f"{machine.cpu}, {machine.cores} cores, Python {machine.python}")
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        path = Path(folder) / "members.tar"
        took = seconds(lambda: write_tar(path, options.members, options.bytes))
        print(f"{options.members:,} members of {options.bytes:,} bytes, written in {took:.0f} s")
        show_indexing(path, options.members, options.rounds, drop_caches=options.drop_caches)
        show_sidecar(path, options.members)
        if options.bytes:
            write_first_drawn(path, options.bytes)
            show_loading(path, options.rounds)
        path.unlink()


if __name__ == "__main__":
    main()
