"""One run of one loader in a process of its own, and the rounds of such runs."""

from __future__ import annotations

import ctypes
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import torch  # noqa: F401  # the Loader needs it: imported here, as the peer does, before the clock starts

import headrace as hr
from headrace.errors import HeadraceError
from headrace.tools.bench.settings import CROP_PX, FLIP, BenchSettings, RunWindow, samples, window

# -- from bench/processes.py: CPU time and memory of a process and all its descendants, from Linux's /proc.


PROC = Path("/proc")
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def tree(root: int, *, proc: Path = PROC) -> list[int]:
    """List the live process `root` and its descendants."""
    children: dict[int, list[int]] = {}
    for folder in proc.iterdir():
        if folder.name.isdigit() and (fields := _stat_fields(folder)) is not None:
            children.setdefault(int(fields[1]), []).append(int(folder.name))
    found = [root]
    for pid in found:  # grows as it goes
        found += children.get(pid, [])
    return found


def cpu_s(pids: list[int], *, proc: Path = PROC) -> float:
    """Sum user and system time, in seconds, of these processes and of children that they have already reaped."""
    all_fields = (_stat_fields(proc / str(pid)) for pid in pids)
    return sum(int(ticks) for fields in all_fields if fields for ticks in fields[11:15]) / TICKS_PER_S


def pss_bytes(pids: list[int], *, proc: Path = PROC) -> int | None:
    """Sum the proportional set sizes, in which a page that n processes share counts 1/n for each.

    None where the kernel shows none of them.
    """
    sizes = [_pss_bytes(proc / str(pid)) for pid in pids]
    known = [size for size in sizes if size is not None]
    return sum(known) if known else None


def _stat_fields(folder: Path) -> list[str] | None:
    """Read the fields after the command's name, which may itself hold spaces and parentheses; None if it is gone."""
    try:
        return (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None


def _pss_bytes(folder: Path) -> int | None:
    try:
        lines = (folder / "smaps_rollup").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), None)


# -- from bench/measure.py: One run: a clock, CPU time and memory around an iterator of batches.


@dataclass(frozen=True, kw_only=True)
class BenchRun:
    """What one run of one loader took."""

    images: int  # counted, after the warm-up
    wall_s: float
    cpu_s: float  # of the process, its threads and its workers
    first_batch_s: float  # from opening the dataset to holding a batch; imports are not in it
    peak_memory_bytes: int | None  # proportional set size of the process and its workers, at its largest;
    # batches on their way from a worker, which no process has mapped, are not in it

    @property
    def images_per_s(self) -> float:
        return self.images / self.wall_s

    @property
    def cpu_s_per_1000(self) -> float:
        return 1000 * self.cpu_s / self.images


class RunMeter(Protocol):
    """Where a run's figures come from."""

    def now_s(self) -> float: ...
    def cpu_s(self) -> float: ...
    def memory_bytes(self) -> int | None: ...


class ProcessTreeMeter:
    """Measures this process and its descendants."""

    def now_s(self) -> float:
        return time.perf_counter()

    def cpu_s(self) -> float:
        return cpu_s(tree(os.getpid()))

    def memory_bytes(self) -> int | None:
        return pss_bytes(tree(os.getpid()))


def measure(start: Callable[[], Iterator[int]], window: RunWindow, meter: RunMeter) -> BenchRun:
    """Run `start()`, an iterator over the sizes of batches, through the window.

    Memory is read outside the counted part, while a batch is held, because reading it walks the page tables.
    """
    began_s = meter.now_s()
    sizes = start()
    next(sizes)
    first_batch_s = meter.now_s() - began_s
    peaks = [meter.memory_bytes(), *_each(sizes, window.warm - 1, meter.memory_bytes)]
    cpu_before_s, before_s = meter.cpu_s(), meter.now_s()
    images = sum(next(sizes) for _ in range(window.counted))
    wall_s, cpu_s = meter.now_s() - before_s, meter.cpu_s() - cpu_before_s
    peaks += _each(sizes, window.tail, meter.memory_bytes)
    return BenchRun(
        images=images,
        wall_s=wall_s,
        cpu_s=cpu_s,
        first_batch_s=first_batch_s,
        peak_memory_bytes=max((peak for peak in peaks if peak is not None), default=None),
    )


def _each(sizes: Iterator[int], count: int, then: Callable[[], int | None]) -> list[int | None]:
    found = []
    for _ in range(count):
        next(sizes)
        found.append(then())
    return found


# -- from bench/worker.py: One run as a process of its own, so that memory and CPU time are its own: prints one line
# of JSON.
#
# python -m headrace.tools.bench.runs '{"loader": "headrace", "round": 0, "parent": PID, "settings": {…}}'


PR_SET_PDEATHSIG = 1  # linux/prctl.h

