"""What the doctor could not see or understand, what hung, and what measuring cost, on a page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from headrace.doctor.causes.processes import hanging
from headrace.doctor.measure.diagnosis import Cost
from headrace.doctor.report.detail import Detail
from headrace.doctor.report.escaping import counted, duration, share, size
from headrace.doctor.report.terminal_layout import Page
from headrace.doctor.session.model import Session


def put_notes(page: Page, session: Session, cost: Cost, detail: Detail) -> None:
    """Of a note of many lines, a traceback, the last is the one that tells; the others come with full detail."""
    notes = list(note_texts(session))
    measured = cost.evidence_bytes > 0
    if notes or measured:
        left = len(notes) - detail.notes
        page.heading("Notes", f"and {counted(left, 'note')} more: {detail.rest}" if left > 0 else "")
    for head, text in notes[: detail.notes]:
        lines = text.rstrip().splitlines() or [""]
        page.sentence(head + lines[-1], lead="  • ")
        for line in lines[:-1][: detail.note_lines]:
            page.quote(line, indent=4)
    if measured:
        page.sentence(cost_words(cost), lead="  • ")


def put_hung(page: Page, session: Session, detail: Detail) -> None:
    """The stacks that were taken of processes that no longer moved, innermost frames last."""
    for process, stack in hanging(session):
        page.heading(f"Process {process.pid} hangs here")
        for line in stack.rstrip().splitlines()[-detail.last_lines :]:
            page.quote(line)


def note_texts(session: Session) -> Iterator[tuple[str, str]]:
    """What each is about, and what it says."""
    for process in session.unreached:
        yield f"not reached: {process.command} ({process.pid}): ", process.why
    yield from _distinct(session)
    cut = sum(process.cut for process in session.processes)
    if cut:
        yield "", f"the evidence of {counted(cut, 'process')} is thinned or cut short; means are of what was kept"
    passed = [sum(rest.steps for rest in trainer.rests) for trainer in session.trainers if trainer.rests]
    if passed:
        steps = counted(max(passed), "step")
        yield "", f"{steps} passed without being measured, so that the run is not slowed down; shares are of the others"


def _distinct(session: Session) -> Iterator[tuple[str, str]]:
    """Each text once, with its process, or how many had the same."""
    times = Counter((note.code, note.text) for note in session.notes)
    pids = {(note.code, note.text): note.pid for note in session.notes}
    for (code, text), many in times.items():
        pid = pids[code, text]
        who = f" ({many} ×)" if many > 1 else "" if pid is None else f" (process {pid})"
        yield f"{code}{who}: ", text


def cost_words(cost: Cost) -> str:
    return (
        f"measuring cost {duration(cost.step_us)} a step ({share(cost.step_share)}), {share(cost.worker_share)} of the "
        f"making of batches, and {size(cost.evidence_bytes)} of evidence"
    )
