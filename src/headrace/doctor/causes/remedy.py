"""Remedies of a run, and the prescription that they make up.

Everything is computed from a session, like the diagnosis. Times are in microseconds, and shares are fractions of 1.
None means that a figure was not measured or is unknown; reports never show it as 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from headrace.doctor.causes.outcomes import ProofOutcome
from headrace.doctor.measure import LowerBounds
from headrace.doctor.session.after_run import AdoptedPart
from headrace.doctor.simulate import Prediction

EFFORTS = SETTING, ONE_LINE, FEW_LINES, ANOTHER_LOADER = (
    *("a setting", "one line of code", "a few lines of code", "another loader"),
)
"""Levels of effort for the user, least first."""


@dataclass(frozen=True)
class Edit:
    """Change to the user's own code."""

    file: str
    line: int
    diff: str
    """Unified diff with one or more hunks in the file."""


@dataclass(frozen=True)
class Remedy:
    """Single change, recommended or rejected."""

    code: str
    """Code from docs/doctor/remedies.md, such as `workers`."""
    title: str
    """Change in a few words: `8 workers in place of 2`."""
    helps: bool
    why: str
    """Sentence with the figures behind the recommendation or rejection."""
    prediction: Prediction | None
    """Predicted step; None if the remedy does not help or its gain cannot be computed."""
    confidence: str
    """`high`, `medium` or `low`, depending on the basis of the prediction."""
    costs: list[str] = field(default_factory=list)
    """Required memory, disk space or work, each as a phrase with its figure."""
    edit: Edit | None = None
    hint: str = ""
    """Change in words or a line of code, if the source line is unknown."""
    changes: dict[str, Any] | None = None
    """Changes that a proof injects; None if the user has to make the change."""
    degree: str = ""
    """Degree to which the Loader does the dataset's work: `exact` or `part`; empty for other remedies."""
    parts: list[AdoptedPart] = field(default_factory=list)
    """Parts of the script that the Loader takes over, each with its certainty."""
    effort: str = FEW_LINES
    """Effort for the user, from `EFFORTS`."""
    coverage: str = ""
    """Arrays of a batch that the Loader makes; empty for other remedies."""


@dataclass(frozen=True)
class Prescription:
    """Complete recommendation for a session."""

    lower_bounds: LowerBounds | None
    """Lower bounds; None if the run had no windows."""
    why_no_windows: str
    """Reason that the run had no windows; empty if it had."""
    stop: str
    """Sentence on why no remedy applies: what limits the step instead of data, or that too few steps were measured.
    Empty if the run is input-bound."""
    remedies: list[Remedy] = field(default_factory=list)
    """Remedies that help, largest gain first, then remedies that would not help."""
    best: Prediction | None = None
    """Prediction for all remedies that still gain together and that no proof refuted."""
    together: list[str] = field(default_factory=list)
    """Codes of the remedies in `best`."""
    left_out: list[str] = field(default_factory=list)
    """Codes of refuted remedies, which are neither in `together` nor in `patch`."""
    patch: str = ""
    """Diff of all certain changes to the user's files, for `patch -p1` in `patch_root`."""
    patch_root: str = ""
    outcomes: list[ProofOutcome] = field(default_factory=list)
    again_us: float | None = None
    """Mean step of the control runs; None without any. The shortest run without remedies is the baseline for a proof's
    gain, the longest for its harm."""

    @property
    def helping(self) -> list[Remedy]:
        """Helpful remedies, largest gain first."""
        return [remedy for remedy in self.remedies if remedy.helps]

    def outcome_of(self, codes: Sequence[str]) -> ProofOutcome | None:
        """Return the last proof of exactly these remedies."""
        found = [one for one in self.outcomes if sorted(one.remedies) == sorted(codes)]
        return found[-1] if found else None
