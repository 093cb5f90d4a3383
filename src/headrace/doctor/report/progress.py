"""Progress line of a diagnosis, shown on a terminal below the command's output and erased at the end."""

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
    """Return text such as `observing 34 of 200 steps, 94.1 ms a step, about 40 s left`."""
    if window is None or pace.steps_per_s is None:
        return "the script starts"
    done, many = window.done or 0, "" if window.steps is None else f" {window.done} of {counted(window.steps, 'step')}"
    left_s = plan.seconds_left(window.name, done, 1 / pace.steps_per_s)
    doing = IN_WORDS.get(window.name, "ending the run")
    return f"{doing}{many}, {duration(1e6 / pace.steps_per_s)} a step, {about(left_s)} left"


class ProgressLine:
    """Progress line at the bottom of a terminal while entered. Without a terminal, only the expected time is printed.

    The line is drawn only after the command ended an output line, so the command's own progress bars stay in place.
    Everything runs in one thread.
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
        """True while the cursor is at the start of a line."""
        self._next_look = 0.0

    def __enter__(self) -> ProgressLine:
        return self

    def __exit__(self, *_: object) -> None:
        self.hide()

    def announce(self) -> None:
        """Print the expected duration."""
        self._write(f"headrace: {self._plan.text()}\n")

    # Methods of `BelowOutput`

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

    # Work of the doctor after the run

    def begins(self, phase: str) -> None:
        """Show a phase of the doctor's own work."""
        self._show(IN_WORDS[phase])

    def tells(self, what: str) -> None:
        """Show the current activity."""
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
        except OSError:  # the reader is gone, which is no fault of the run
            self.draws = False
