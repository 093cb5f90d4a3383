"""Takes batches at the pace observed and drops them, so that the workers go on while the loop is fed with copies."""

from __future__ import annotations

import threading
import time

from ..training.loader_sources import Source

LONGEST_STOP_S = 2.0


class Load:
    """A thread for one source. It ends when it is stopped, or when the source does."""

    def __init__(self, source: Source, interval_s: float) -> None:
        self.source = source
        self._interval_s = interval_s
        self._stop = threading.Event()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="headrace-load", daemon=True)
        self.taken = 0

    def start(self) -> None:
        self._thread.start()

    @property
    def is_on(self) -> bool:
        """False once the source has ended, by itself or by an error."""
        return not self._ended.is_set()

    def stop(self) -> bool:
        """Whether it has ended in time: else it is in the middle of waiting for a batch, and the source is its own."""
        self._stop.set()
        self._thread.join(LONGEST_STOP_S)
        return not self._thread.is_alive()

    def _run(self) -> None:
        due = time.monotonic()
        try:
            while not self._stop.wait(max(0.0, due - time.monotonic())):
                self.source.take()
                self.taken += 1
                due = max(due + self._interval_s, time.monotonic())
        except Exception:  # of the user's loader, whose end it is: the training loop will not ask it any more
            self._ended.set()
