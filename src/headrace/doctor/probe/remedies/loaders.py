"""Remedies for loaders: arguments of DataLoaders, prefetching to the device, limits of threads, and variables."""

from __future__ import annotations

import functools
import os
import sys
from typing import TYPE_CHECKING, Any, Callable

from ..hooks.dataloader import NUMBER

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..patches import Function
    from . import InjectedRemedy

ARGUMENTS = ("num_workers", "prefetch_factor", "persistent_workers", "pin_memory", "multiprocessing_context")
PREFETCH = 2
"""Batches in flight for each worker, where nothing else is said: DataLoader's own default."""
_CHANGED = "_headrace_changed"
"""Attribute of a DataLoader whose arguments are those that are wanted."""


def install_arguments(remedy: InjectedRemedy, changes: dict[str, dict[str, Any]]) -> None:
    """Change arguments of DataLoaders before they are first iterated; `changes` has them by the loader's number.

    The frameworks make theirs anew, but all of them come by DataLoader's own `__iter__`, or by the `_get_iterator` that
    it calls, as does a loader that has an `__iter__` of its own.
    """
    training, counter = remedy.training, remedy.training.counter
    opening: int | None = None

    def number_of(loader: Any) -> int | None:
        """Return the number that it has or will have in the evidence.

        None for a loader that is not counted there: one that another begins, or a dataset.
        """
        nonlocal opening
        if counter.opening is None or counter.opening == opening or not training.thread.is_its_thread():
            return None
        opening = counter.opening
        file, number = getattr(loader, NUMBER, (None, None))
        return number if file == training.evidence.path else counter.loaders

    @remedy.guarded
    def change_loader(loader: Any) -> None:
        number = number_of(loader)
        wanted = None if number is None else changes.get(str(number))
        if wanted is None or getattr(loader, _CHANGED, False):
            return
        object.__setattr__(loader, _CHANGED, True)
        why_not = objection(loader, wanted)
        if why_not:
            remedy.refused(f"loader {number}: {why_not}")
        else:
            remedy.took(f"loader {number}: {', '.join(change(loader, wanted))}")

    def begin(original: Function, loader: Any) -> Any:
        change_loader(loader)
        return original(loader)

    for method in ("__iter__", "_get_iterator"):
        remedy.around("torch.utils.data.dataloader", f"DataLoader.{method}", begin)
        remedy.around("torchdata.stateful_dataloader.stateful_dataloader", f"StatefulDataLoader.{method}", begin)


def objection(loader: Any, wanted: dict[str, Any]) -> str:
    """Say why the loader cannot have these arguments, by the checks of DataLoader itself; empty where it can."""
    unknown = sorted(set(wanted) - set(ARGUMENTS))
    if unknown:
        return f"expected arguments of {', '.join(ARGUMENTS)}, got {', '.join(unknown)}"
    if getattr(loader, "_iterator", None) is not None:
        return "its persistent workers run already"
    if not wanted.get("num_workers", loader.num_workers):
        of_workers = [name for name in ARGUMENTS[1:] if name != "pin_memory" and wanted.get(name)]
        if of_workers:
            return f"{', '.join(of_workers)} needs workers, and it has none"
    return ""


def change(loader: Any, wanted: dict[str, Any]) -> list[str]:
    """Set the arguments, and those that go with them, on a loader that takes no assignment any more; say which."""
    workers = wanted.get("num_workers", loader.num_workers)
    new = {name: wanted[name] for name in ARGUMENTS if name in wanted and name != "multiprocessing_context"}
    if not workers:
        loader.multiprocessing_context = None
        new.update(prefetch_factor=None, persistent_workers=False, timeout=0)
    elif new.get("prefetch_factor", loader.prefetch_factor) is None:
        new["prefetch_factor"] = PREFETCH
    said = []
    for name, value in new.items():
        if getattr(loader, name) != value:
            said.append(f"{name} {getattr(loader, name)} -> {value}")
            object.__setattr__(loader, name, value)
    context = wanted.get("multiprocessing_context")
    if context is not None:
        loader.multiprocessing_context = context
        said.append(f"multiprocessing_context -> {context}")
    return said or ["as it was"]


