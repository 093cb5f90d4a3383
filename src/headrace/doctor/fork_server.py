"""Python's fork server, which hands its own environment, and whatever it has loaded, on to each worker."""

from __future__ import annotations

import multiprocessing
import sys


def end_fork_server() -> None:
    """Ends it, so that the next worker starts one in the environment of then. One that has workers is left alone, since
    they end with it; Python has no public way, and where it has no such way either nothing happens."""
    module = sys.modules.get("multiprocessing.forkserver")
    if module is None or multiprocessing.active_children():
        return
    stop = getattr(getattr(module, "_forkserver", None), "_stop", None)
    if stop is not None:
        stop()
