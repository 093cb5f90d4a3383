"""How much of a diagnosis a report shows."""

from __future__ import annotations

from dataclasses import dataclass

EVERYTHING = 1_000_000


@dataclass(frozen=True)
class Detail:
    """The most rows of each kind. What is left out is said."""

    findings: int
    budgets: int
    causes: int
    stages: int
    lines: int
    slow: int
    loaders: int
    ranks: int
    notes: int
    note_lines: int
    machines: int
    last_lines: int


SCREEN = Detail(
    findings=2,
    budgets=1,
    causes=0,
    stages=4,
    lines=1,
    slow=1,
    loaders=1,
    ranks=8,
    notes=2,
    note_lines=0,
    machines=1,
    last_lines=6,
)
"""Fits a terminal of 40 lines as a rule."""
ALL = Detail(*[EVERYTHING] * 12)
