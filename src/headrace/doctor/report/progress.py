"""Progress of a diagnosis: one line on a terminal, below the command's own output, and gone at the end."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.control import Control
from rich.segment import ControlType
from rich.text import Text

from headrace.doctor.measure import IN_WORDS, DiagnosisPlan, about
from headrace.doctor.probe import ProbeSettings
from headrace.doctor.quantities import counted, duration
from headrace.doctor.report.live import CurrentWindow, EvidenceTail, LivePace, LivePaceMeter, WindowMeter
from headrace.doctor.report.terminal_layout import TerminalPage

LOOK_EVERY_S = 0.5
ERASE = Control(ControlType.CARRIAGE_RETURN, (ControlType.ERASE_IN_LINE, 2))


def progress_text(plan: DiagnosisPlan, pace: LivePace, window: CurrentWindow | None) -> str:
    """Return how far a run is: `observing 34 of 200 steps, 94.1 ms a step, about 40 s left`."""
    if window is None or pace.steps_per_s is None:
        return "the script starts"
    done, many = window.done or 0, "" if window.steps is None else f" {window.done} of {counted(window.steps, 'step')}"
    left_s = plan.seconds_left(window.name, done, 1 / pace.steps_per_s)
    doing = IN_WORDS.get(window.name, "ending the run")
    return f"{doing}{many}, {duration(1e6 / pace.steps_per_s)} a step, {about(left_s)} left"


class ProgressLine:
    """Line at the foot of a terminal while it is entered; elsewhere, the expected time is all that is said.

    It is drawn where the command has ended a line of its own, so that a progress bar of the command's keeps its place.
    All of it happens in one thread.
    """

    def __init__(
        self,
        settings: ProbeSettings,
        plan: DiagnosisPlan,
        console: Console,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._plan = plan
        self._console = console
        self._clock = clock
        self.draws = console.is_terminal and not console.is_dumb_terminal
        self._tail = EvidenceTail(Path(settings.evidence))
        self._pace = LivePaceMeter()
        self._windows = WindowMeter(settings)
        self._is_shown = False
        self._is_at_start = True
        """Whether the cursor is where a line begins."""
        self._next_look = 0.0

    def __enter__(self) -> ProgressLine:
        return self

    def __exit__(self, *_: object) -> None:
        self.hide()

    def announce(self) -> None:
        """Say how long it will take."""
        self._write(f"headrace: {self._plan.text()}\n")

    # What runs, of BelowOutput.

    def hide(self) -> None:
        if self._is_shown:
            self._is_shown = False
            self._write(ERASE)

    def wrote(self, stream: int, data: bytes) -> None:
        if data and os.isatty(stream):
            self._is_at_start = data.endswith(b"\n")

    def look(self) -> None:
        if not self.draws or self._clock() < self._next_look:
            return
        self._next_look = self._clock() + LOOK_EVERY_S
        records = list(self._tail.new_records())
        self._pace.add(records)
        self._windows.add(records)
        self._show(progress_text(self._plan, self._pace.pace(), self._windows.current()))

    # What the doctor does after it.

    def begins(self, phase: str) -> None:
        """Show a phase of the doctor's own."""
        self._show(IN_WORDS[phase])

    def tells(self, what: str) -> None:
        """Show what is being done."""
        self._show(what)

    def _show(self, text: str) -> None:
        if not self.draws or not self._is_at_start:
            return
        shown = TerminalPage(ascii_only=self._console.options.ascii_only).shown(f"headrace: {text}")
        self._write(ERASE, Text(shown[: self._console.width - 1], "dim"))
        self._is_shown = self.draws

    def _write(self, *parts: str | Text | Control) -> None:
        try:
            self._console.print(*parts, sep="", end="", soft_wrap=True, highlight=False, markup=False)
        except OSError:  # nobody reads it any more, which is no fault of the run's
            self.draws = False
