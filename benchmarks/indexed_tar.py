"""How long does it take to open an archive of many members, and to find and read one of them, beside tarfile, zipfile?

    python benchmarks/indexed_tar.py [--members 100000] [--bytes 1000]

Writes a tar and a zip (deflated) of that many members into a temporary folder and reads random ones, which lie in the
page cache. `first open` builds the index, `open` finds it beside the archive. Rounds are interleaved; medians. tarfile
walks all names for each look-up, so it gets fewer of them.
"""

import random
import tarfile
import tempfile
import time
import zipfile
from functools import partial
from pathlib import Path

from harness import arguments, in_turns, machine, medians, seconds, write_tar

from headrace.dropins.indexed_tar import IndexedTar
from headrace.dropins.indexed_zip import IndexedZip

LOOKUPS, SLOW_LOOKUPS = 20_000, 40


def write_zip(path, members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members:
            archive.writestr(name, content)


def each(use, names):
    """Return the seconds for each name."""
    return seconds(lambda: [use(name) for name in names]) / len(names)


def open_tar(path):
    tar = tarfile.open(path)  # noqa: SIM115  # the caller closes it
    tar.getmembers()
    return tar


def round_of(path, kind, reference, names):
    """Return seconds: our first opening, then opening, look-up and read of ours and of the reference."""
    Path(f"{path}.headrace").unlink(missing_ok=True)
    first, own_open = (seconds(lambda: kind(path).close()) for _ in range(2))
    with kind(path) as own:
        own_uses = each(own.getmember, names), each(own.read, names)
    begin = time.perf_counter()
    with reference(path) as other:
        open_s = time.perf_counter() - begin
        if isinstance(other, tarfile.TarFile):
            find, read, names = other.getmember, lambda name: other.extractfile(name).read(), names[:SLOW_LOOKUPS]
        else:
            find, read = other.getinfo, other.read
        return first, own_open, *own_uses, open_s, each(find, names), each(read, names)


def main():
    args = arguments(__doc__, members=100_000, bytes={"type": int, "default": 1000, "help": "of each member"}, rounds=5)
    draw = random.Random(0)
    names = [f"scene_{number // 100:05d}/images/frame_{number:07d}_rgb.png" for number in range(args.members)]
    print(f"{machine()}\n{args.members:,} members of {args.bytes:,} bytes, medians of {args.rounds} rounds")
    with tempfile.TemporaryDirectory() as folder:
        kinds = {"tar": (IndexedTar, open_tar, write_tar), "zip": (IndexedZip, zipfile.ZipFile, write_zip)}
        cases = {}
        for suffix, (kind, reference, write) in kinds.items():
            path, content = Path(folder, f"a.{suffix}"), draw.randbytes(args.bytes)
            write(path, ((name, content) for name in names))
            cases[suffix] = partial(round_of, path, kind, reference, draw.choices(names, k=LOOKUPS))
        for suffix, (first, *figures) in medians(in_turns(cases, args.rounds)).items():
            print(f"\n{'':14}{kinds[suffix][0].__name__:>14}{suffix + 'file':>14}")
            print(f"{'first open':14}{first * 1e3:11.1f} ms{figures[3] * 1e3:11.1f} ms")
            for number, (what, scale, unit) in enumerate(
                (("open", 1e3, "ms"), ("lookup", 1e6, "us"), ("read", 1e6, "us"))
            ):
                ours, theirs = figures[number] * scale, figures[number + 3] * scale
                print(f"{what:14}{ours:11.1f} {unit}{theirs:11.1f} {unit}{theirs / ours:9.1f} x")


if __name__ == "__main__":
    main()
