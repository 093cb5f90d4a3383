"""Run that ended by the script's own error while its steps were repeated on cached batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from .model import CommandOutcome, ProbedProcess, Session, SessionNote
from .trainers import DRAIN, EARLY, LOAD, REPLAY

_REPLAYING = (EARLY, REPLAY, LOAD, DRAIN)
"""Windows in which the loop gets cached batches."""


def ended_in(process: ProbedProcess) -> str | None:
    """Return the window of cached batches in which a process ended; None if it ended outside these windows."""
    window = process.facts.get("facts", {}).get("window")
    return window if window in _REPLAYING else None


def why_failed(outcome: CommandOutcome, processes: Sequence[ProbedProcess]) -> str:
    """Return the error of the first process with an error, or else the command's exit status."""
    errors = [one.error for one in processes if one.error]
    return errors[0].strip().splitlines()[-1] if errors else f"exit status {outcome.status}"


class FailedReplay(NamedTuple):
    """Failure of a run in a window of cached batches without measurements."""

    is_early: bool
    """True if the batches were added to the first epoch."""
    why: str

    @classmethod
    def of(cls, session: Session) -> FailedReplay | None:
        """Return the failure of a run; None if it did not fail in a window of cached batches."""
        failed = [one for one in session.processes if ended_in(one)]
        if session.outcome.why != "failed" or not failed:
            return None
        return cls(any(ended_in(one) == EARLY for one in failed), why_failed(session.outcome, failed))

    @property
    def text(self) -> str:
        where = "added to its first epoch" if self.is_early else "repeated"
        return f"The script ended by {self.why} on cached batches that were {where}."

    @property
    def left_out(self) -> dict[str, Any]:
        """Settings for a run without these batches."""
        return {"early": False} if self.is_early else {"replay": 0, "drain_s": 0.0}

    @property
    def note(self) -> SessionNote:
        """Note about this run, for a later run."""
        if self.is_early:
            return SessionNote("replay-failed", f"{self.text} The command ran again without them.")
        return SessionNote("no-replay", f"The run was only observed. {self.text}")
