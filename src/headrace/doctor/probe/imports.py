"""Import watch: hooks are installed as soon as the module that they hook has been imported.

In a Python process that imports nothing of interest only the trigger runs, so this file imports next to nothing, not
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
        "numpy",
        "tokenizers",
        "torch",
        "transformers.image_processing_utils",
        "transformers.tokenization_utils_base",
    )
)
"""Hooked modules that need no other hooked module. The standard library is excluded: any program imports some of it."""


class ImportTrigger:
    """Finder on `sys.meta_path` that finds nothing, and starts the probe at the first import from `MODULES`."""

    def __init__(self, start: Callable[[], ImportWatch | None]) -> None:
        """`start` returns the watch for later imports, or None on failure."""
        self._start = start

    def attach(self) -> bool:
        """Insert before all other finders; return False, without effect, if one of the modules is already imported."""
        if not MODULES.isdisjoint(sys.modules):
            return False
        sys.meta_path.insert(0, self)
        return True

    def detach(self) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Start the probe if one of the modules is requested."""
        if fullname not in MODULES or self not in sys.meta_path:
            return None
        self.detach()
        watch = self._start()
        return None if watch is None else watch.find_spec(fullname, path, target)


class ImportWatch:
    """Finder on `sys.meta_path` that delegates to the other finders and listens to the loaders of watched modules.

    Not an importlib.abc.MetaPathFinder, since importing that module takes longer than all work of this one. Loaders
    keep their identity, since importlib.resources and inspect use them for more than loading modules.
    """

    def __init__(self, before: dict[str, Callable[[], object]] | None = None) -> None:
        """`before`: function to call just before a module's body runs, if `when_imported` watches it."""
        self._callbacks: dict[str, list[ImportCallback]] = {}
        self._before = before or {}
        self._finding: set[str] = set()  # the import lock is held whenever finders are called

    def attach(self) -> None:
        sys.meta_path.insert(0, self)

    def detach(self) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        self._callbacks.clear()
        self._before.clear()

    def when_imported(self, name: str, callback: ImportCallback) -> None:
        """Call `callback(module)` after its body has run, or now if it has; never for built-in and frozen modules."""
        module = sys.modules.get(name)
        if module is not None and not getattr(getattr(module, "__spec__", None), "_initializing", False):
            callback(module)
        else:
            self._callbacks.setdefault(name, []).append(callback)

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Return the spec from the other finders, with a listener on its loader."""
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
        """Wrap a loader once: a zip's loader serves all its modules, and importlib.util.find_spec loads nothing."""
        execute = getattr(loader, "exec_module", None)
        if execute is None or isinstance(loader, type):  # built-in or frozen: a class that all such modules share
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
                callback(sys.modules.get(name, module))  # a body may replace its own entry in sys.modules

        exec_module.listener = self  # type: ignore[attr-defined]
        try:
            loader.exec_module = exec_module
        except Exception:  # a loader with slots or its own __setattr__: its module goes unobserved
            return
