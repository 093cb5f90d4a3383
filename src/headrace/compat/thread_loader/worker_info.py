"""What `torch.utils.data.get_worker_info()` answers in the threads of a ThreadDataLoader.

torch keeps one answer for a process, in a global that its function returns, and datasets import that function by name.
So its code is replaced once, on the first thread that has something to tell, by code that asks this thread first.
Everywhere else, worker processes of a DataLoader included, the answer stays torch's.
"""

from __future__ import annotations

import threading
import warnings
from inspect import signature
from typing import Any

from torch.utils.data import Dataset, IterableDataset, get_worker_info
from torch.utils.data._utils.worker import WorkerInfo

_info = threading.local()


class ReaderInfo(WorkerInfo):
    """What `get_worker_info()` says in the one thread that reads an iterable dataset; it notes what it is asked for."""

    __slots__ = ()

    def __getattribute__(self, name: str) -> Any:
        if name in ("id", "num_workers"):
            _asked().add(name)
        return super().__getattribute__(name)


def _asked() -> set[str]:
    if not hasattr(_info, "asked"):
        _info.asked = set()
    found: set[str] = _info.asked
    return found


def warn_of_lost_shards(workers: int) -> None:
    """Warn where the dataset that this thread has read took the part of worker 0 as one of several would have it.

    `workers` is the loader's `num_workers`. Code that has cut shards for as many, and takes that of its id, has read a
    part of its data; code that asks how many workers there are has read all.
    """
    if workers > 1 and _asked() == {"id"}:
        warnings.warn(
            "the iterable dataset asked get_worker_info() for its id, and not for num_workers: one thread reads it, as "
            f"worker 0 of 1, so shards that were cut for {workers} workers were read in part; cut them by "
            "get_worker_info().num_workers, or pass num_workers=1",
            stacklevel=2,
        )


def worker_info(worker: int, workers: int, seed: int, dataset: Dataset[Any]) -> WorkerInfo:
    """Return what `get_worker_info()` says in one of `workers`; `seed` is the loader's with the worker's number."""
    info: Any = ReaderInfo if isinstance(dataset, IterableDataset) else WorkerInfo
    more = {"worker_method": "thread"} if "worker_method" in signature(WorkerInfo).parameters else {}
    return info(id=worker, num_workers=workers, seed=seed, dataset=dataset, **more)  # type: ignore[no-any-return]


def present_worker_info() -> WorkerInfo | None:
    """Return what `torch.utils.data.get_worker_info()` gives in this thread of a ThreadDataLoader; None elsewhere."""
    return getattr(_info, "value", None)


def _get_worker_info() -> WorkerInfo | None:
    """Return what DataLoader keeps for this process, unless this is a thread of a ThreadDataLoader.

    Only its code is used, inside torch's function of that name and with its globals: datasets import the function by
    name, and what it returns is one value for a process.
    """
    import sys

    from headrace.compat.thread_loader.worker_info import present_worker_info

    # default_collate asks as well, and puts tensors into shared memory wherever there is a worker.
    collates = sys._getframe(1).f_globals.get("__name__") == "torch.utils.data._utils.collate"
    own = None if collates else present_worker_info()
    return _worker_info if own is None else own  # type: ignore[name-defined]  # noqa: F821  # torch's global


def tell_worker_info(info: WorkerInfo) -> None:
    """Make `get_worker_info()` return `info` in this thread, as it does in DataLoader's processes."""
    get_worker_info.__code__ = _get_worker_info.__code__
    _info.value, _info.asked = info, set()
