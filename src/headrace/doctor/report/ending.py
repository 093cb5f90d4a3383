"""How the command ended, on a page."""

from __future__ import annotations

import shlex

from headrace.doctor.report.escaping import duration
from headrace.doctor.report.terminal_layout import Page
from headrace.doctor.session.model import Outcome, Session

_ENDINGS = {
    "finished": "ran to its end in {}",
    "steps": "ended by the doctor after the steps asked for, in {}",
    "not found": "could not be started",
    "interrupted": "interrupted after {}",
    "running": "still running after {}",
}


def command_line(session: Session) -> str:
    """The command in one line, as a shell would take it; a notebook has none."""
    return shlex.join(session.outcome.command) or "watched in this process"


def ending(outcome: Outcome) -> str:
    """A few words: how the command ended, with its exit status."""
    took = duration(outcome.duration)
    if outcome.why == "failed" and outcome.status is not None and outcome.status > 128:
        return f"ended by signal {outcome.status - 128} after {took}"
    if outcome.why == "failed":
        return f"failed after {took}" + ("" if outcome.status is None else f", exit status {outcome.status}")
    status = "" if outcome.status in (0, None) else f", exit status {outcome.status}"
    return _ENDINGS.get(outcome.why, outcome.why).format(took) + status


def put_last_lines(page: Page, session: Session, *, most: int) -> None:
    """What the command said last, where it failed."""
    lines = last_words(session)
    if lines:
        page.heading("Last lines of the command")
        for line in lines[-most:]:
            page.quote(line)


def last_words(session: Session) -> list[str]:
    """Lines that say why a command failed; none where it did not."""
    outcome = session.outcome
    errors = [process.error for process in session.processes if process.error]
    if outcome.why not in ("failed", "not found") and not errors:
        return []
    said = outcome.last_lines or (errors[-1].splitlines() if errors else [])
    return [line for line in said if line.strip()]
