"""What a prescription says: computed from a session, as the diagnosis is, and just as pure.

Times are microseconds, shares of 1. None means that it was not measured or cannot be known, which is never shown as 0.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from headrace.doctor.predict.prediction import Prediction as Prediction


@dataclass(frozen=True)
class Floors:
    """What bounds the step, from the windows of a measured run."""

    observed_us: float
    """Mean step as the run is."""
    replay_us: float | None
    """Mean step on batches that were kept, with the workers idle: no loader makes it shorter."""
    load_us: float | None
    """The same while the workers go on: what they take from the training thread by sharing cores and memory with it."""
    drain_us: float | None
    """Mean time between batches, a step's worth of them, where nothing is trained: the loader's own ceiling."""


@dataclass(frozen=True)
class Edit:
    """The change in the user's own code."""

    file: str
    line: int
    diff: str
    """Unified, of one hunk or more in that file."""


@dataclass(frozen=True)
class Remedy:
    """One thing to change, or one that need not be tried."""

    code: str
    """Of docs/doctor/remedies.md, such as `workers`."""
    title: str
    """What to do, in a few words: `8 workers in place of 2`."""
    helps: bool
    why: str
    """A sentence with the numbers behind it: why it helps, or why it would not."""
    prediction: Prediction | None
    """None where it does not help, or where what it gains cannot be computed."""
    confidence: str
    """`high`, `medium` or `low`, by what the prediction rests on."""
    costs: list[str] = field(default_factory=list)
    """What it takes in memory, disk or work, each a phrase with its figure."""
    edit: Edit | None = None
    hint: str = ""
    """The change in words or a line of code, where the source line is not known."""
    changes: dict[str, Any] | None = None
    """What injection would apply to prove it; None where that needs the user's hand."""


@dataclass(frozen=True)
class Outcome:
    """A proof beside what was predicted of it."""

    remedies: list[str]
    predicted: Prediction | None
    why: str
    """As in `session.model.Proof`."""
    detail: str
    step_us: float | None
    """Mean of the measured steps."""
    low_us: float | None
    high_us: float | None
    speedup: float | None
    samples: str | None
    recommended: bool
    """Not where it broke the run, changed its samples, or gained nothing."""
    disturbed_by: float | None = None
    """Cores that other programs kept busy more, or less if below 0, than in the measured run, where that is so much
    that the two cannot be compared."""

    @property
    def is_refused(self) -> bool:
        """Return whether the proof spoke against it. One that was not tried to the end stays as it was predicted."""
        return self.why in ("measured", "broke", "timed out") and not self.recommended


@dataclass(frozen=True)
class Prescription:
    """The whole answer to what to do."""

    floors: Floors | None
    """None where the run had no windows."""
    why_no_windows: str
    """Why not, where it had none; else empty."""
    stop: str
    """`not input-bound`, in a sentence that says what does bound it; empty where it is input-bound."""
    remedies: list[Remedy] = field(default_factory=list)
    """Those that help first, the most gain first; then those that would not."""
    best: Prediction | None = None
    """With all remedies together that still gain beside each other, and that no proof spoke against."""
    together: list[str] = field(default_factory=list)
    """Codes of these."""
    left_out: list[str] = field(default_factory=list)
    """Codes of remedies that a proof spoke against: neither among `together` nor in `patch`."""
    patch: str = ""
    """One diff with those of their changes of the user's files that are certain, for `patch -p1` in
    `patch_root`."""
    patch_root: str = ""
    outcomes: list[Outcome] = field(default_factory=list)
    again_us: float | None = None
    """Mean step of the command run once more as it is; None where it was not. A proof's gain is told by the shorter of
    both runs without remedies, and its harm by the longer."""
