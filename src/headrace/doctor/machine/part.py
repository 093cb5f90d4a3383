"""The shape of everything that is sampled."""

from __future__ import annotations

from typing import Any, Protocol

Row = dict[str, float | None]
"""One reading, by column. None is what was not measured."""


class Part(Protocol):
    """One thing that is sampled. It is made when sampling begins and reads then what may be gone at the end."""

    name: str

    def read(self, now_s: float) -> Row:
        """One reading. Columns may come later than the first, and stay away; rates are since the reading before."""

    def facts(self) -> dict[str, Any]:
        """What does not change, and totals over the run. Asked once, when sampling ends."""
