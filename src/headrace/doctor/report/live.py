"""Progress of a running command, shown below its output: a line, or with `--live` a few rows."""

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
from headrace.doctor.quantities import counted, duration, number, percent
from headrace.doctor.report.run_text import name_text
from headrace.doctor.report.terminal_layout import TerminalPage, TerminalRow, heat

STAGES = 3
REFRESH_S = 0.5
LINE_EVERY_S = 10.0

GpuReader = Callable[[], float | None]
"""Function that returns the GPU's current activity as a share; None if not measured."""


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


def live_page(now: RunProgress, gpu: float | None, *, width: int, ascii_only: bool) -> TerminalPage:
    """Return a few rows: progress, main waits, and load of workers and GPU."""
    page = TerminalPage(width, ascii_only=ascii_only)
    if now.step is None:
        page.line("headrace doctor: no step yet", indent=0, style="dim")
        return page
    page.sentence(_position(now), lead="doctor  ", lead_style="bold")
    workers = f"{counted(now.workers, 'worker')} busy"
    shares = [("waits for data", now.wait_share, True), (workers, now.busy, False), ("GPU busy", gpu, False)]
    stages = [(name_text(name), share, True) for name, share in now.stages[:STAGES]]
    for rows, indent in ((shares, 2), (stages, 4)):
        page.rows(
            [
                TerminalRow(name, (percent(share),), share, heat(share) if hot and share is not None else "cyan")
                for name, share, hot in rows
            ],
            indent=indent,
        )
    return page


def live_line(now: RunProgress, gpu: float | None, *, ascii_only: bool) -> str:
    """Return the same content as a single line, for output without a terminal."""
    stage = f", most in {name_text(now.stages[0][0])} {percent(now.stages[0][1])}" if now.stages else ""
    text = (
        f"headrace doctor: {_position(now)}, "
        f"waits for data {percent(now.wait_share)}, "
        f"{counted(now.workers, 'worker')} busy {percent(now.busy)}{stage}, GPU busy {percent(gpu)}"
    )
    return TerminalPage(ascii_only=ascii_only).shown(text)


def _position(now: RunProgress) -> str:
    """Return text such as `step 1,204, 8.1 steps/s, replaying 14 of 40 steps`."""
    at = f"step {now.step:,}, {number(now.steps_per_s)} steps/s"
    return at if now.window is None else f"{at}, {window_text(now.window)}"


class RunStatus:
    """Status at the bottom of a terminal while entered: a progress line, or with `live` a few rows.

    A progress line is drawn only after the command ended an output line, so the command's own progress bars stay in
    place, and without a terminal, only the expected time is printed. Live rows need the command's output line by line
    (`relay`); without a terminal, they are a line every few seconds.

    Args:
        live: Reader of the GPU's activity, for live rows.
        has_output: True if all output of the command goes to this terminal.
    """

    def __init__(
        self,
        settings: ProbeSettings,
        plan: DiagnosisPlan,
        console: Console,
        *,
        live: GpuReader | None = None,
        has_output: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._meter = RunMeter(settings)
        self._plan = plan
        self._console = console
        self._live = live
        self._clock = clock
        self.draws = has_output and console.is_terminal and not console.is_dumb_terminal
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

    def relay(self, line: str) -> None:
        """Print a line of the command's output in its original colours."""
        self.hide()
        self._write(Text.from_ansi(line), "\n")

    # Methods of `BelowOutput`

    def hide(self) -> None:
        if self._shown:
            self._write(self._erase())
            self._shown = 0

    def wrote(self, stream: int, data: bytes) -> None:
        if data and self._live is None and os.isatty(stream):
            self._is_at_start = data.endswith(b"\n")

    def look(self) -> None:
        if self._clock() < self._next_look or not (self.draws or self._live):
            return
        self._next_look = self._clock() + (REFRESH_S if self.draws else LINE_EVERY_S)
        now, ascii_only = self._meter.look(), self._console.options.ascii_only
        if self._live is None:
            self.tells(progress_text(self._plan, now))
        elif self.draws:
            self._show(live_page(now, self._live(), width=self._console.width, ascii_only=ascii_only).lines)
        elif now.step is not None:
            self._write(live_line(now, self._live(), ascii_only=ascii_only), "\n")

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
