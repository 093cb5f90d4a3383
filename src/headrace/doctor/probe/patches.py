"""Replacement and restoration of attributes in other modules, and the stand-ins that replace them."""

from __future__ import annotations

import functools
import inspect
import pkgutil
import sys
from types import BuiltinFunctionType, MethodType, ModuleType
from typing import Any, Callable

Function = Callable[..., Any]
Fault = Callable[[str, BaseException], None]
"""Reports the name of one of the probe's hooks that failed, and the reason: `Probe.fault`."""
_ABSENT = object()


class Patches:
    """All replacements, newest last, so that `restore` leaves each owner as it was."""

    def __init__(self, note: Callable[[str, str], None] = lambda code, text: None) -> None:
        """`note(code, text)` adds a note to the report."""
        self._note = note
        self._done: list[tuple[Any, str, Any, Any]] = []
        self._undo: list[Callable[[], None]] = []

    def replace(self, owner: Any, path: str, make: Callable[[Any], Any]) -> bool:
        """Set the attribute at a dotted `path` to `make(original)`. Return False if that is no callable or fixed."""
        *outer, name = path.split(".")
        for part in outer:
            owner = getattr(owner, part, None)
        plain = _ABSENT if owner is None else getattr(owner, name, _ABSENT)
        if not callable(plain):
            return False
        original = vars(owner).get(name, _ABSENT)
        raw = inspect.getattr_static(owner, name, plain)  # inherited attributes, too
        if isinstance(raw, (staticmethod, classmethod)):
            new: Any = type(raw)(make(raw.__func__))
        else:
            new = make(plain)
        try:
            setattr(owner, name, new)
        except (AttributeError, TypeError):
            return False
        self._done.append((owner, name, original, new))
        return True

    def around(self, owner: Any, path: str, call: Function) -> bool:
        """Replace an attribute by a function that calls `call(original, *args, **kwargs)`."""
        return self.replace(owner, path, around(call))

    def stand_in(self, owner: Any, path: str, call: Function) -> bool:
        """Do the same for a function that may be built-in; the stand-in is then of the same kind."""
        return self.replace(owner, path, lambda original: stand_in(original, around(call)(original)))

    def hook(self, module: ModuleType, path: str, make: Callable[[Any], Any], unseen: str) -> bool:
        """Replace an attribute of a module; or report that `unseen` was not observed."""
        is_done = self.replace(module, path, make)
        if not is_done:
            self.unknown(f"{module.__name__}.{path}", unseen)
        return is_done

    def hook_around(self, module: ModuleType, path: str, call: Function, unseen: str) -> bool:
        """Do the same with a function that calls `call(original, *args, **kwargs)`."""
        return self.hook(module, path, around(call), unseen)

    def unknown(self, what: str, unseen: str) -> None:
        """Note that `what` is missing in the installed version of its library."""
        library = what.partition(".")[0]
        version = getattr(sys.modules.get(library), "__version__", None)
        its = f"{library} {version}'s" if version else f"{library}'s"
        self._note("not-known", f"{its} {what} is not known to this doctor: {unseen} not seen.")

    def at_restore(self, call: Callable[[], None]) -> None:
        """Register a function that `restore` calls first, to undo something that is no attribute."""
        self._undo.append(call)

    def rebind(self) -> None:
        """Replace functions also where other modules, but not the standard library's, imported them by name before."""
        pythons_own = getattr(sys, "stdlib_module_names", sys.builtin_module_names)
        new_of = {
            id(original): (original, new)
            for owner, _, original, new in self._done
            if isinstance(owner, ModuleType)
            and original is not _ABSENT
            and owner.__name__.partition(".")[0] not in pythons_own
        }
        for module in list(sys.modules.values()) if new_of else ():
            for name, value in dict(getattr(module, "__dict__", {})).items():
                found = new_of.get(id(value))
                if found is not None and found[0] is value:
                    setattr(module, name, found[1])
                    self._done.append((module, name, *found))

    def restore(self) -> None:
        """Restore every attribute that nobody else has replaced since."""
        while self._undo:
            self._undo.pop()()
        for owner, name, original, new in reversed(self._done):
            if vars(owner).get(name) is not new:
                continue
            if original is _ABSENT:
                delattr(owner, name)
            else:
                setattr(owner, name, original)
        self._done.clear()


def around(call: Function) -> Callable[[Function], Function]:
    """Return a decorator that makes a function of the same name, which calls `call(original, *args, **kwargs)`."""

    def make(original: Function) -> Function:
        @functools.wraps(original)
        def hooked(*args: Any, **kwargs: Any) -> Any:
            return call(original, *args, **kwargs)

        return hooked

    return make


class Builtin:
    """Stand-in for a built-in function or a bound method, which does not bind to the instance as an attribute."""

    def __init__(self, original: Function, call: Function) -> None:
        functools.update_wrapper(self, original)
        self._call = call

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._call(*args, **kwargs)

    def __repr__(self) -> str:
        return repr(self.__wrapped__)  # type: ignore[attr-defined]  # update_wrapper has set it

    def __reduce__(self) -> str | tuple[Any, ...]:
        """Pickle by name, which yields whatever is found there. Without a module's name, pickle searches for it."""
        original = self.__wrapped__  # type: ignore[attr-defined]
        name: str = original.__qualname__
        return name if original.__module__ is None else (pkgutil.resolve_name, (f"{original.__module__}:{name}",))


def stand_in(original: Function, call: Function) -> Function:
    """Return `call` as a replacement for `original` of the same kind."""
    if isinstance(original, (BuiltinFunctionType, MethodType, Builtin)):
        return Builtin(original, call)
    return functools.wraps(original)(call)


class HookGuard:
    """Guard of one hook's parts: once any part has raised, the fault is noted and all parts are disabled."""

    def __init__(self, fault: Fault, hook: str) -> None:
        self._fault = fault
        self._hook = hook
        self._is_off = False

    def __call__(self, function: Function) -> Function:
        """Return a guarded `function`, which returns None while disabled. Not for functions that call user code."""

        def guarded(*args: Any) -> Any:
            if self._is_off:
                return None
            try:
                return function(*args)
            except Exception as error:
                self._is_off = True
                self._fault(self._hook, error)
                return None

        return guarded
