"""Remedies that a proof injects into the user's processes without changing the code.

Like the whole probe, they import only the standard library. A remedy that needs headrace or torch imports it from the
user's environment when it takes effect. If the import fails, the remedy is not applied and reports why.
"""

from __future__ import annotations

import functools
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any, Callable

from ..patches import Function, HookGuard
from .indexed_tar import install_indexed_tar

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..probe import Probe


class InjectedRemedy:
    """One remedy in this process: its installation, and a count of its effects.

    It writes the `applied` records of docs/doctor/internals.md: at its first effect, since a process may be killed, and
    with the final count when the process ends.
    """

    def __init__(self, probe: Probe, key: str) -> None:
        self.patches, self.training, self.fault = probe.patches, probe.training, probe.fault
        self.when_imported = probe.when_imported
        self.folder, self.digests = probe.settings.folder, probe.digests
        self.key = key
        self.guarded = HookGuard(probe.fault, f"remedy {key}")
        """Guard for the parts of the remedy: once any part has raised, the remedy is off and reports why."""
        self._evidence, self._clock = probe.evidence, probe.clock
        self._texts: set[str] = set()
        self._count = 0
        self._process = probe.evidence.path
        probe.last.add(self._write_count)

    def around(self, module: str, path: str, call: Function) -> None:
        """Replace a dotted `path` of a module, once imported, by a function that calls `call(original, …)`."""
        self.when_imported(module, lambda imported: self.patches.around(imported, path, call))

    def took(self, text: str = "") -> None:
        """Count one more effect. Each distinct `text`, which describes the effect, is written once."""
        self._own()
        self._count += 1
        if self._count == 1 or text not in self._texts:
            self._texts.add(text)
            self._write(self._count, text)

    def refused(self, why: str) -> None:
        """Write why the remedy cannot take effect here."""
        self._own()
        if why not in self._texts:
            self._texts.add(why)
            self._write(0, why)

    @functools.cached_property
    def headrace(self) -> Any:
        """The package; None, with a refusal, if the command's environment lacks it."""
        try:
            import headrace
        except ImportError as error:
            self.refused(f"headrace is not installed in the environment of the command ({error})")
            return None
        return headrace

    def _own(self) -> None:
        """Restart the count in the child of a fork, for its own evidence."""
        if self._process != self._evidence.path:
            self._process = self._evidence.path
            self._texts.clear()
            self._count = 0

    def _write(self, count: int, text: str) -> None:
        self._evidence.write(("applied", self._clock.now_us(), self.key, count, text))

    def _write_count(self) -> None:
        self._own()
        if self._count:
            self._write(self._count, "")


ARGUMENTS = ("num_workers", "prefetch_factor", "persistent_workers", "pin_memory", "multiprocessing_context")
PREFETCH = 2
"""DataLoader's default of batches in flight per worker."""
_CHANGED = "_headrace_changed"
"""Attribute of a DataLoader with changed arguments."""


def install_arguments(remedy: InjectedRemedy, changes: dict[str, dict[str, Any]]) -> None:
    """Change arguments of DataLoaders before their first iteration; `changes` is keyed by loader number.

    Frameworks create new loaders, but all of them use DataLoader's own `__iter__`, or the `_get_iterator` that it
    calls, as does a loader with its own `__iter__`.
    """
    training, counter = remedy.training, remedy.training.counter
    opening: int | None = None

    def number_of(loader: Any) -> int | None:
        """Return the loader's number in the evidence; None for a loader that another loader or a dataset begins."""
        nonlocal opening
        if counter.opening is None or counter.opening == opening or not training.thread.is_its_thread():
            return None
        opening = counter.opening
        return training.next_number(loader)

    @remedy.guarded
    def change_loader(loader: Any) -> None:
        number = number_of(loader)
        wanted = None if number is None else changes.get(str(number))
        if wanted is None or getattr(loader, _CHANGED, False):
            return
        object.__setattr__(loader, _CHANGED, True)
        if getattr(loader, "_iterator", None) is not None:
            remedy.refused(f"loader {number}: its persistent workers run already")
        elif changed := change(loader, wanted):
            remedy.took(f"loader {number}: {', '.join(changed)}")
        else:
            remedy.refused(f"loader {number}: {', '.join(wanted)} would change nothing")

    def begin(original: Function, loader: Any) -> Any:
        change_loader(loader)
        return original(loader)

    for method in ("__iter__", "_get_iterator"):
        remedy.around("torch.utils.data.dataloader", f"DataLoader.{method}", begin)
        remedy.around("torchdata.stateful_dataloader.stateful_dataloader", f"StatefulDataLoader.{method}", begin)