BatchSizes = Callable[[BenchSettings, int], Iterator[int]]


def batch_sizes_of(name: str) -> BatchSizes:
    """Import one loader and nothing of the other."""
    if name == "headrace":
        return headrace_batch_sizes
    if name == "yours":
        from headrace.tools.bench import against

        return against.against_batch_sizes
    if name == "torch":
        from headrace.tools.bench import peer

        return peer.peer_batch_sizes
    from headrace.tools.bench import peer

    return peer.side(name)


def run(task: dict[str, Any]) -> dict[str, Any]:
    """Measure the run that `task` describes, on as many cores as it has threads."""
    settings = BenchSettings(**task["settings"])
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: settings.threads])
    start = partial(_trained, partial(batch_sizes_of(task["loader"]), settings, task["round"]), settings.step_ms / 1e3)
    if task.get("only_check"):
        next(start())
        return {}
    return asdict(measure(start, window(settings), ProcessTreeMeter()))


def _trained(start: Callable[[], Iterator[int]], step_s: float) -> Iterator[int]:
    """Each batch, and after it a step that waits for its device."""
    for size in start():
        yield size
        if step_s:
            time.sleep(step_s)


def main() -> None:
    task = json.loads(sys.argv[1])
    _end_with_parent(task["parent"])
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library, or a loader of the user's, prints is no answer
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)  # or it would come at the end, after what the run ended with
    try:
        print(json.dumps(run(task)), file=answer, flush=True)
    except HeadraceError as error:
        sys.exit(str(error))


def _end_with_parent(parent: int) -> None:
    """Let the kernel end this process when the one that started it is killed, however hard."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before the kernel was asked
        sys.exit(f"process {parent}, which asked for this run, has ended")


if __name__ == "__main__":
    main()


# -- from bench/rounds.py: Runs the workers in turn, Headrace and the peer after each other in every round, each in a
# process of its own.


MOST_LINES = 30
COMMAND = (sys.executable, "-m", "headrace.tools.bench.runs")


def run_rounds(settings: BenchSettings, *, command: Sequence[str] = COMMAND) -> Iterator[tuple[str, BenchRun]]:
    """Yield (loader, run) as each finishes: headrace, torch, headrace, torch, …

    Raises HeadraceError with the worker's own last words where one fails.
    """
    for round_number in range(settings.rounds):
        for loader in settings.loaders:
            yield loader, BenchRun(**one_run(settings, loader, round_number, command=command))


def one_run(
    settings: BenchSettings,
    loader: str,
    round_number: int,
    *,
    command: Sequence[str] = COMMAND,
    only_check: bool = False,
) -> dict[str, Any]:
    """What one worker found; nothing with `only_check`, where it takes a first batch and no more.

    Raises HeadraceError with the worker's own last words where it fails.
    """
    task = {"loader": loader, "round": round_number, "parent": os.getpid(), "only_check": only_check}
    task["settings"] = asdict(settings)
    found: dict[str, Any] = json.loads(_output([*command, json.dumps(task)], loader))
    return found


def _output(command: list[str], loader: str) -> str:
    """Run a worker in a process group of its own, which is ended with it however this call is left."""
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        output, errors = process.communicate()
    finally:
        _end_group(process)
    if process.returncode != 0:
        raise HeadraceError(_last_words(loader, process.returncode, errors.strip().splitlines()))
    return output.splitlines()[-1]


def _last_words(loader: str, status: int, lines: list[str]) -> str:
    """Of a loader of the user's all that it said, up to `MOST_LINES`: they know how to read it."""
    last = lines[-1] if lines else "it said nothing"
    if loader != "yours":
        return f"the {loader} run ended with exit code {status}: {last}"
    if last.startswith("--against "):
        return last
    return "\n".join([f"the run of your loader ended with exit code {status}: {last}", *lines[-MOST_LINES:-1]])


def _end_group(process: subprocess.Popen[str]) -> None:
    with suppress(ProcessLookupError):  # all of it may have ended by itself
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            stream.close()


# -- from bench/own.py: Headrace's side of the comparison.


def headrace_batch_sizes(settings: BenchSettings, round_number: int) -> Iterator[int]:
    """Open the dataset, load one long epoch, and yield the size of each batch while it is held."""
    data = hr.open(settings.path)
    normalize = hr.IMAGENET if settings.output == "float32" else None
    loader = hr.Loader(
        data.select(samples(len(data), settings)),
        {"image": hr.Image(dtype=settings.output, normalize=normalize)},
        view=hr.RandomResizedCrop(CROP_PX, flip=FLIP),
        batch_size=settings.batch_size,
        shuffle=True,
        seed=settings.seed + round_number,
        threads=settings.threads,
    )
    for batch in loader:
        yield len(batch["image"])
