"""What does `headrace stage` take beside `cp -r`, which neither checks nor goes on?

    python benchmarks/stage.py SRC DST [--rounds 3] [--threads N]

SRC is a folder or a file, DST a folder that is not there yet, such as /dev/shm/x or one on a local disk. Each round
copies by `cp -r`, stages, stages again (all is there), stages with `--verify`, and removes both. Medians of seconds,
MB/s, and the ratio to `cp`. SRC is read once before, so that all find it in the page cache as far as that reaches.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from headrace.data.staging import StageReport, sources_of, stage, unstage


def timed_s(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("source", type=Path)
    ask.add_argument("to", type=Path)
    ask.add_argument("--rounds", type=int, default=3)
    ask.add_argument("--threads", type=int)
    given = ask.parse_args()
    sources, to, by_cp = sources_of([str(given.source)]), str(given.to), given.to.with_name(given.to.name + "-cp")

    def staged(*, verify: bool = False) -> StageReport:
        return stage(sources, to=to, threads=given.threads, verify=verify)

    found = staged()
    unstage(to)
    times: dict[str, list[float]] = {"cp -r": [], "stage": [], "again": [], "again, --verify": []}
    for _ in range(given.rounds):
        times["cp -r"].append(timed_s(lambda: subprocess.run(["cp", "-r", given.source, by_cp], check=True)))
        shutil.rmtree(by_cp) if by_cp.is_dir() else by_cp.unlink()
        times["stage"].append(timed_s(staged))
        times["again"].append(timed_s(staged))
        times["again, --verify"].append(timed_s(lambda: staged(verify=True)))
        unstage(to)
    plain = statistics.median(times["cp -r"])
    print(f"{found.files:,} files of {found.bytes / 1e6:,.0f} MB, medians of {given.rounds} rounds")
    for name, taken in times.items():
        median = statistics.median(taken)
        print(f"{name:16} {median:8.2f} s  {found.bytes / 1e6 / median:8,.0f} MB/s  {median / plain:5.2f} × cp")


if __name__ == "__main__":
    main()