def install_device_prefetch(remedy: InjectedRemedy, _: bool) -> None:
    """Copy the next batch to the device while this one is trained on: headrace's DevicePrefetcher around a loader.

    Around every loader that is iterated to train from: in the training thread, with gradients, where CUDA is in use.
    """
    is_opening = False

    @remedy.guarded
    def prefetcher_of(begin: Callable[[], Iterator[Any]]) -> Any:
        import torch

        thread = remedy.training.thread
        if not thread.is_its_thread() or thread.is_fetching or not torch.is_grad_enabled():
            return None
        device = cuda_device(torch)
        if device is None:
            remedy.refused("no CUDA device is in use")
            return None
        if remedy.headrace is None:
            return None
        remedy.took(f"to {device}")
        return remedy.headrace.DevicePrefetcher(_LoaderPass(begin), device)

    def iter_(original: Function, loader: Any) -> Any:
        nonlocal is_opening
        prefetcher = None if is_opening else prefetcher_of(functools.partial(original, loader))
        if prefetcher is None:
            return original(loader)
        is_opening = True
        try:
            return iter(prefetcher)
        finally:
            is_opening = False

    remedy.around("torch.utils.data.dataloader", "DataLoader.__iter__", iter_)


def cuda_device(torch: Any) -> str | None:
    """Return the current device; None where this process has not begun to use any, and nothing of ours may begin it."""
    return f"cuda:{torch.cuda.current_device()}" if torch.cuda.is_initialized() else None


class _LoaderPass:
    """One pass of a loader, as something to iterate over."""

    def __init__(self, begin: Callable[[], Iterator[Any]]) -> None:
        self._begin = begin

    def __iter__(self) -> Iterator[Any]:
        return self._begin()


def install_environment(remedy: InjectedRemedy, wanted: dict[str, str]) -> None:
    """Say whether the variables that the doctor started the command with still hold where torch is imported.

    Libraries read them when they are loaded: nothing that is set later counts.
    """

    def check(_: Any) -> None:
        for name, value in wanted.items():
            if os.environ.get(name) == value:
                remedy.took(f"{name}={value}")
            else:
                remedy.refused(f"expected {name}={value} where torch is imported, got {os.environ.get(name)}")

    remedy.when_imported("torch", check)


def install_thread_limits(remedy: InjectedRemedy, most: dict[str, int]) -> None:
    """Limit threads: torch's, OpenMP's and OpenCV's, in the trainer and in workers.

    `most` has the threads of a `trainer` and of a `worker`; one that is missing is left alone. OpenMP, MKL and OpenBLAS
    read environment variables when they are loaded, which the doctor sets before the command starts. This is what must
    be said inside: a script may have asked for more, and a fork inherits.
    """
    role = "trainer"  # until the process turns out to be a worker
    setters: dict[str, Callable[[int], None]] = {}

    def bounded(original: Callable[[int], None], threads: int) -> None:
        limit = most.get(role)
        # Below 1 OpenCV takes it for something else; what is no number is the library's to refuse.
        is_more = type(threads) is int and limit is not None and not 0 < threads <= limit
        original(limit if is_more and limit is not None else threads)

    def apply(library: str) -> None:
        limit = most.get(role)
        if limit is None:
            return
        try:
            setters[library](limit)
        except Exception as error:
            remedy.fault(f"remedy threads: {library}", error)
            return
        if "torch" in sys.modules:  # before it nothing is written
            remedy.took(f"{library}: {limit} in a {role}")

    def watch(library: str, name: str, module: Any) -> None:
        setters[library] = getattr(module, name)
        remedy.patches.around(module, name, bounded)
        apply(library)

    def begin_worker(original: Function, *args: Any, **kwargs: Any) -> None:
        nonlocal role
        role = "worker"
        for library in setters:
            apply(library)
        original(*args, **kwargs)

    remedy.when_imported("torch", functools.partial(watch, "torch", "set_num_threads"))
    remedy.when_imported("cv2", functools.partial(watch, "OpenCV", "setNumThreads"))
    remedy.around("torch.utils.data._utils.worker", "_worker_loop", begin_worker)
    remedy.around("torchdata.stateful_dataloader.worker", "_worker_loop", begin_worker)
