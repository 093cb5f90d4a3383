"""Progress of a running command, shown below its output: the progress line of a diagnosis, and the live view."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

from rich.console import Console, Group
from rich.control import Control
from rich.live import Live
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
ERASE = Control(ControlType.CARRIAGE_RETURN, (ControlType.ERASE_IN_LINE, 2))

GpuReader = Callable[[], float | None]
"""Function that returns the GPU's current activity as a share; None if not measured."""


def window_text(window: CurrentWindow) -> str:
    """Return text such as `replaying 14 of 40 steps`."""
    done = "" if window.steps is None else f" {window.done} of {counted(window.steps, 'step')}"
    return f"{IN_WORDS[window.name]}{done}"


# The progress line


def progress_text(plan: DiagnosisPlan, now: RunProgress) -> str:
    """Return text such as `observing 34 of 200 steps, 94.1 ms a step, about 40 s left`."""
    window = now.window
    if window is None or now.steps_per_s is None:
        return "the script starts"
    left_s = plan.seconds_left(window.name, window.done or 0, 1 / now.steps_per_s)
    return f"{window_text(window)}, {duration(1e6 / now.steps_per_s)} a step, {about(left_s)} left"


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
        self._meter = RunMeter(settings)
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
        if self.draws and self._clock() >= self._next_look:
            self._next_look = self._clock() + REFRESH_S
            self.tells(progress_text(self._plan, self._meter.look()))

    # Work of the doctor after the run

    def begins(self, phase: str) -> None:
        """Show a phase of the doctor's own work."""
        self.tells(IN_WORDS[phase])

    def tells(self, what: str) -> None:
        """Show the current activity."""
        if not self.draws or not self._is_at_start:
            return
        shown = TerminalPage(ascii_only=self._console.options.ascii_only).shown(f"headrace: {what}")
        self._write(ERASE, Text(shown[: self._console.width - 1], "dim"))
        self._is_shown = self.draws

    def _write(self, *parts: str | Text | Control) -> None:
        try:
            self._console.print(*parts, sep="", end="", soft_wrap=True, highlight=False, markup=False)
        except OSError:  # the reader is gone, which is no fault of the run
            self.draws = False


# The live view


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


class LiveView:
    """Live view that follows the evidence in its own thread while entered. `relay` prints above the view.

    Without a terminal, it prints a line every few seconds.
    """

    def __init__(self, settings: ProbeSettings, console: Console, *, gpu: GpuReader = lambda: None) -> None:
        self._meter = RunMeter(settings)
        self._console = console
        self._gpu = gpu
        self._is_over = threading.Event()
        self._live: Live | None = None
        self._thread = threading.Thread(target=self._run, name="headrace-doctor-live", daemon=True)

    def __enter__(self) -> LiveView:
        if self.draws:
            self._live = Live(console=self._console, auto_refresh=False, transient=True, redirect_stdout=False)
            self._live.start()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()
        if self._live is not None:
            self._live.stop()

    @property
    def draws(self) -> bool:
        """True if there is a terminal to draw on; otherwise the view prints lines."""
        return self._console.is_terminal and not self._console.is_dumb_terminal

    def relay(self, line: str) -> None:
        """Print a line of the command's output in its original colours."""
        self._console.print(Text.from_ansi(line), soft_wrap=True, highlight=False)

    def _run(self) -> None:
        every = REFRESH_S if self._live is not None else LINE_EVERY_S
        while not self._is_over.wait(every):
            self.look()

    def look(self) -> None:
        """Read new evidence and display it. The view's own thread calls this periodically."""
        now, ascii_only = self._meter.look(), self._console.options.ascii_only
        if self._live is not None:
            page = live_page(now, self._gpu(), width=self._console.width, ascii_only=ascii_only)
            self._live.update(Group(*page.lines), refresh=True)
        elif now.step is not None:
            line = live_line(now, self._gpu(), ascii_only=ascii_only)
            self._console.print(line, soft_wrap=True, highlight=False, markup=False)
