"""Time by line of the user's own code, from samples of a stack."""

from __future__ import annotations

import os
import sysconfig
from types import CodeType
from typing import Callable

from .call_site import PACKAGES
from .stack import Stack

MOST_PLACES = 2000
"""Of a process. Code that is made anew for each sample has no end of them."""
MOST_FILES = 10_000
"""Whose kind is kept."""

_OWN, _OTHERS, _OUTSIDE = range(3)
_OUTSIDE_FILES = tuple(
    os.path.join("torch", "utils", "data", *file)
    for file in (("_utils", "fetch.py"), ("_utils", "worker.py"), ("dataloader.py",))
)
"""Callers of the dataset: in the frames beyond them nobody makes a batch."""
_STDLIB = tuple(
    {
        os.path.realpath(path) + os.sep
        for path in (*map(sysconfig.get_path, ("stdlib", "platstdlib")), os.path.dirname(os.__file__))
        if path
    }
)
_PROBE = os.path.dirname(os.path.realpath(__file__)) + os.sep


class Lines:
    """Nanoseconds by place. One thread adds and any takes; what is added while another takes may be lost."""

    def __init__(self, name: Callable[[str], int]) -> None:
        """`name` gives a text's number in the evidence."""
        self._name = name
        # By texts and not by code objects, which are equal where their files differ.
        self._kinds: dict[str, int] = {}
        self._places: dict[tuple[str, int, str], int] = {}
        self._counts: dict[int, int] = {}

    def add(self, stack: Stack, ns: int) -> None:
        """Charges the innermost line of the user's code; nothing, where only libraries are at work."""
        for code, line in stack:
            kind = self._kind(code.co_filename)
            if kind == _OUTSIDE:
                return
            if kind == _OWN:
                place = self._place(code, line)
                if place is not None:
                    self._counts[place] = self._counts.get(place, 0) + ns
                return

    def take(self) -> list[tuple[int, int]]:
        """Place and microseconds, since the last call."""
        counts, self._counts = self._counts, {}
        return [(place, ns // 1000) for place, ns in list(counts.items())]

    def _kind(self, file: str) -> int:
        kind = self._kinds.get(file)
        if kind is None:
            if len(self._kinds) >= MOST_FILES:
                self._kinds.clear()
            kind = self._kinds[file] = _kind_of(file)
        return kind

    def _place(self, code: CodeType, line: int) -> int | None:
        name: str = getattr(code, "co_qualname", code.co_name)
        key = (code.co_filename, line, name)
        number = self._places.get(key)
        if number is None and len(self._places) < MOST_PLACES:
            number = self._places[key] = self._name("{}:{}:{}".format(*key))
        return number


def _kind_of(file: str) -> int:
    if file.endswith(_OUTSIDE_FILES):
        return _OUTSIDE
    if file.startswith("<frozen ") or any(folder in file for folder in PACKAGES):
        return _OTHERS
    return _OTHERS if os.path.realpath(file).startswith((*_STDLIB, _PROBE)) else _OWN
