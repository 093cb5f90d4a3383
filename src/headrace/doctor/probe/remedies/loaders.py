"""Remedies for loaders: arguments of DataLoaders, prefetching to the device, and limits of threads."""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any, Callable

from ..hooks.dataloader import NUMBER
from ..patches import HookGuard

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..probe import Probe


# -- from doctor/probe/remedies/applied.py: Whether a remedy took effect in this process, and how often.


class AppliedRemedy:
    """Writes the `applied` records of docs/doctor/evidence.md: at once when the remedy takes effect for the first time,
    since a process may be killed, and with the count when the process ends."""

    def __init__(self, probe: Probe, key: str) -> None:
        self._probe = probe
        self._key = key
        self._texts: set[str] = set()
        self._count = 0
        self.guarded = HookGuard(probe, f"remedy {key}")
        """For the parts of the remedy: once any has raised, it is off, and says why."""
        self._process = probe.evidence.path
        probe.last.add(self._write_count)

    def took(self, text: str = "") -> None:
        """It took effect once more. `text` says in which way; each is written once."""
        self._own()
        self._count += 1
        if self._count == 1 or text not in self._texts:
            self._texts.add(text)
            self._write(text)

    def refused(self, why: str) -> None:
        """It cannot take effect here."""
        self._own()
        if why not in self._texts:
            self._texts.add(why)
            self._probe.evidence.write(("applied", self._probe.clock.now_us(), self._key, 0, why))

    def _own(self) -> None:
        """The child of a fork counts anew, into its own evidence."""
        if self._process != self._probe.evidence.path:
            self._process = self._probe.evidence.path
            self._texts.clear()
            self._count = 0

    def _write(self, text: str) -> None:
        self._probe.evidence.write(("applied", self._probe.clock.now_us(), self._key, self._count, text))

    def _write_count(self) -> None:
        self._own()
        if self._count:
            self._write("")


# -- from doctor/probe/remedies/loaders.py: Arguments of DataLoaders, changed before they are first iterated.


ARGUMENTS = ("num_workers", "prefetch_factor", "persistent_workers", "pin_memory", "multiprocessing_context")
PREFETCH = 2
"""Batches in flight for each worker, where nothing else is said: DataLoader's own default."""
_CHANGED = "_headrace_changed"
"""Attribute of a DataLoader whose arguments are those that are wanted."""


def install_arguments(probe: Probe, changes: dict[str, dict[str, Any]], applied: AppliedRemedy) -> None:
    """`changes` has the arguments by the loader's number in the evidence."""
    loaders = _Loaders(probe, changes, applied)
    modules = {
        "torch.utils.data.dataloader": "DataLoader",
        "torchdata.stateful_dataloader.stateful_dataloader": "StatefulDataLoader",
    }
    for module, name in modules.items():
        probe.when_imported(module, functools.partial(_replace_iter, loaders, name))


def _replace_iter(loaders: _Loaders, name: str, probe: Probe, module: Any) -> None:
    """Also what a loader calls that has an `__iter__` of its own."""
    for method in ("__iter__", "_get_iterator"):
        probe.patches.replace(getattr(module, name), method, loaders.iter)


class _Loaders:
    """The loaders of a process, by the order in which they are first iterated: the frameworks make theirs anew, but all
    of them come by DataLoader's own `__iter__`, or by the `_get_iterator` that it calls."""

    def __init__(self, probe: Probe, changes: dict[str, dict[str, Any]], applied: AppliedRemedy) -> None:
        self._probe = probe
        self._changes = changes
        self._applied = applied
        self._opening: int | None = None
        self._change = applied.guarded(self._change_loader)

    def iter(self, original: Callable[[Any], Any]) -> Callable[[Any], Any]:
        @functools.wraps(original)
        def begins(loader: Any) -> Any:
            self._change(loader)
            return original(loader)

        return begins

    def _change_loader(self, loader: Any) -> None:
        number = self._number(loader)
        wanted = None if number is None else self._changes.get(str(number))
        if wanted is None or getattr(loader, _CHANGED, False):
            return
        object.__setattr__(loader, _CHANGED, True)
        why_not = objection(loader, wanted)
        if why_not:
            self._applied.refused(f"loader {number}: {why_not}")
        else:
            self._applied.took(f"loader {number}: {', '.join(change(loader, wanted))}")

    def _number(self, loader: Any) -> int | None:
        """That it has or will have in the evidence; None for a loader that is not counted there: one that another
        begins, or a dataset."""
        training = self._probe.training
        if training.opening is None or training.opening == self._opening or not training.is_its_thread():
            return None
        self._opening = training.opening
        file, number = getattr(loader, NUMBER, (None, None))
        return number if file == self._probe.evidence.path else training.loaders


