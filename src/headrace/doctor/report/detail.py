"""How much of a diagnosis a report shows."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

EVERYTHING = 1_000_000


@dataclass(frozen=True)
class Detail:
    """The most rows of each kind. What is left out is said."""

    findings: int
    advice: int
    """Above 0: what each finding says to look at."""
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
    remedies: int
    idle_remedies: int
    reasons: int
    """Above 0: why each remedy helps, and the change in the code."""
    windows: int
    """Above 0: what a measured run did, window by window."""
    evidence: int
    """Above 0: what shows each finding."""
    rest: str = field(default="--verbose", kw_only=True)
    """How to get what is left out."""


SCREEN = Detail(
    findings=2,
    advice=1,
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
    remedies=3,
    idle_remedies=1,
    reasons=0,
    windows=0,
    evidence=1,
)
"""Fits a terminal of 40 lines as a rule."""
SCREEN_WITH_REMEDIES = replace(SCREEN, findings=1, advice=0, evidence=0, stages=2, notes=1)
"""The same where remedies, which say what to do, want some of the room."""
CELL_REST = "watch(verbose=True)"
CELL = replace(SCREEN, rest=CELL_REST)
"""Below the cell of a notebook, which scrolls."""
CELL_WITH_REMEDIES = replace(SCREEN_WITH_REMEDIES, evidence=1, reasons=1, rest=CELL_REST)
ALL = Detail(*[EVERYTHING] * 18)