def change(loader: Any, wanted: dict[str, Any]) -> list[str]:
    """Set the arguments and their dependents on a loader that rejects assignment, and return the changes as text."""
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
    return said


def install_device_prefetch(remedy: InjectedRemedy, _: bool) -> None:
    """Prefetch the next batch with headrace's DevicePrefetcher, of loaders that feed training while CUDA is in use."""
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
    """Return the current device, or None if this process has not initialised CUDA, which the probe must not do."""
    return f"cuda:{torch.cuda.current_device()}" if torch.cuda.is_initialized() else None


class _LoaderPass:
    def __init__(self, begin: Callable[[], Iterator[Any]]) -> None:
        self._begin = begin

    def __iter__(self) -> Iterator[Any]:
        return self._begin()


MODULE = "headrace_adopted_loader"
_REPLACED = "_headrace_replaced"
"""Attribute of a DataLoader: True if its batches come from the Loader."""


def install_loader(remedy: InjectedRemedy, wanted: dict[str, Any]) -> None:
    """Replace the DataLoaders that `wanted` numbers by Headrace's Loader.

    `wanted` has the text of the `module` and the numbers of the `loaders`. The Loader is created once, at the first
    pass, and each pass of the DataLoader is its next epoch. The hooks observe it like any Loader.
    """
    training = remedy.training
    made: list[Callable[[], Any]] = []

    def is_wanted(loader: Any) -> bool:
        """Return True if a pass of this DataLoader, begun now in the training thread, should be replaced."""
        thread = training.thread
        if not thread.is_its_thread() or thread.is_fetching:
            return False
        replaced = getattr(loader, _REPLACED, None)
        if replaced is None:  # it gets the next number, unless it was described before
            replaced = training.next_number(loader) in wanted["loaders"]
            object.__setattr__(loader, _REPLACED, replaced)
        return bool(replaced)

    @remedy.guarded
    def batches_of(loader: Any) -> Any:
        if not is_wanted(loader) or remedy.headrace is None:
            return None
        if not made:
            module = ModuleType(MODULE)
            sys.modules[MODULE] = module  # subprocesses look up its functions there
            exec(compile(wanted["module"], f"<{MODULE}>", "exec"), module.__dict__)
            made.append(functools.partial(module.batches, module.make_loader()))
        remedy.took()
        return _digested(made[0](), remedy)

    def begin(original: Function, loader: Any) -> Any:
        batches = batches_of(loader)
        return original(loader) if batches is None else batches

    remedy.around("torch.utils.data.dataloader", "DataLoader.__iter__", begin)


def _digested(batches: Any, remedy: InjectedRemedy) -> Iterator[Any]:
    """Yield batches, recording their digests if the run's samples are compared."""
    for batch in batches:
        if remedy.digests is not None:
            remedy.digests.received(remedy.training.counter.passes - 1, batch)
        yield batch


BENEATH: dict[str, Callable[[InjectedRemedy, Any], None]] = {
    "indexed_tar": install_indexed_tar,
    "loaders": install_arguments,
}
"""Installers by key of docs/doctor/remedies.md; later ones wrap earlier ones, and hooks time all of them."""
AROUND: dict[str, Callable[[InjectedRemedy, Any], None]] = {
    "loader": install_loader,
    "device_prefetch": install_device_prefetch,
}
"""Installers of remedies around the hooks, which take batches from their own loader or in another thread."""
KEYS = frozenset((*BENEATH, *AROUND))


def inject(probe: Probe, remedies: dict[str, Callable[[InjectedRemedy, Any], None]]) -> None:
    """Install the `remedies` named in the settings: BENEATH before the hooks, AROUND after them."""
    changes = probe.settings.changes
    for key, install in remedies.items():
        if key not in changes:
            continue
        try:
            install(InjectedRemedy(probe, key), changes[key])
        except Exception as error:
            probe.fault(f"remedy {key}", error)
