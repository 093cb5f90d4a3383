"""Which modules are hooked, by what. A hook's file is named after what it hooks."""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING, Callable

from . import lifecycle

if TYPE_CHECKING:
    from ..probe import Probe

HOOKS: list[tuple[str, Callable[[Probe, ModuleType], None]]] = [
    ("torch", lifecycle.watch_torch),
    ("multiprocessing.util", lifecycle.watch_children),
]
"""A module's name, and what to call with it once it has been imported, in this order."""
