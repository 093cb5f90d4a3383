"""The windows that a measured run went through, on a page."""

from __future__ import annotations

from headrace.doctor.report.escaping import counted, duration
from headrace.doctor.report.terminal_layout import Page
from headrace.doctor.session.model import Session, Trainer, Window

_DONE = {"observe": "observed", "replay": "replayed", "load": "replayed beside the workers", "drain": "drained"}


def put_windows(page: Page, session: Session) -> None:
    """A line: what was done for how long, on the first rank that had windows; all go through the same."""
    trainer = next((one for one in session.trainers if one.windows), None)
    if trainer is not None:
        page.sentence(" · ".join(_words(window, trainer) for window in trainer.windows), lead="windows: ", style="dim")


def _words(window: Window, trainer: Trainer) -> str:
    """`40 steps replayed in 1.2 s`, without those that settle, in a time with them."""
    done = _DONE.get(window.name, window.name)
    many = (
        counted(window.steps - window.settling, "step")
        if window.steps
        else counted(len(trainer.drained.index), "batch")
    )
    return f"{many} {done} in {duration(window.end - window.start)}"
