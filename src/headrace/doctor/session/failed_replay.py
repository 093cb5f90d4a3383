"""Run that ended by the script's own error while its steps were repeated on cached batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from headrace.doctor.session.model import CommandOutcome, ProbedProcess, Session, SessionNote
from headrace.doctor.session.trainers import DRAIN, LOAD, REPLAY

_REPLAYING = (REPLAY, LOAD, DRAIN)
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

    why: str

    @classmethod
    def of(cls, session: Session) -> FailedReplay | None:
        """Return the failure of a run; None if it did not fail in a window of cached batches."""
        failed = [one for one in session.processes if ended_in(one)]
        if session.outcome.why != "failed" or not failed:
            return None
        return cls(why_failed(session.outcome, failed))

    @property
    def text(self) -> str:
        return f"The script ended by {self.why} on repeated batches."

    @property
    def note(self) -> SessionNote:
        """Note about this run, for a later run."""
        return SessionNote("no-replay", f"The run was only observed. {self.text}")
