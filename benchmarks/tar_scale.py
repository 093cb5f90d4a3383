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

import os
import statistics
import tarfile
import tempfile
from pathlib import Path

from harness import arguments, encoded, machine, process_json, seconds
from PIL import Image

import headrace as hr
from headrace._core import scan_tar
from headrace.data.storage import safetensors
from headrace.plan import UniformPlan
from headrace.tools.demo_dataset import natural_image

BLOCK = 512
BATCH, BATCHES, AHEAD = 64, 10, 16  # AHEAD: batches that may be under way beside those taken
LOADING = """
import json, sys, time
from itertools import islice
import torch
import headrace as hr
from harness import exhaust, memory_mb, seconds

def grown():
    return [now - then for now, then in zip(memory_mb("VmRSS", "RssAnon"), before)]

path, batch, batches = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
before, begin = memory_mb("VmRSS", "RssAnon"), time.perf_counter()
dataset = hr.open(path)
times, memory = {"opened": time.perf_counter() - begin}, {"memory, opened": grown()}
begin = time.perf_counter()
loader = hr.Loader(dataset, view=hr.RandomResizedCrop(224), batch_size=batch, shuffle=True, on_error="raise")
taken = iter(loader)
next(taken)
times["first batch"] = time.perf_counter() - begin
exhaust(islice(taken, batches - 1))
memory[f"memory, {batches} batches"] = grown()
times["state_dict()"] = seconds(loader.state_dict)
print(json.dumps([times, memory]))
"""


def write_tar(path, members, size):
    """Write headers alone; the data between them is never written."""
    stride = BLOCK + (size + BLOCK - 1) // BLOCK * BLOCK
    with path.open("wb", buffering=0 if size else 1 << 20) as file:
        for number in range(members):
            info = tarfile.TarInfo(f"train/{number // 1000:04d}/{number:07d}.jpg")
            info.size = size
            if size:
                file.seek(number * stride)
            file.write(info.tobuf(tarfile.USTAR_FORMAT))
        file.truncate(members * stride + 2 * BLOCK)


def forget(path, *, all_files):
    """Let the kernel drop what it holds of the file."""
    os.sync()
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    if all_files:
        Path("/proc/sys/vm/drop_caches").write_text("3")


def show_indexing(path, members, args):
    index, builds = Path(f"{path}.headrace"), []
    scans = [seconds(lambda: scan_tar(os.fsencode(path))) for _ in range(args.rounds + 1)][1:]
    print(f"scan alone, warm          {members / statistics.median(scans):12,.0f} members/s")
    for _ in range(args.rounds):
        index.unlink(missing_ok=True)
        builds.append(seconds(lambda: hr.open(path)))
    print(f"index built and kept, warm{members / statistics.median(builds):12,.0f} members/s")
    index.unlink()
    forget(path, all_files=args.drop_caches)
    print(f"index built and kept, cold{members / seconds(lambda: hr.open(path)):12,.0f} members/s")
    names = safetensors.read_arrays(str(index))[0]["names.blob"].nbytes
    beyond = (index.stat().st_size - names) / members
    print(f"sidecar                   {beyond:12.1f} bytes a member beyond {names / members:.1f} of names")


def write_first_drawn(path, size):
    """Write the largest JPEG of one scene that fits into the members that the loader draws first."""
    dataset, image = hr.open(path), Image.fromarray(natural_image(500, 375, seed=0))
    plan = UniformPlan(length=len(dataset), batch_size=BATCH, shuffle=True)
    files = (encoded(image, quality=quality) for quality in range(95, 0, -5))
    picture = next((file for file in files if len(file) <= size), None)
    if picture is None:
        raise SystemExit(f"no picture fits {size:,} bytes: ask for more with --bytes, or for 0")
    with path.open("r+b", buffering=0) as file:
        for step in range(min(BATCHES + AHEAD, plan.steps)):
            for offset in dataset.locate("image", plan.batch(0, step).samples).offset:
                os.pwrite(file.fileno(), picture, int(offset))
    hr.open(path)  # where a picture changed what the tar is known by, it is indexed anew


def show_loading(path, rounds):
    found = [process_json("-c", LOADING, path, BATCH, BATCHES) for _ in range(rounds)]
    for name in found[0][0]:
        print(f"{name:26}{statistics.median(times[name] for times, _ in found) * 1e3:12.1f} ms")
    for name in found[0][1]:
        rss, anonymous = (max(memory[name][at] for _, memory in found) for at in (0, 1))
        print(f"{name:26}{rss:12.1f} MB more, of which {anonymous:.1f} not of files")


def main():
    size = {"type": int, "default": 79_872, "help": "of each member"}
    args = arguments(__doc__, members=1_000_000, bytes=size, folder=Path, rounds=5, drop_caches=False)
    print(machine())
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        path = Path(folder, "members.tar")
        took = seconds(lambda: write_tar(path, args.members, args.bytes))
        print(f"{args.members:,} members of {args.bytes:,} bytes, written in {took:.0f} s")
        show_indexing(path, args.members, args)
        if args.bytes:
            write_first_drawn(path, args.bytes)
            show_loading(path, args.rounds)


if __name__ == "__main__":
    main()
