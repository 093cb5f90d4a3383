"""Progress of a running command, in a line below its output."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence

from rich.console import Console
from rich.control import Control
from rich.segment import ControlType
from rich.text import Text

from headrace.doctor.measure import IN_WORDS, CurrentWindow, DiagnosisPlan, RunMeter, RunProgress, about
from headrace.doctor.probe import ProbeSettings
from headrace.doctor.quantities import counted, duration
from headrace.doctor.report.terminal_layout import TerminalPage

REFRESH_S = 0.5


def window_text(window: CurrentWindow) -> str:
    """Return text such as `replaying 14 of 40 steps`."""
    done = "" if window.steps is None else f" {window.done} of {counted(window.steps, 'step')}"
    return f"{IN_WORDS[window.name]}{done}"


def progress_text(plan: DiagnosisPlan, now: RunProgress) -> str:
    """Return text such as `observing 34 of 200 steps, 94.1 ms a step, about 40 s left`."""
    window = now.window
    if window is None or now.steps_per_s is None:
        return "the script starts"
    left_s = plan.seconds_left(window.name, window.done or 0, 1 / now.steps_per_s)
    return f"{window_text(window)}, {duration(1e6 / now.steps_per_s)} a step, {about(left_s)} left"


class RunStatus:
    """Progress line at the bottom of a terminal while entered.

    It is drawn only after the command ended an output line, so the command's own progress bars stay in place. Without a
    terminal, only the expected time is printed.
    """

    def __init__(
        self,
        settings: ProbeSettings,
        plan: DiagnosisPlan,
        console: Console,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._meter = RunMeter(settings)
        self._plan = plan
        self._console = console
        self._clock = clock
        self.draws = console.is_terminal and not console.is_dumb_terminal
        self._shown = 0
        """Number of lines on the terminal."""
        self._is_at_start = True
        """True while the cursor is at the start of a line."""
        self._next_look = 0.0

    def __enter__(self) -> RunStatus:
        return self

    def __exit__(self, *_: object) -> None:
        self.hide()

    def announce(self) -> None:
        """Print the expected duration."""
        self._write(f"headrace: {self._plan.text()}\n")

    # Methods of `BelowOutput`

    def hide(self) -> None:
        if self._shown:
            self._write(self._erase())
            self._shown = 0

    def wrote(self, stream: int, data: bytes) -> None:
        if data and os.isatty(stream):
            self._is_at_start = data.endswith(b"\n")

    def look(self) -> None:
        if self.draws and self._clock() >= self._next_look:
            self._next_look = self._clock() + REFRESH_S
            self.tells(progress_text(self._plan, self._meter.look()))

    # Work of the doctor after the run

    def begins(self, phase: str) -> None:
        """Show a phase of the doctor's own work."""
        self.tells(IN_WORDS[phase])

    def tells(self, what: str) -> None:
        """Show the current activity."""
        shown = TerminalPage(ascii_only=self._console.options.ascii_only).shown(f"headrace: {what}")
        self._show([Text(shown, "dim")])

    def _show(self, lines: Sequence[Text]) -> None:
        if self.draws and self._is_at_start:
            for line in lines:
                line.truncate(self._console.width - 1)
            self._write(self._erase(), Text("\n").join(lines))
            self._shown = len(lines) if self.draws else 0

    def _erase(self) -> Control:
        above = [(ControlType.CURSOR_UP, 1), (ControlType.ERASE_IN_LINE, 2)] * (self._shown - 1)
        return Control(ControlType.CARRIAGE_RETURN, (ControlType.ERASE_IN_LINE, 2), *above)

    def _write(self, *parts: str | Text | Control) -> None:
        try:
            self._console.print(*parts, sep="", end="", soft_wrap=True, highlight=False, markup=False)
        except OSError:  # the reader is gone, which is no fault of the run
            self.draws = False
