"""One run of one loader in a process of its own, and the rounds of such runs.

A process of its own has memory and CPU time of its own. It prints one line of JSON:

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
    """Sum user and system time, in seconds, of these processes and of children that they have already reaped."""
    total_s = 0.0
    for pid in pids:
        with suppress(psutil.NoSuchProcess):
            times = psutil.Process(pid).cpu_times()
            total_s += times.user + times.system + times.children_user + times.children_system
    return total_s


def pss_bytes(pids: list[int]) -> int | None:
    """Sum the proportional set sizes, in which a page that n processes share counts 1/n for each.

    None where the kernel shows none of them.
    """
    sizes = []
    for pid in pids:
        with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            sizes.append(psutil.Process(pid).memory_full_info().pss)
    return sum(sizes) if sizes else None


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


def measure(
    start: Callable[[], Iterator[int]],
    window: RunWindow,
    *,
    now_s: Callable[[], float] = time.perf_counter,
    used_s: Callable[[], float] = lambda: cpu_s(tree(os.getpid())),
    memory_bytes: Callable[[], int | None] = lambda: pss_bytes(tree(os.getpid())),
) -> BenchRun:
    """Run `start()`, an iterator over the sizes of batches, through the window.

    Memory is read outside the counted part, while a batch is held, because reading it walks the page tables.
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
    """Import one loader and nothing of the other, before the clock starts."""
    if name == "headrace":
        import torch  # noqa: F401  # the Loader needs it

        import headrace.loader  # noqa: F401

        return headrace_batch_sizes
    if name == "yours":
        from headrace.tools.bench.against import against_batch_sizes

        return against_batch_sizes
    from headrace.tools.bench.peer import SIDES, torch_batch_sizes

    return torch_batch_sizes if name == "torch" else SIDES[name]


def run(task: dict[str, Any]) -> dict[str, Any]:
    """Measure the run that `task` describes, on as many cores as it has threads."""
    settings = BenchSettings(**task["settings"])
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: settings.threads])
    start = partial(_trained, partial(batch_sizes_of(task["loader"]), settings, task["round"]), settings.step_ms / 1e3)
    if task.get("only_check"):
        next(start())
        return {}
    return asdict(measure(start, window(settings)))


def _trained(start: Callable[[], Iterator[int]], step_s: float) -> Iterator[int]:
    """Yield each batch, and after it wait as a step waits for its device."""
    for size in start():
        yield size
        if step_s:
            time.sleep(step_s)


def main() -> None:
    task = json.loads(sys.argv[1])
    # The kernel ends this process when the one that started it is killed, however hard.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != task["parent"]:  # it ended before the kernel was asked
        sys.exit(f"process {task['parent']}, which asked for this run, has ended")
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library, or a loader of the user's, prints is no answer
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)  # or it would come at the end, after what the run ended with
    try:
        print(json.dumps(run(task)), file=answer, flush=True)
    except HeadraceError as error:
        sys.exit(str(error))


def run_rounds(settings: BenchSettings, *, command: Sequence[str] = COMMAND) -> Iterator[tuple[str, BenchRun]]:
    """Yield (loader, run) as each finishes: headrace, torch, headrace, torch, and so on.

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
    """Return what one worker found; nothing with `only_check`, where it takes a first batch and no more.

    Raises HeadraceError with the worker's own last words where it fails.
    """
    task = {"loader": loader, "round": round_number, "parent": os.getpid(), "only_check": only_check}
    task["settings"] = asdict(settings)
    found: dict[str, Any] = json.loads(_output([*command, json.dumps(task)], loader))
    return found


def _output(command: list[str], loader: str) -> str:
    """Run a worker in a process group of its own, which is ended with it however this call is left."""
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, start_new_session=True) as process:
        try:
            output, errors = process.communicate()
        finally:
            with suppress(ProcessLookupError):  # all of it may have ended by itself
                os.killpg(process.pid, signal.SIGKILL)
    if process.returncode != 0:
        raise HeadraceError(_last_words(loader, process.returncode, errors.strip().splitlines()))
    return output.splitlines()[-1]


def _last_words(loader: str, status: int, lines: list[str]) -> str:
    """Quote a worker. Of a loader of the user's that is all it said, up to `_MOST_LINES`: they know how to read it."""
    last = lines[-1] if lines else "it said nothing"
    if loader != "yours":
        return f"the {loader} run ended with exit code {status}: {last}"
    if last.startswith("--against "):
        return last
    return "\n".join([f"the run of your loader ended with exit code {status}: {last}", *lines[-_MOST_LINES:-1]])


if __name__ == "__main__":
    main()
