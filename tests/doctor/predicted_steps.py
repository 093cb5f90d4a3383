"""Predictions beside proofs: how far off they are, and whether the truth lies in their intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any


@dataclass(frozen=True)
class Predicted:
    """The mean step with one remedy, or several together, as predicted and as measured, in microseconds."""

    case: str
    remedies: str
    observed_us: float
    step_us: float
    low_us: float
    high_us: float
    proved_us: float
    again_us: float | None = None
    """The step of the same command, run once more without any remedy; None where it was not."""

    @property
    def error(self) -> float:
        """Share of the proved step."""
        return abs(self.step_us - self.proved_us) / self.proved_us

    @property
    def is_covered(self) -> bool:
        return self.low_us <= self.proved_us <= self.high_us

    def row(self) -> str:
        again = "–" if self.again_us is None else f"{self.again_us / 1000:.1f}"
        times = " | ".join(f"{us / 1000:.1f}" for us in (self.step_us, self.proved_us))
        within = f"{self.low_us / 1000:.1f} to {self.high_us / 1000:.1f}{'' if self.is_covered else ' (not)'}"
        begin = f"| {self.case} | {self.remedies} | {self.observed_us / 1000:.1f} | {again}"
        return f"{begin} | {times} | {self.error:.1%} | {within} |"


def predicted(case: str, prescription: dict[str, Any]) -> list[Predicted]:
    """Of a document's prescription: those that were both predicted and measured, on a machine that did nothing else, or
    as much of it in both runs."""
    return [
        Predicted(
            case,
            " + ".join(outcome["remedies"]),
            outcome["predicted"]["step_us"] * outcome["predicted"]["speedup"],
            outcome["predicted"]["step_us"],
            outcome["predicted"]["low_us"],
            outcome["predicted"]["high_us"],
            outcome["step_us"],
            prescription.get("again_us"),
        )
        for outcome in prescription["outcomes"]
        if outcome["predicted"] is not None and outcome["step_us"] is not None and outcome["disturbed_by"] is None
    ]


def table(rows: Sequence[Predicted]) -> str:
    """In Markdown, the farthest off first."""
    head = "| case | remedy | baseline, ms | again | predicted | proved | off by | interval |"
    far_first = sorted(rows, key=lambda row: -row.error)
    return "\n".join([head, "|---|---|---|---|---|---|---|---|", *(row.row() for row in far_first)])


def median_error(rows: Sequence[Predicted]) -> float:
    return median(row.error for row in rows)


def covered(rows: Sequence[Predicted]) -> float:
    """Share of those whose interval holds what was measured."""
    return sum(row.is_covered for row in rows) / len(rows)
