"""What a cache did in all processes together: workers come and go with each pass, and each counts only its own."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable
from typing import Any

from headrace.cache.hand_out import HandOut, shared_descriptor
from headrace.errors import SharedMemoryError
from headrace.threads import close_at_exit

ROWS = 1024
"""One for each process, by its number. Two that live at once and share one may lose a count, which is a count only."""
HITS, MISSES, ADMITTED, DAMAGED = range(4)
_COLUMNS = 4
_BYTES = ROWS * _COLUMNS * 8


class Counters:
    """Anonymous memory by the name of a cache. Forks have it, a pickle finds it again."""

    def __init__(self, name: str) -> None:
        """Raises SharedMemoryError."""
        self._name = name
        descriptor, self._hand_out = shared_descriptor(f"{name}-counts", _make)
        try:
            self._view = memoryview(mmap.mmap(descriptor, _BYTES)).cast("Q")
        except OSError as error:
            raise SharedMemoryError(f"no memory for the counts of a cache: {error}") from error
        finally:
            if self._hand_out is None:
                os.close(descriptor)
        self._descriptor = descriptor if self._hand_out is not None else None
        close_at_exit(self)

    def __reduce__(self) -> tuple[Callable[..., Counters], tuple[Any, ...]]:
        return Counters, (self._name,)

    def __del__(self) -> None:
        if hasattr(self, "_descriptor"):
            self.close()

    def add(self, column: int, count: int = 1) -> None:
        self._view[os.getpid() % ROWS * _COLUMNS + column] += count

    def totals(self) -> list[int]:
        """By column."""
        return [sum(self._view[column::_COLUMNS].tolist()) for column in range(_COLUMNS)]

    def close(self) -> None:
        """No longer hands the memory to processes that ask for it."""
        hand_out: HandOut | None = self._hand_out
        if hand_out is not None:
            hand_out.close()
            self._hand_out = None
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _make() -> int:
    try:
        descriptor = os.memfd_create("headrace-cache-counts")
        os.ftruncate(descriptor, _BYTES)
    except (AttributeError, OSError) as error:
        raise SharedMemoryError(f"no memory for the counts of a cache: memfd_create of Linux: {error}") from error
    return descriptor
