"""What probes noted: what they could not see or understand, and what is odd about how the script trains."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.doctor.analyse.parts import FORWARD
from headrace.doctor.measure.diagnosis import Finding
from headrace.doctor.measure.view import View
from headrace.doctor.quantities import counted, percent
from headrace.doctor.session.model import Session

NOT_KNOWN, NOT_SEEN = "not-known", "not-seen"
NOTES = {
    "hook-off": ("A hook of the doctor failed and was taken off", "What it measures is missing from this report."),
    NOT_KNOWN: ("A library is of a version that the doctor does not know", "Look for a newer Headrace."),
    NOT_SEEN: (
        "What gives the batches cannot be hooked",
        "Make it a function of a module, or an iterator of a class with __next__; or a DataLoader.",
    ),
    "engine": ("The training engine is not understood", "Steps may be counted otherwise than the engine does."),
    "no-optimizer": ("No optimizer stepped", "Look at the figures by batch; there are none by step."),
    "optimizers": ("Several optimizers step", "A step ends with the last of them."),
    "scaler": ("GradScaler skipped steps", "Look at the loss scale: skipped steps train nothing."),
    "capture": ("CUDA graphs are captured", "What runs in a graph is not told apart on the GPU."),
    "data-parallel": (
        "nn.DataParallel is used",
        "Look at DistributedDataParallel: DataParallel copies the model at each step, and one process feeds all GPUs.",
    ),
    "compile": ("torch.compile is used", "Compilation falls into the first steps; a longer warm-up leaves it out."),
    "thread": (
        "Batches are fetched in a thread",
        "The loop waits for that thread, and not for the DataLoader: its wait is not seen as data wait.",
    ),
    "disk": ("Evidence could not be written", "Look at the space on the disk of the session's folder."),
    "thread-died": ("An exception ended a thread", "Look at its traceback, among the notes."),
    "not-put-back": (
        "A file is not as it was before the run",
        "Look at the file that is named: what was kept of it is in the session's folder.",
    ),
    "unseen-write": (
        "Files changed during the run, and no Python process said so",
        "Look at the files that are named: they stay as the run left them.",
    ),
    "not-listed": ("Changes of other programs were not looked for", "Look at what the command writes by itself."),
    "no-replay": (
        "The same batches were not trained on again",
        "The time that a step takes without waiting for data was not measured.",
    ),
    "leftover": ("A process outlived the command", "Look at what starts it: the doctor has ended it."),
    "empty": ("An evidence file could not be read", "Look at the space on the disk of the session's folder."),
}
"""By code of a note: what it means, and what to make of it."""
PLAIN = frozenset(("put-back",))
"""Codes of notes that call for nothing."""
WITHIN = {"data-parallel": ("copies are made", FORWARD)}
"""By code: what of it takes time, and the part of a step that holds that time and so is the most that it can be."""


def note_findings(session: Session, view: View | None) -> Iterator[Finding]:
    """One finding for each code and text, however many processes note it."""
    seen: dict[tuple[str, str], list[int]] = {}
    for note in session.notes:
        if note.code in PLAIN:
            continue
        seen.setdefault((note.code, note.text), []).append(note.pid or 0)
    for (code, text), pids in seen.items():
        meaning, advice = NOTES.get(code, (f"The probe notes {code!r}", ""))
        weight, where = _taken(code, view)
        yield Finding(code, weight, f"{meaning}: {text}", f"{_noting(pids)}{where}", advice)


def _noting(pids: list[int]) -> str:
    where = f"process {pids[0]}" if pids[0] else ""
    more = f" and {counted(len(set(pids)) - 1, 'other')}" if len(set(pids)) > 1 else ""
    return where + more


def _taken(code: str, view: View | None) -> tuple[float, str]:
    """Share of a step, and how to say it; nothing where no step was measured, or the note is of no part of it."""
    if code not in WITHIN or view is None:
        return 0.0, ""
    what, part = WITHIN[code]
    share = view.share(part)
    return (share, f"; {what} within {part}, {percent(share)} of each {view.training.unit}") if share else (0.0, "")
