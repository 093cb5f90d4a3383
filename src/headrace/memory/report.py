"""What a fitted budget is, and how it was found."""

from __future__ import annotations

from dataclasses import dataclass, field

from headrace.memory.line import Line
from headrace.plan.batching import Budget

Shape = tuple[int, ...]
MIB = 1 << 20


@dataclass(frozen=True)
class Step:
    """One step of the user's: so many samples of a shape. `peak_bytes` is None where it ran out of memory."""

    shape: Shape
    samples: int
    peak_bytes: int | None

    def __str__(self) -> str:
        peak = "out of memory" if self.peak_bytes is None else f"{self.peak_bytes / MIB:,.1f} MiB"
        return f"{self.samples} x {'x'.join(map(str, self.shape))}: {peak}"


@dataclass(frozen=True)
class Fit:
    """How a budget was found on this rank.

    `steps` in the order in which they ran; `line` through those of the largest shape, None if there was but one size;
    the peak was to stay within `limit_bytes`, which is `capacity_bytes` less the `margin`; `ranks` has what each rank
    found, of which the least is the budget. `largest` is the step that shows it: the one nearest to the limit that ran
    on this rank at what this rank found.
    """

    steps: tuple[Step, ...]
    largest: Step
    line: Line | None
    capacity_bytes: int
    limit_bytes: int
    margin: float
    ranks: tuple[int, ...]

    def __str__(self) -> str:
        limit = f"{self.limit_bytes / MIB:,.1f} of {self.capacity_bytes / MIB:,.1f} MiB (margin {self.margin:.0%})"
        lines = [f"limit {limit}", *map(str, self.steps), f"found by {self.largest}"]
        if self.line is not None:
            fixed, slope, residual = (value / MIB for value in self.line)
            lines.append(f"line {fixed:,.1f} MiB + {slope:,.3f} MiB a sample, off by at most {residual:,.3f} MiB")
        if len(self.ranks) > 1:
            lines.append(f"ranks found {', '.join(map(str, self.ranks))}: the least is taken")
        return "\n".join(lines)


@dataclass(frozen=True, kw_only=True)
class FittedBudget(Budget):
    """A Budget that was found by running steps. `print(budget.fit)` says how."""

    fit: Fit = field(compare=False)
