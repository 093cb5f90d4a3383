"""Fewer threads: torch's, OpenMP's and OpenCV's, in the trainer and in workers.

OpenMP, MKL and OpenBLAS read environment variables when they are loaded, which the doctor sets before the command
starts (prove/variables.py). This is what must be said inside: a script may have asked for more, and a fork inherits.
"""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any, Callable

from .applied import Applied

if TYPE_CHECKING:
    from ..probe import Probe


def install(probe: Probe, most: dict[str, int], applied: Applied) -> None:
    """`most` has the threads of a `trainer` and of a `worker`; one that is missing is left alone."""
    limit = _Limit(probe, most, applied)
    probe.when_imported("torch", limit.watch_torch)
    probe.when_imported("cv2", limit.watch_opencv)
    for module in ("torch.utils.data._utils.worker", "torchdata.stateful_dataloader.worker"):
        probe.when_imported(module, limit.watch_workers)


class _Limit:
    """What this process may have at most: it is a trainer until it turns out to be a worker."""

    def __init__(self, probe: Probe, most: dict[str, int], applied: Applied) -> None:
        self._probe = probe
        self._most = most
        self._applied = applied
        self._role = "trainer"
        self._set: dict[str, Callable[[int], None]] = {}
        """How the libraries that are there take their number of threads, by name."""

    def watch_torch(self, _: Probe, torch: Any) -> None:
        self._watch("torch", torch, "set_num_threads")

    def watch_opencv(self, _: Probe, cv2: Any) -> None:
        self._watch("OpenCV", cv2, "setNumThreads")

    def watch_workers(self, probe: Probe, worker: Any) -> None:
        probe.patches.replace(worker, "_worker_loop", self._in_worker)

    def _watch(self, library: str, module: Any, name: str) -> None:
        self._set[library] = getattr(module, name)
        self._probe.patches.replace(module, name, self._bounded)
        self._apply(library)

    def _bounded(self, original: Callable[[int], None]) -> Callable[[int], None]:
        @functools.wraps(original)
        def set_threads(threads: int) -> None:
            most = self._most.get(self._role)
            # Below 1 OpenCV takes it for something else; what is no number is the library's to refuse.
            is_more = type(threads) is int and most is not None and not 0 < threads <= most
            original(most if is_more and most is not None else threads)

        return set_threads

    def _in_worker(self, original: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(original)
        def _worker_loop(*args: Any, **kwargs: Any) -> None:
            self._role = "worker"
            for library in self._set:
                self._apply(library)
            original(*args, **kwargs)

        return _worker_loop

    def _apply(self, library: str) -> None:
        most = self._most.get(self._role)
        if most is None:
            return
        try:
            self._set[library](most)
        except Exception as error:
            self._probe.fault(f"remedy threads: {library}", error)
            return
        if "torch" in sys.modules:  # before it nothing is written
            self._applied.took(f"{library}: {most} in a {self._role}")
