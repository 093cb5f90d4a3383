"""What watches imports: hooks are installed as soon as the module that they hook has been imported."""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Callable

TYPE_CHECKING = False


# -- from doctor/probe/imports.py: Tells when a module has been imported, without importing it.


ImportCallback = Callable[[ModuleType], None]


class ImportWatch:
    """Put on `sys.meta_path`, it lets the other finders find, and listens to what the loader of a watched module does.

    It is no importlib.abc.MetaPathFinder, since that module takes longer to import than all of this one's work. Loaders
    stay the objects that they are, since importlib.resources and inspect ask them for more than modules.
    """

    def __init__(self) -> None:
        self._callbacks: dict[str, list[ImportCallback]] = {}
        self._before: dict[str, Callable[[], None]] = {}
        self._finding: set[str] = set()  # import's own lock is held wherever finders are asked

    def attach(self) -> None:
        sys.meta_path.insert(0, self)

    def detach(self) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        self._callbacks.clear()
        self._before.clear()

    def when_imported(self, name: str, callback: ImportCallback) -> None:
        """Calls `callback(module)` once, after its body has run: at once, where that is so. Never for a module that is
        built in or frozen."""
        module = sys.modules.get(name)
        if module is not None and not getattr(getattr(module, "__spec__", None), "_initializing", False):
            callback(module)
        else:
            self._callbacks.setdefault(name, []).append(callback)

    def before_import(self, name: str, callback: Callable[[], None]) -> None:
        """Calls `callback()` when the module's body is about to run; never, where it is there already. For a module
        that `when_imported` watches."""
        self._before[name] = callback

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if fullname not in self._callbacks or fullname in self._finding:
            return None
        self._finding.add(fullname)
        try:
            spec = next(filter(None, (self._ask(finder, fullname, path, target) for finder in sys.meta_path)), None)
        finally:
            self._finding.discard(fullname)
        if spec is not None and spec.loader is not None:
            self._listen(spec.loader, fullname)
        return spec

    def _ask(self, finder: Any, fullname: str, path: Any, target: Any) -> ModuleSpec | None:
        find = None if finder is self else getattr(finder, "find_spec", None)
        return None if find is None else find(fullname, path, target)

    def _listen(self, loader: Any, fullname: str) -> None:
        """One listener a loader: a zip's, say, serves every module in it, and importlib.util.find_spec asks for a spec
        that nothing is loaded by."""
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


# -- from doctor/probe/trigger.py: Tells when the first module is imported that the probe has something to do with.
#
# It is all that runs in a Python that imports none of them, so it imports next to nothing itself: not even typing.


MODULES = frozenset(
    (
        "PIL.Image",
        "albumentations.core.transforms_interface",
        "cv2",
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
"""Those that are hooked and need no other of them. Python's own come later: any program imports some, and they are
hooked wherever they have been imported by then."""


class ImportTrigger:
    """Put on `sys.meta_path`, once; a finder that finds nothing by itself."""

    def __init__(self, start: Callable[[], ImportWatch | None]) -> None:
        """`start` begins what watches imports from then on; None where it could not."""
        self._start = start

    def attach(self) -> bool:
        """False, and nothing done, where one of the modules is there already."""
        if not MODULES.isdisjoint(sys.modules):
            return False
        sys.meta_path.insert(0, self)
        return True

    def detach(self) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if fullname not in MODULES or self not in sys.meta_path:
            return None
        self.detach()
        watch = self._start()
        return None if watch is None else watch.find_spec(fullname, path, target)
