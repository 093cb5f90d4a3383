"""Watch over imports: hooks are installed as soon as the module that they hook has been imported.

The trigger is all that runs in a Python that imports nothing of interest, so this file imports next to nothing: not
even typing.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any, Callable

    ImportCallback = Callable[[ModuleType], None]

MODULES = frozenset(
    (
        "PIL.Image",
        "albumentations.core.transforms_interface",
        "cv2",
        "fsspec.asyn",
        "h5py._hl.dataset",
        "h5py._hl.files",
        "h5py._hl.group",
        "imageio.v2",
        "imageio.v3",
        "lmdb",
        "numpy",
        "tokenizers",
        "torch",
        "transformers.image_processing_utils",
        "transformers.tokenization_utils_base",
    )
)
"""Hooked modules that need no other hooked module. Python's own are no trigger: any program imports some of them."""


class ImportTrigger:
    """Finder on `sys.meta_path` that finds nothing itself, and starts the probe once, at the first of `MODULES`."""

    def __init__(self, start: Callable[[], ImportWatch | None]) -> None:
        """`start` returns what watches imports from then on; None where it could not."""
        self._start = start

    def attach(self) -> bool:
        """Put it in front of all finders; False, and nothing done, where one of the modules is there already."""
        if not MODULES.isdisjoint(sys.modules):
            return False
        sys.meta_path.insert(0, self)
        return True

    def detach(self) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Start the probe where one of the modules is asked for."""
        if fullname not in MODULES or self not in sys.meta_path:
            return None
        self.detach()
        watch = self._start()
        return None if watch is None else watch.find_spec(fullname, path, target)


class ImportWatch:
    """Finder on `sys.meta_path` that lets the others find, and listens to the loaders of watched modules.

    It is no importlib.abc.MetaPathFinder, since that module takes longer to import than all of this one's work. Loaders
    stay the objects that they are, since importlib.resources and inspect ask them for more than modules.
    """

    def __init__(self, before: dict[str, Callable[[], object]] | None = None) -> None:
        """`before`: by module, what to call just before its body runs, if `when_imported` watches it."""
        self._callbacks: dict[str, list[ImportCallback]] = {}
        self._before = before or {}
        self._finding: set[str] = set()  # import's own lock is held wherever finders are asked

    def attach(self) -> None:
        """Put it in front of all finders."""
        sys.meta_path.insert(0, self)

    def detach(self) -> None:
        """Remove it and forget all callbacks."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        self._callbacks.clear()
        self._before.clear()

    def when_imported(self, name: str, callback: ImportCallback) -> None:
        """Call `callback(module)` once, after the module's body has run: at once, where it has.

        Never for a module that is built in or frozen.
        """
        module = sys.modules.get(name)
        if module is not None and not getattr(getattr(module, "__spec__", None), "_initializing", False):
            callback(module)
        else:
            self._callbacks.setdefault(name, []).append(callback)

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Return what the other finders find, with a listener at its loader."""
        if fullname not in self._callbacks or fullname in self._finding:
            return None
        self._finding.add(fullname)
        try:
            finders = (getattr(finder, "find_spec", None) for finder in sys.meta_path if finder is not self)
            specs = (find(fullname, path, target) for find in finders if find is not None)
            spec = next((found for found in specs if found), None)
        finally:
            self._finding.discard(fullname)
        if spec is not None and spec.loader is not None:
            self._listen(spec.loader, fullname)
        return spec

    def _listen(self, loader: Any, fullname: str) -> None:
        """Listen once a loader: a zip's serves every module in it, and importlib.util.find_spec loads nothing."""
        execute = getattr(loader, "exec_module", None)
        if execute is None or isinstance(loader, type):  # built in or frozen: a class, which all such modules share
            return
        if getattr(execute, "listener", None) is self:
            return

        def exec_module(module: ModuleType) -> None:
            name = getattr(getattr(module, "__spec__", None), "name", fullname)
            if name in self._callbacks:
                vars(loader).pop("exec_module", None)
            before = self._before.pop(name, None)
            if before is not None:
                before()
            execute(module)
            for callback in self._callbacks.pop(name, []):
                callback(sys.modules.get(name, module))  # a body may put another object in its place

        exec_module.listener = self  # type: ignore[attr-defined]
        try:
            loader.exec_module = exec_module
        except Exception:  # a loader with slots, or with a __setattr__ of its own: its module goes unobserved
            return
