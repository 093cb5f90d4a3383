"""A view of a run while it goes on: beside its output in a terminal, as a line now and then elsewhere."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from headrace.doctor.probe.settings import Settings
from headrace.doctor.report.live import WindowMeter
from headrace.doctor.report.live_page import live_line, live_page
from headrace.doctor.report.pace import PaceMeter
from headrace.doctor.report.tail import Tail

REFRESH_S = 0.5
LINE_EVERY_S = 10.0

Gpu = Callable[[], float | None]
"""The GPU's activity now, a share; None where it is not measured."""


class LiveView:
    """Follows the evidence in a thread of its own while it is entered. `relay` prints above it."""

    def __init__(self, settings: Settings, console: Console, *, gpu: Gpu = lambda: None) -> None:
        self._tail = Tail(Path(settings.evidence))
        self._pace = PaceMeter()
        self._windows = WindowMeter(settings)
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
        """Whether there is a terminal to draw on; else lines are printed."""
        return self._console.is_terminal and not self._console.is_dumb_terminal

    def relay(self, line: str) -> None:
        """A line of the command's output, with the colours it came in."""
        self._console.print(Text.from_ansi(line), soft_wrap=True, highlight=False)

    def _run(self) -> None:
        every = REFRESH_S if self._live is not None else LINE_EVERY_S
        while not self._is_over.wait(every):
            self.look()

    def look(self) -> None:
        """Takes in what is new and shows it. The view's own thread does so now and then."""
        records = list(self._tail.new_records())
        self._pace.add(records)
        self._windows.add(records)
        pace, window, ascii_only = self._pace.pace(), self._windows.current(), self._console.options.ascii_only
        if self._live is not None:
            page = live_page(pace, window, self._gpu(), width=self._console.width, ascii_only=ascii_only)
            self._live.update(Group(*page.lines), refresh=True)
        elif pace.step is not None:
            line = live_line(pace, window, self._gpu(), ascii_only=ascii_only)
            self._console.print(line, soft_wrap=True, highlight=False, markup=False)
