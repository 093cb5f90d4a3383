"""Inputs that fuzzers found, minimised, each with what was wrong. tests/test_fuzz_finds.py feeds them to the core."""

from __future__ import annotations

from base64 import b85decode
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Find:
    target: str
    """Of core/fuzz."""
    name: str
    what: str
    """What went wrong before the fix."""
    base85: str

    @property
    def data(self) -> bytes:
        """The target's input: option bytes, then the content."""
        return b85decode(self.base85)


FINDS: tuple[Find, ...] = ()
