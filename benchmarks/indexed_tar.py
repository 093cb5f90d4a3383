"""How long does it take to open an archive of many members, and to find and read one of them, beside tarfile, zipfile?

    python benchmarks/indexed_tar.py [--members 100000] [--bytes 1000]

Writes a tar and a zip (deflated) of that many members into a temporary folder and reads random ones, which lie in the
page cache. `first open` builds the index, `open` finds it beside the archive. Rounds are interleaved; medians. tarfile
walks all names for each look-up, so it gets fewer of them.
"""

from __future__ import annotations

import argparse
import io
import random
import statistics
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from headrace.dropins.indexed_tar import IndexedTar
from headrace.dropins.indexed_zip import IndexedZip
from headrace.tools.bench.comparison import environment

LOOKUPS, SLOW_LOOKUPS = 20_000, 40
Use = Callable[[str], Any]


def name_of(number: int) -> str:
    return f"scene_{number // 100:05d}/images/frame_{number:07d}_rgb.png"


def write_tar(path: Path, names: Sequence[str], content: bytes) -> None:
    with tarfile.open(path, "w") as tar:
        for name in names:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))


def write_zip(path: Path, names: Sequence[str], content: bytes) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in names:
            archive.writestr(name, content)


def seconds(work: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def each(use: Callable[[str], Any], names: Sequence[str]) -> float:
    """Seconds for each name."""
    return seconds(lambda: [use(name) for name in names]) / len(names)


def open_reference(path: Path) -> tarfile.TarFile | zipfile.ZipFile:
    if path.suffix == ".zip":
        return zipfile.ZipFile(path)
    tar = tarfile.open(path)  # noqa: SIM115  # the caller closes it
    tar.getmembers()
    return tar


def reference_uses(reference: tarfile.TarFile | zipfile.ZipFile) -> tuple[Use, Use, int]:
    """How it looks a member up, how it reads one, and how many times there is time for."""
    if isinstance(reference, zipfile.ZipFile):
        return reference.getinfo, reference.read, LOOKUPS
    return reference.getmember, lambda name: reference.extractfile(name).read(), SLOW_LOOKUPS  # type: ignore[union-attr]


def one_round(path: Path, names: Sequence[str], rng: random.Random) -> dict[str, float]:
    """Seconds for each thing that is done, by what does it."""
    kind = IndexedZip if path.suffix == ".zip" else IndexedTar
    Path(f"{path}.headrace").unlink(missing_ok=True)
    figures = {"own first open": seconds(lambda: kind(path).close()), "own open": seconds(lambda: kind(path).close())}
    wanted = rng.choices(names, k=LOOKUPS)
    with kind(path) as own:
        figures["own lookup"] = each(own.getmember, wanted)
        figures["own read"] = each(own.read, wanted)
    begin = time.perf_counter()
    with open_reference(path) as reference:
        figures["reference open"] = time.perf_counter() - begin
        find, read, count = reference_uses(reference)
        figures["reference lookup"] = each(find, wanted[:count])
        figures["reference read"] = each(read, wanted[:count])
    return figures


def show(path: Path, figures: Mapping[str, float]) -> None:
    reference = "zipfile" if path.suffix == ".zip" else "tarfile"
    own = "IndexedZip" if path.suffix == ".zip" else "IndexedTar"
    print(f"\n{'':14}{own:>14}{reference:>14}")
    print(f"{'first open':14}{figures['own first open'] * 1e3:11.1f} ms{figures['reference open'] * 1e3:11.1f} ms")
    for what, scale, unit in (("open", 1e3, "ms"), ("lookup", 1e6, "us"), ("read", 1e6, "us")):
        ours, theirs = figures[f"own {what}"], figures[f"reference {what}"]
        print(f"{what:14}{ours * scale:11.1f} {unit}{theirs * scale:11.1f} {unit}{theirs / ours:9.1f} x")


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("--members", type=int, default=100_000)
    ask.add_argument("--bytes", type=int, default=1000, help="of each member")
    ask.add_argument("--rounds", type=int, default=5)
    options = ask.parse_args()
    rng = random.Random(0)
    names = [name_of(number) for number in range(options.members)]
    machine = environment()
    print(f"{machine.cpu}, {machine.cores} cores, Python {machine.python}")
    print(f"{options.members:,} members of {options.bytes:,} bytes, medians of {options.rounds} rounds")
    with tempfile.TemporaryDirectory() as folder:
        archives = [Path(folder) / "a.tar", Path(folder) / "a.zip"]
        for path, write in zip(archives, (write_tar, write_zip), strict=True):
            write(path, names, rng.randbytes(options.bytes))
        rounds = [[one_round(path, names, rng) for path in archives] for _ in range(options.rounds)]
        for number, path in enumerate(archives):
            figures = {what: statistics.median(both[number][what] for both in rounds) for what in rounds[0][number]}
            show(path, figures)


if __name__ == "__main__":
    main()
