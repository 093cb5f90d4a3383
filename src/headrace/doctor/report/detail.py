"""How much of a diagnosis a report shows."""

from __future__ import annotations

from dataclasses import dataclass

EVERYTHING = 1_000_000


@dataclass(frozen=True)
class Detail:
    """The most rows of each kind. What is left out is said."""

    findings: int
    stages: int
    lines: int
    slow: int
    loaders: int
    ranks: int
    notes: int
    machine: int
    last_lines: int


SCREEN = Detail(findings=3, stages=5, lines=2, slow=2, loaders=1, ranks=8, notes=3, machine=3, last_lines=6)
"""Fits a terminal of 40 lines."""
ALL = Detail(*[EVERYTHING] * 9)
