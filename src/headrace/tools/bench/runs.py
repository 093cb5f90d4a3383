"""One run as a process of its own, so that memory and CPU time are its own: prints one line of JSON.

python -m headrace.tools.bench.runs '{"loader": "headrace", "round": 0, "parent": PID, "settings": {…}}'
"""

from __future__ import annotations

import ctypes
import io
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from typing import Any

from headrace.bench.measure import ProcessMeter, measure
from headrace.errors import HeadraceError
from headrace.tools.bench.settings import Settings, window

PR_SET_PDEATHSIG = 1  # linux/prctl.h

BatchSizes = Callable[[Settings, int], Iterator[int]]


def loaders(name: str) -> BatchSizes:
    """Import one loader and nothing of the other."""
    if name == "headrace":
        from headrace.bench import own

        return own.batch_sizes
    if name == "yours":
        from headrace.tools.bench import against

        return against.batch_sizes
    if name == "torch":
        from headrace.bench import peer

        return peer.batch_sizes
    from headrace.tools.bench import peer

    return peer.side(name)


def run(task: dict[str, Any]) -> dict[str, Any]:
    """Measure the run that `task` describes, on as many cores as it has threads."""
    settings = Settings(**task["settings"])
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: settings.threads])
    start = partial(_trained, partial(loaders(task["loader"]), settings, task["round"]), settings.step_ms / 1e3)
    if task.get("only_check"):
        next(start())
        return {}
    return asdict(measure(start, window(settings), ProcessMeter()))


def _trained(start: Callable[[], Iterator[int]], step_s: float) -> Iterator[int]:
    """Each batch, and after it a step that waits for its device."""
    for size in start():
        yield size
        if step_s:
            time.sleep(step_s)


def main() -> None:
    task = json.loads(sys.argv[1])
    _end_with(task["parent"])
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library, or a loader of the user's, prints is no answer
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)  # or it would come at the end, after what the run ended with
    try:
        print(json.dumps(run(task)), file=answer, flush=True)
    except HeadraceError as error:
        sys.exit(str(error))


def _end_with(parent: int) -> None:
    """Let the kernel end this process when the one that started it is killed, however hard."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before the kernel was asked
        sys.exit(f"process {parent}, which asked for this run, has ended")


if __name__ == "__main__":
    main()
