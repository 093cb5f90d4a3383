"""Reads from file objects."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Callable

if TYPE_CHECKING:
    from ...probe import Probe

SMALL_BYTES = 4096
"""A read of less is a part of whatever asks for it: parsers read headers by the byte, and a clock costs more."""


def time_reads(probe: Probe, owner: type, label: str) -> None:
    """Counts `owner.read(size)` as a read."""
    probe.patches.replace(owner, "read", timed_reads(probe, probe.stage("read", label)))


def timed_reads(probe: Probe, stage: int) -> Callable[[Any], Any]:
    enter = probe.stages.enter

    def make(original: Any) -> Any:
        @functools.wraps(original)
        def read(self: Any, *size: Any) -> Any:
            if size and type(size[0]) is int and 0 <= size[0] < SMALL_BYTES:
                return original(self, *size)
            account = enter(stage)
            if account is None:
                return original(self, *size)
            try:
                return original(self, *size)
            finally:
                account.leave()

        return read

    return make
