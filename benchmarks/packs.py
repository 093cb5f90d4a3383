"""What does each form of a pack cost, and how many images a second does the Loader make of it?

    python benchmarks/packs.py PHOTOS [--images 1500] [--threads 2] [--rounds 5] [--short-side 256]

PHOTOS is a folder of photographs (make_photos.py). Packs lie in a temporary folder, in the page cache; packing time
includes its estimate. RandomResizedCrop(224) and flips to uint8; rounds are interleaved. Images per second are medians;
CPU time per image, with the kernel's, is the minimum, which a busy machine changes least.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path

import headrace as hr
from headrace.pack import Form, PackOptions, PackReport, pack
from headrace.tools.bench.comparison import environment

EPOCHS = 2


def run_epoch(loader: hr.Loader) -> tuple[float, float]:
    """Return seconds of the clock and of the process's CPU time."""
    clock, cpu = time.perf_counter(), time.process_time()
    for _ in loader:
        pass
    return time.perf_counter() - clock, time.process_time() - cpu


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("photos", type=Path)
    ask.add_argument("--images", type=int, default=1500)
    ask.add_argument("--threads", type=int, default=2)
    ask.add_argument("--rounds", type=int, default=5)
    ask.add_argument("--short-side", type=int, default=256)
    options = ask.parse_args()
    machine = environment()
    print(f"{machine.cpu}, {machine.cores} cores, load {os.getloadavg()[0]:.1f}, {options.threads} threads")
    opened = hr.open(options.photos)
    source = opened[: options.images]
    reports: dict[str, PackReport] = {}
    with tempfile.TemporaryDirectory() as name:
        data = {"originals": source}
        for form in Form:
            side = None if form is Form.lossless else options.short_side
            to = Path(name) / form
            reports[form] = pack(source, to, PackOptions(form=form, short_side=side), threads=options.threads)
            data[form] = hr.open(str(to / "shard-*.tar"))
        loaders = {
            form: hr.Loader(
                found, {"x": hr.Image(source="image")}, view=hr.RandomResizedCrop(224, flip=0.5), batch_size=128,
                output="numpy", threads=options.threads, seed=0,
            )
            for form, found in data.items()
        }  # fmt: skip
        rounds: dict[str, list[tuple[float, float]]] = {form: [] for form in loaders}
        for number in range(1 + options.rounds):  # the first fills the page cache
            for form, loader in loaders.items():
                spent = [run_epoch(loader) for _ in range(EPOCHS)]
                if number:
                    rounds[form] += spent
    read = next(iter(reports.values())).source_bytes
    print(f"{'':10}{'bytes/image':>12}{'packed MB/s':>12}{'images/s':>10}{'best':>9}{'CPU us/image':>14}")
    for form, spent in rounds.items():
        report = reports.get(form)
        size, rate = (read, "") if report is None else (report.bytes, f"{read / report.wall_s / 1e6:.0f}")
        speeds = [len(source) / clock for clock, _ in spent]
        cpu_us = min(cpu for _, cpu in spent) / len(source) * 1e6
        print(
            f"{form:10}{size / len(source):12,.0f}{rate:>12}{statistics.median(speeds):10,.0f}{max(speeds):9,.0f}"
            f"{cpu_us:14.1f}"
        )


if __name__ == "__main__":
    main()
