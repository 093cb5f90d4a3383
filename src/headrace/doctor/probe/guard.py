"""Keeps a hook's own failures from the user's run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable

if TYPE_CHECKING:
    from .probe import Probe


class Guard:
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
