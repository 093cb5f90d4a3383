"""From a folder of evidence to a session."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from .session import read_session
from .session.model import CommandOutcome, Machine, Session, SessionNote, UnreachedProcess


def concluded(
    folder: Path,
    *,
    outcome: CommandOutcome,
    mode: str,
    machines: Sequence[Machine] = (),
    unreached: Sequence[UnreachedProcess] = (),
    notes: Sequence[SessionNote] = (),
) -> Session:
    """Merge the evidence and the samples. Only the evidence knows where the doctor ended a run."""
    session = read_session(
        folder,
        outcome=outcome,
        mode=mode,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        headrace=_version(),
        machines=machines,
        unreached=unreached,
        notes=notes,
    )
    if outcome.why != "interrupted" and any(process.ended == "steps" for process in session.processes):
        session.outcome = replace(outcome, why="steps")
    return session


def _version() -> str:
    """Return the root package's version, loaded as this one's parent; nothing below may import from it."""
    return str(sys.modules["headrace"].__version__)
