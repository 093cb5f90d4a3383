"""Kinds of finding: codes, with text templates that each cause fills with its figures."""

from __future__ import annotations

from dataclasses import dataclass
from string import Formatter
from typing import Any

from ..measure import Finding
from ..quantities import counted, duration, number, percent, size, times

WRITTEN = {"duration": duration, "number": number, "percent": percent, "size": size, "times": times}
COUNTED = "count "


class Figures(Formatter):
    """Formatter for quantities: `{read:size}`, `{share:percent}`, `{many:count worker}`."""

    def format_field(self, value: Any, format_spec: str) -> str:
        """Format a figure as its quantity, and anything else as Python does."""
        if format_spec.startswith(COUNTED):
            return counted(value, format_spec.removeprefix(COUNTED))
        written = WRITTEN.get(format_spec)
        return str(super().format_field(value, format_spec)) if written is None else written(value)


@dataclass(frozen=True)
class FindingKind:
    """Kind of finding: `text`, `evidence` and `advice` are templates for `Figures`."""

    code: str
    text: str
    evidence: str
    advice: str
    when: str
    """Condition that triggers the finding, for the documentation."""
    weight: float = 0.0
    """Weight of the finding, if constant."""

    def found(self, weight: float | None = None, **figures: Any) -> Finding:
        """Return the finding with its figures."""
        said = (Figures().vformat(one, (), figures) for one in (self.text, self.evidence, self.advice))
        return Finding(self.code, self.weight if weight is None else weight, *said)


def chapter(*kinds: FindingKind) -> dict[str, FindingKind]:
    """Return the kinds by code."""
    return {one.code: one for one in kinds}
