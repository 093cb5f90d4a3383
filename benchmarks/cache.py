"""What does a cache gain from the second epoch on, how much of a limit is hit, and what does a miss cost?

    python benchmarks/cache.py PHOTOS [--side 256] [--threads 2] [--rounds 5] [--folder FOLDER] [--passes 1]

PHOTOS is a folder of images (benchmarks/make_photos.py makes one). Decoded images, shrunk and cropped at the centre, as
uint8, in shuffled epochs. Each round takes, one after the other: an epoch without a cache; for RAM and for a disk
(`--folder`, default: a temporary one) the first epoch, which keeps every sample, and the second, which finds them all;
and an epoch whose cache is full and holds none of its samples. Printed are medians over rounds of images/s, of
microseconds of CPU time an image, and of each round's ratios; then the share of hits in three later epochs at a limit
of 35 % of the data. `--passes` repeats each epoch, for folders so small that one takes less than a second.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections import defaultdict
from pathlib import Path

import headrace as hr
from headrace.tools.bench.comparison import environment

LIMIT = 0.35
LATER_EPOCHS = 3


class Case:
    """One set of arguments, and what its epochs took."""

    def __init__(self, data: hr.Dataset, side: int, threads: int) -> None:
        self._data, self._side, self._threads = data, side, threads

    def loader(self, cache: str | None) -> hr.Loader:
        return hr.Loader(
            self._data,
            {"image": hr.Image()},
            view=[hr.Resize(self._side), hr.CenterCrop(self._side)],
            batch_size=64,
            shuffle=True,
            threads=self._threads,
            output="numpy",
            cache=cache,
        )

    @property
    def sample_bytes(self) -> int:
        return 3 * self._side**2

    @property
    def data_bytes(self) -> int:
        return len(self._data) * self.sample_bytes


def timed(loader: hr.Loader, passes: int = 1) -> tuple[float, float]:
    """Seconds and CPU seconds of an epoch."""
    since, cpu_since = time.perf_counter(), time.process_time()
    for _ in range(passes):
        for _ in loader:
            pass
    return (time.perf_counter() - since) / passes, (time.process_time() - cpu_since) / passes


def one_round(case: Case, folder: Path, passes: int) -> dict[str, tuple[float, float]]:
    found = {"no cache": timed(case.loader(None), passes)}
    room = 2 * case.data_bytes
    for name, place in (("RAM", "ram"), ("disk", f"disk:{folder}")):
        loader = case.loader(f"{place}:{room}B")
        found[f"{name}, first epoch"] = timed(loader)
        found[f"{name}, second epoch"] = timed(loader, passes)
        assert loader.stats().cache.hit_rate == 1
        del loader
        for file in folder.iterdir():
            file.unlink()
    full = case.loader(f"ram:{full_bytes(case)}B")
    timed(full)
    found["full, nothing of it found"] = timed(full, passes)
    assert full.stats().cache.hits <= 1
    return found


def full_bytes(case: Case) -> int:
    """A limit that leaves room for less than two samples."""
    index = 4096 * (3 + case.data_bytes // case.sample_bytes * 32 // 4096)
    return index + case.sample_bytes


def hit_rates(case: Case, folder: Path) -> list[float]:
    loader = case.loader(f"disk:{folder}:{int(LIMIT * case.data_bytes)}B")
    timed(loader)
    rates = []
    for _ in range(LATER_EPOCHS):
        timed(loader)
        rates.append(loader.stats().cache.hit_rate)
    return rates


def report(rounds: list[dict[str, tuple[float, float]]], images: int) -> None:
    columns = defaultdict(list)
    for each in rounds:
        for name, (wall_s, cpu_s) in each.items():
            columns[name].append((images / wall_s, cpu_s / images * 1e6))
    print(f"{'':<28}{'images/s':>10}{'CPU µs/image':>15}")
    for name, values in columns.items():
        rate, cpu = (statistics.median(column) for column in zip(*values, strict=True))
        print(f"{name:<28}{rate:>10,.0f}{cpu:>15,.1f}")
    print(f"\n{'ratio, median (least, most)':<44}{'time':>24}{'CPU time':>24}")
    for label, slow, fast in (
        ("second epoch quicker than the first, RAM", "RAM, first epoch", "RAM, second epoch"),
        ("second epoch quicker than the first, disk", "disk, first epoch", "disk, second epoch"),
        ("a miss in a full cache, to none", "full, nothing of it found", "no cache"),
        ("a miss that is kept in RAM, to none", "RAM, first epoch", "no cache"),
        ("a miss that is kept on disk, to none", "disk, first epoch", "no cache"),
    ):
        texts = [ratio_text([each[slow][kind] / each[fast][kind] for each in rounds]) for kind in (0, 1)]
        print(f"{label:<44}{texts[0]:>24}{texts[1]:>24}")


def ratio_text(ratios: list[float]) -> str:
    return f"{statistics.median(ratios):.3f} ({min(ratios):.3f}, {max(ratios):.3f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photos", type=Path)
    parser.add_argument("--side", type=int, default=256)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--passes", type=int, default=1)
    parser.add_argument("--folder", type=Path)
    given = parser.parse_args()
    data = hr.open(given.photos)
    case = Case(data, given.side, given.threads)
    print(environment())
    print(f"{len(data):,} images of {given.photos}, {given.threads} threads, {given.rounds} rounds\n")
    timed(case.loader(None))  # the files come from the page cache from now on
    with tempfile.TemporaryDirectory(dir=given.folder, prefix="headrace-cache-") as folder:
        report([one_round(case, Path(folder), given.passes) for _ in range(given.rounds)], len(data))
        rates = ", ".join(f"{rate:.2%}" for rate in hit_rates(case, Path(folder)))
    print(f"\nhits in later epochs at a limit of {LIMIT:.0%} of the data: {rates}")


if __name__ == "__main__":
    main()
