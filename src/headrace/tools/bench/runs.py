"""Runs of one loader in a separate process, and rounds of such runs.

A separate process isolates memory and CPU time. It prints one line of JSON:

    python -m headrace.tools.bench.runs '{"loader": "headrace", "round": 0, "parent": PID, "settings": {…}}'
"""

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
from itertools import islice
from typing import Any

import psutil

from headrace.errors import HeadraceError
from headrace.tools.bench.settings import BenchSettings, RunWindow, headrace_batch_sizes, window

BatchSizes = Callable[[BenchSettings, int], Iterator[int]]

COMMAND = (sys.executable, "-m", "headrace.tools.bench.runs")
_MOST_LINES = 30
_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def tree(root: int) -> list[int]:
    """List the process `root` and its live descendants."""
    found = [root]
    with suppress(psutil.NoSuchProcess):
        found += [child.pid for child in psutil.Process(root).children(recursive=True)]
    return found


def cpu_s(pids: list[int]) -> float:
    """Sum user and system time in seconds of these processes and their reaped children."""
    total_s = 0.0
    for pid in pids:
        with suppress(psutil.NoSuchProcess):
            times = psutil.Process(pid).cpu_times()
            total_s += times.user + times.system + times.children_user + times.children_system
    return total_s


def pss_bytes(pids: list[int]) -> int | None:
    """Sum the proportional set sizes, in which a page shared by n processes counts 1/n for each.

    Returns None if the kernel reports none of them.
    """
    sizes = []
    for pid in pids:
        with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            sizes.append(psutil.Process(pid).memory_full_info().pss)
    return sum(sizes) if sizes else None


@dataclass(frozen=True, kw_only=True)
class BenchRun:
    """Measurements of one run of one loader."""

    images: int  # counted, after the warm-up
    wall_s: float
    cpu_s: float  # of the process, its threads and its workers
    first_batch_s: float  # from opening the dataset to the first batch, without imports
    peak_memory_bytes: int | None  # peak proportional set size of the process and its workers, without
    # batches in transit from a worker, which no process maps

    @property
    def images_per_s(self) -> float:
        return self.images / self.wall_s

    @property
    def cpu_s_per_1000(self) -> float:
        return 1000 * self.cpu_s / self.images


def measure(
    start: Callable[[], Iterator[int]],
    window: RunWindow,
    *,
    now_s: Callable[[], float] = time.perf_counter,
    used_s: Callable[[], float] = lambda: cpu_s(tree(os.getpid())),
    memory_bytes: Callable[[], int | None] = lambda: pss_bytes(tree(os.getpid())),
) -> BenchRun:
    """Run `start()`, an iterator over batch sizes, through the window.

    Memory is read outside the counted part, while a batch is alive, because reading it walks the page tables.
    """
    began_s = now_s()
    sizes = start()
    next(sizes)
    first_batch_s = now_s() - began_s
    peaks = [memory_bytes(), *(memory_bytes() for _ in islice(sizes, window.warm - 1))]
    used_before_s, before_s = used_s(), now_s()
    images = sum(islice(sizes, window.counted))
    wall_s, cpu_s = now_s() - before_s, used_s() - used_before_s
    peaks += [memory_bytes() for _ in islice(sizes, window.tail)]
    return BenchRun(
        images=images,
        wall_s=wall_s,
        cpu_s=cpu_s,
        first_batch_s=first_batch_s,
        peak_memory_bytes=max((peak for peak in peaks if peak is not None), default=None),
    )


def batch_sizes_of(name: str) -> BatchSizes:
    """Import one loader only, before the clock starts."""
    if name == "headrace":
        import torch  # noqa: F401  # the Loader needs it

        import headrace.loader  # noqa: F401

        return headrace_batch_sizes
    if name == "yours":
        from headrace.tools.bench.against import against_batch_sizes

        return against_batch_sizes
    from headrace.tools.bench.peer import torch_batch_sizes

    return torch_batch_sizes


def run(task: dict[str, Any]) -> dict[str, Any]:
    """Measure the run that `task` describes, on as many cores as threads."""
    settings = BenchSettings(**task["settings"])
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: settings.threads])
    start = partial(batch_sizes_of(task["loader"]), settings, task["round"])
    if task.get("only_check"):
        next(start())
        return {}
    return asdict(measure(start, window(settings)))


def main() -> None:
    task = json.loads(sys.argv[1])
    # The kernel kills this process when its parent dies, even by SIGKILL.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != task["parent"]:  # the parent died before prctl
        sys.exit(f"process {task['parent']}, which asked for this run, has ended")
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # output of libraries and user code must not mix with the answer
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)  # otherwise it would follow the final error
    try:
        print(json.dumps(run(task)), file=answer, flush=True)
    except HeadraceError as error:
        sys.exit(str(error))


def run_rounds(settings: BenchSettings, *, command: Sequence[str] = COMMAND) -> Iterator[tuple[str, BenchRun]]:
    """Yield (loader, run) as each run finishes: headrace, torch, headrace, torch, and so on.

    Raises HeadraceError with the worker's last output if a run fails.
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
    """Return one worker's measurements; an empty dict with `only_check`, which loads only the first batch.

    Raises HeadraceError with the worker's last output if it fails.
    """
    task = {"loader": loader, "round": round_number, "parent": os.getpid(), "only_check": only_check}
    task["settings"] = asdict(settings)
    found: dict[str, Any] = json.loads(_output([*command, json.dumps(task)], loader))
    return found


def _output(command: list[str], loader: str) -> str:
    """Run a worker in its own process group, which is killed on any exit from this function."""
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, start_new_session=True) as process:
        try:
            output, errors = process.communicate()
        finally:
            with suppress(ProcessLookupError):  # the group may have ended already
                os.killpg(process.pid, signal.SIGKILL)
    if process.returncode != 0:
        raise HeadraceError(_last_words(loader, process.returncode, errors.strip().splitlines()))
    return output.splitlines()[-1]


def _last_words(loader: str, status: int, lines: list[str]) -> str:
    """Quote a worker's last line; for a user's loader, quote up to `_MOST_LINES` lines of its output."""
    last = lines[-1] if lines else "it said nothing"
    if loader != "yours":
        return f"the {loader} run ended with exit code {status}: {last}"
    if last.startswith("--against "):
        return last
    return "\n".join([f"the run of your loader ended with exit code {status}: {last}", *lines[-_MOST_LINES:-1]])


if __name__ == "__main__":
    main()
