"""How the command ended, what the doctor could not see, and what it cost, on a page."""

from __future__ import annotations

import shlex
from collections import Counter

from headrace.doctor.analyse.diagnosis import Cost
from headrace.doctor.session.model import Outcome, Session

from .figures import counted, duration, share, size
from .page import Page

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
    outcome = session.outcome
    errors = [process.error for process in session.processes if process.error]
    if outcome.why not in ("failed", "not found") and not errors:
        return
    lines = outcome.last_lines or (errors[-1].splitlines() if errors else [])
    if lines:
        page.heading("Last lines of the command")
        for line in lines[-most:]:
            page.quote(line)


def put_notes(page: Page, session: Session, cost: Cost, *, most: int) -> None:
    """Processes that were not reached, the probes' notes (equal ones of many processes once), what measuring cost."""
    texts = [f"not reached: {process.command} ({process.pid}): {process.why}" for process in session.unreached]
    texts += [f"hung process {process.pid}: {stack}" for process in session.processes for stack in process.stacks]
    texts += [f"{text} (process {pid})" if pid is not None else text for text, pid in _distinct(session)]
    cut = sum(process.cut for process in session.processes)
    if cut:
        texts.append(f"the evidence of {counted(cut, 'process')} is thinned or cut short; means are of what was kept")
    page.heading("Notes")
    for text in texts[:most]:
        page.sentence(text, lead="  • ")
    if len(texts) > most:
        page.line(f"and {counted(len(texts) - most, 'note')} more: --verbose", style="dim")
    page.sentence(_in_words(cost), lead="  • ")


def _in_words(cost: Cost) -> str:
    return (
        f"measuring cost {duration(cost.step_us)} a step ({share(cost.step_share)}), {share(cost.worker_share)} of the "
        f"making of batches, and {size(cost.evidence_bytes)} of evidence"
    )


def _distinct(session: Session) -> list[tuple[str, int | None]]:
    """Each note's text once; of several processes, how many."""
    times = Counter((note.code, note.text) for note in session.notes)
    first = {(note.code, note.text): note.pid for note in reversed(session.notes)}
    return [
        (f"{code}: {text}" + (f" ({many} ×)" if many > 1 else ""), first[code, text] if many == 1 else None)
        for (code, text), many in times.items()
    ]