def objection(loader: Any, wanted: dict[str, Any]) -> str:
    """Why the loader cannot have these arguments, by the checks that DataLoader itself makes; empty where it can."""
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
    """Sets the arguments, and those that go with them, on a loader that takes no assignment any more; says which."""
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


# -- from doctor/probe/remedies/threads.py: Fewer threads: torch's, OpenMP's and OpenCV's, in the trainer and in
# workers.
#
# OpenMP, MKL and OpenBLAS read environment variables when they are loaded, which the doctor sets before the command
# starts (prove/variables.py). This is what must be said inside: a script may have asked for more, and a fork
# inherits.


def install_thread_limits(probe: Probe, most: dict[str, int], applied: AppliedRemedy) -> None:
    """`most` has the threads of a `trainer` and of a `worker`; one that is missing is left alone."""
    limit = _ThreadLimit(probe, most, applied)
    probe.when_imported("torch", limit.watch_torch)
    probe.when_imported("cv2", limit.watch_opencv)
    for module in ("torch.utils.data._utils.worker", "torchdata.stateful_dataloader.worker"):
        probe.when_imported(module, limit.watch_workers)


class _ThreadLimit:
    """What this process may have at most: it is a trainer until it turns out to be a worker."""

    def __init__(self, probe: Probe, most: dict[str, int], applied: AppliedRemedy) -> None:
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


# -- from doctor/probe/remedies/device_prefetch.py: The next batch on the device while this one is trained on:
# headrace's DevicePrefetcher around a loader.


def install_device_prefetch(probe: Probe, _: bool, applied: AppliedRemedy) -> None:
    prefetch = _Prefetch(probe, applied)
    probe.when_imported("torch.utils.data.dataloader", prefetch.watch)


class _Prefetch:
    """Every loader that is iterated to train from: in the training thread, with gradients, where CUDA is in use."""

    def __init__(self, probe: Probe, applied: AppliedRemedy) -> None:
        self._training = probe.training
        self._applied = applied
        self._is_opening = False
        self._prefetcher = applied.guarded(self._prefetcher_of)

    def watch(self, probe: Probe, dataloader: Any) -> None:
        probe.patches.replace(dataloader.DataLoader, "__iter__", self.iter)

    def iter(self, original: Callable[[Any], Any]) -> Callable[[Any], Any]:
        @functools.wraps(original)
        def __iter__(loader: Any) -> Any:  # noqa: N807
            prefetcher = None if self._is_opening else self._prefetcher(functools.partial(original, loader))
            if prefetcher is None:
                return original(loader)
            self._is_opening = True
            try:
                return iter(prefetcher)
            finally:
                self._is_opening = False

        return __iter__

    def _prefetcher_of(self, begin: Callable[[], Iterator[Any]]) -> Any:
        import torch

        training = self._training
        if not training.is_its_thread() or training.is_fetching or not torch.is_grad_enabled():
            return None
        device = cuda_device(torch)
        if device is None:
            self._applied.refused("no CUDA device is in use")
            return None
        try:
            from headrace import DevicePrefetcher
        except ImportError as error:
            self._applied.refused(f"headrace is not installed in the environment of the command ({error})")
            return None
        self._applied.took(f"to {device}")
        return DevicePrefetcher(_LoaderPass(begin), device)


def cuda_device(torch: Any) -> str | None:
    """The current one; None where this process has not begun to use any, and nothing of ours may begin it."""
    return f"cuda:{torch.cuda.current_device()}" if torch.cuda.is_initialized() else None


class _LoaderPass:
    """One pass of a loader, as something to iterate over."""

    def __init__(self, begin: Callable[[], Iterator[Any]]) -> None:
        self._begin = begin

    def __iter__(self) -> Iterator[Any]:
        return self._begin()
