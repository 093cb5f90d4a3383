"""Hooks on a process: start, forks, errors, saved files and end. Without an `end` record, it was killed."""

from __future__ import annotations

import atexit
import functools
import multiprocessing.process
import os
import re
import sys
import traceback
from types import ModuleType
from typing import Any, Callable

from ..evidence_file import EvidenceFile, LastRecords
from ..look.objects import class_name
from ..patches import Fault, Function, Patches
from ..settings import SessionClock


def install_exit(last: LastRecords, _: ModuleType) -> None:
    """Write the end of any Python process; one that fails before importing torch reports the error."""
    atexit.register(_at_exit, last)


def install_forks(patches: Patches, forking: Callable[[], None], fault: Fault, os: ModuleType) -> None:
    """Hook forks, but not by os.register_at_fork, whose callbacks would swallow exceptions such as Ctrl-C."""

    def fork(original: Function) -> Any:
        try:
            forking()
        except Exception as error:
            fault("fork", error)
        return original()

    patches.around(os, "fork", fork)
    patches.around(os, "forkpty", fork)


def install_torch(
    patches: Patches,
    evidence: EvidenceFile,
    last: LastRecords,
    clock: SessionClock,
    write_facts: Callable[[], None],
    torch: Any,
) -> None:
    """Write the `torch` record, and hook what ends the process: most processes of a shell script do not train."""
    evidence.write(("torch", clock.now_us(), {"version": torch.__version__, "cuda": torch.version.cuda}))
    last.add(write_facts)

    def end_process(original: Function, kind: Any, error: Any, trace: Any) -> Any:
        last.failed(error)
        return original(kind, error, trace)

    patches.around(sys, "excepthook", end_process)
    atexit.register(_at_exit, last)  # again: it then runs before earlier functions, which may hang


def install_children(patches: Patches, last: LastRecords, util: Any) -> None:
    """Write the end of a multiprocessing child, which exits through finalisers, without atexit.

    A forked child clears inherited finalisers before its after-fork functions run; a spawned child has no after-fork
    functions.
    """

    def register(last: LastRecords) -> None:
        util.Finalize(None, _at_exit, args=(last,), exitpriority=0)

    def make(original: Any) -> Any:
        # From Python 3.13 on, finalisers run too late to see the error, but multiprocessing prints it through this
        # function.
        @functools.wraps(original)
        def print_exc(*args: Any, **kwargs: Any) -> Any:
            error = sys.exc_info()[1]
            if error is not None and sys._getframe(1).f_globals.get("__name__") == "multiprocessing.process":
                last.failed(error)
            return original(*args, **kwargs)

        return print_exc

    register(last)
    util.register_after_fork(last, register)
    patches.replace(traceback, "print_exc", make)


def _at_exit(last: LastRecords) -> None:
    """Write how the process ends.

    In a multiprocessing child, the error that ends it is still propagating, and is printed without a hook. Elsewhere
    another excepthook may have replaced ours. In interactive mode, an error ends nothing.
    """
    error = sys.exc_info()[1] or (None if hasattr(sys, "ps1") else getattr(sys, "last_value", None))
    if isinstance(error, BaseException) and not isinstance(error, SystemExit):
        last.failed(error)
    last.write()


def write_facts(evidence: EvidenceFile, clock: SessionClock, used: set[str]) -> None:
    """Write facts that only the process itself knows. Costs a millisecond. `used`: libraries that it has called."""
    torch = sys.modules.get("torch")
    if torch is not None:
        evidence.write_last(("facts", clock.now_us(), {**_threads(used, torch), "device": _device(torch)}))


def worker_facts() -> dict[str, Any]:
    """Return the facts of a worker whose loop has begun, and told torch's public `get_worker_info()` what it is."""
    info: Any = sys.modules["torch.utils.data"].get_worker_info()
    process = multiprocessing.process.current_process()
    return {
        "id": info.id,
        "parent": os.getppid(),
        "dataset": class_name(type(info.dataset)),
        # Start method of this process, or the default if its loader had no context of its own.
        "start_method": getattr(process, "_start_method", None) or multiprocessing.get_start_method(allow_none=True),
    }


_OMP_THREADS = re.compile(r"^\s*omp_get_max_threads\(\)\s*:\s*(\d+)", re.MULTILINE)


def _threads(used: set[str], torch: ModuleType | Any) -> dict[str, Any]:
    cv2: Any = sys.modules.get("cv2") if "cv2" in used else None
    return {
        "torch_threads": _asked(torch.get_num_threads),
        "omp_threads": _asked(lambda: int(_OMP_THREADS.findall(torch.__config__.parallel_info())[0])),
        "opencv_threads": None if cv2 is None else _asked(cv2.getNumThreads),
    }


def _device(torch: ModuleType | Any) -> str | None:
    """Return the name of the CUDA device, without creating a context."""
    return _asked(torch.cuda.get_device_name) if torch.cuda.is_initialized() else None


def _asked(ask: Callable[[], Any]) -> Any:
    """Return `ask()`, or None on failure: after a device error, or in a partly imported module."""
    try:
        return ask()
    except Exception:
        return None
