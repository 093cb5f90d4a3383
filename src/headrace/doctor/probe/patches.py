"""Attributes of other people's modules, replaced and put back, and guards around what replaces them."""

from __future__ import annotations

import inspect
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any, Callable

if TYPE_CHECKING:
    from .probe import Probe


# -- from doctor/probe/patches.py: Attributes of other people's modules and classes, replaced and put back.


_ABSENT = object()


class Patches:
    """Everything replaced, newest last, so that `restore` leaves each owner as it was."""

    def __init__(self) -> None:
        self._done: list[tuple[Any, str, Any, Any]] = []

    def replace(self, owner: Any, name: str, make: Callable[[Any], Any]) -> bool:
        """Sets `owner.name` to `make(original)`. False, and nothing done, where there is no such attribute, it cannot
        be called, or its owner takes none (a built-in type)."""
        plain = getattr(owner, name, _ABSENT)
        if not callable(plain):
            return False
        original = vars(owner).get(name, _ABSENT)
        raw = inspect.getattr_static(owner, name, plain)  # also what a class inherits
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

    def rebind(self) -> None:
        """Replaces functions also where other modules hold them by names of their own: those that were imported before
        the probe came. Python's own modules keep theirs, since they were there before everybody."""
        new_of = {
            id(original): (original, new)
            for owner, _, original, new in self._done
            if isinstance(owner, ModuleType) and original is not _ABSENT and not _is_pythons_own(owner)
        }
        for module in list(sys.modules.values()) if new_of else ():
            for name, value in list(getattr(module, "__dict__", {}).items()):
                found = new_of.get(id(value))
                if found is not None and found[0] is value:
                    setattr(module, name, found[1])
                    self._done.append((module, name, *found))

    def restore(self) -> None:
        """Puts back what nobody has replaced after us."""
        for owner, name, original, new in reversed(self._done):
            if vars(owner).get(name) is not new:
                continue
            if original is _ABSENT:
                delattr(owner, name)
            else:
                setattr(owner, name, original)
        self._done.clear()


def _is_pythons_own(module: ModuleType) -> bool:
    name = module.__name__.partition(".")[0]
    return name in getattr(sys, "stdlib_module_names", sys.builtin_module_names)


# -- from doctor/probe/guard.py: Keeps a hook's own failures from the user's run.


class HookGuard:
    """The parts of one hook. Once any of them has raised, the fault is noted and none does anything any more."""

    def __init__(self, probe: Probe, hook: str) -> None:
        self._probe = probe
        self._hook = hook
        self._is_off = False

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """`function`, which gives None where it is off. Not for anything that calls the user's code."""

        def guarded(*args: Any) -> Any:
            if self._is_off:
                return None
            try:
                return function(*args)
            except Exception as error:
                self._is_off = True
                self._probe.fault(self._hook, error)
                return None

        return guarded
