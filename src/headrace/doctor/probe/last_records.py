"""The last records of a process: how it ends, as far as it can say so itself."""

from __future__ import annotations

import gc
import os
import traceback
from typing import Callable

from .clock import Clock
from .evidence_file import Evidence

ERROR_LINES = 50
ERROR_CHARS = 16_000


class LastRecords:
    """Written once a process. Hooks that hold something back until the end add a callback."""

    def __init__(self, evidence: Evidence, clock: Clock) -> None:
        self._evidence = evidence
        self._clock = clock
        self._callbacks: list[Callable[[], None]] = []
        self._ended = 0
        self._told: str | None = None

    def add(self, callback: Callable[[], None]) -> None:
        """Calls it before the `end` record is written: in this process, and in each fork of it that ends orderly."""
        self._callbacks.append(callback)

    def write(self, reason: str) -> None:
        """Writes what hooks have held back, and the `end` record; nothing where there is no evidence so far."""
        if self._ended == os.getpid() or not self._evidence.is_begun:
            return
        self._ended = os.getpid()
        # A DataLoader's iterator that only the collector frees waits 5 s for its workers if that happens here, among
        # the functions called at exit, and not at all if it happens after them, as it would without us.
        was_enabled = gc.isenabled()
        gc.disable()
        try:
            for callback in self._callbacks:
                self._call(callback)
            self._evidence.write_last(("end", self._clock.now_us(), reason))
        finally:
            if was_enabled:
                gc.enable()

    def _call(self, callback: Callable[[], None]) -> None:
        try:
            callback()
        except Exception as error:
            self._evidence.write_last(("note", self._clock.now_us(), "hook-off", f"at the end: {error!r}"))

    def failed(self, error: BaseException) -> None:
        """Writes the `error` record: once an exception, which is known by its text. Were it held, all that its frames
        hold would live on in a process that shows an error by sys.excepthook and carries on."""
        text = text_of(error)
        if text != self._told:
            self._told = text
            self._evidence.write_last(("error", self._clock.now_us(), text))


def text_of(error: BaseException) -> str:
    """The traceback's last lines, bounded: an exception's text may hold a tensor."""
    try:
        text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    except Exception:  # the user's exception fails to say what it is
        text = type(error).__qualname__
    lines = [line if len(line) <= 500 else line[:497] + "..." for line in text.rstrip().splitlines()[-ERROR_LINES:]]
    return "\n".join(lines)[-ERROR_CHARS:]
