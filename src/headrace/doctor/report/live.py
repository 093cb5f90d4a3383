"""Status of the doctor's own work, before and after the command."""

from __future__ import annotations

from rich.console import Console
from rich.status import Status
from rich.text import Text

from headrace.doctor.measure import IN_WORDS, DiagnosisPlan
from headrace.doctor.report.terminal_layout import TerminalPage


class RunStatus:
    """Line at the bottom of a terminal after the command has ended. Elsewhere, only the expected time is printed."""

    def __init__(self, plan: DiagnosisPlan, console: Console) -> None:
        self._plan = plan
        self._console = console
        self._status: Status | None = None
        self.draws = console.is_terminal and not console.is_dumb_terminal

    def __enter__(self) -> RunStatus:
        return self

    def __exit__(self, *_: object) -> None:
        self.hide()

    def announce(self) -> None:
        """Print the expected duration."""
        try:
            self._console.print(f"headrace: {self._plan.text()}", soft_wrap=True, highlight=False, markup=False)
        except OSError:  # the reader is gone, which is no fault of the run
            self.draws = False

    def begins(self, phase: str) -> None:
        """Show a phase of the doctor's own work."""
        self.tells(IN_WORDS[phase])

    def tells(self, what: str) -> None:
        """Show the current activity."""
        if not self.draws:
            return
        shown = TerminalPage(ascii_only=self._console.options.ascii_only).shown(f"headrace: {what}")
        try:
            if self._status is None:
                self._status = self._console.status("")
                self._status.start()
            self._status.update(Text(shown))
        except OSError:
            self.draws = False

    def hide(self) -> None:
        if self._status is not None:
            self._status.stop()
            self._status = None
