"""Arguments of DataLoaders, changed before they are first iterated."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Callable

from ..hooks.dataloader import NUMBER
from .applied import Applied

if TYPE_CHECKING:
    from ..probe import Probe

ARGUMENTS = ("num_workers", "prefetch_factor", "persistent_workers", "pin_memory", "multiprocessing_context")
PREFETCH = 2
"""Batches in flight for each worker, where nothing else is said: DataLoader's own default."""
_CHANGED = "_headrace_changed"
"""Attribute of a DataLoader whose arguments are those that are wanted."""


def install(probe: Probe, changes: dict[str, dict[str, Any]], applied: Applied) -> None:
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

    def __init__(self, probe: Probe, changes: dict[str, dict[str, Any]], applied: Applied) -> None:
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
