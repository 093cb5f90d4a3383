"""Storage that gives so many bytes a second to all of its readers together, as a network share does: named pipes, one a
reader, that a thread of the training process writes to."""

from __future__ import annotations

import os
import tempfile
import threading
import time
from pathlib import Path


class ThrottledStorage:
    """Each open() of `path(reader)` for reading gives one file of `size` bytes."""

    def __init__(self, readers: int, *, size: int, bytes_per_s: float) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="throttled-")
        self._data = bytes(size)
        self._seconds = size / bytes_per_s
        self._turn = threading.Lock()
        for reader in range(readers):
            os.mkfifo(self.path(reader))
            threading.Thread(target=self._serve, args=(reader,), daemon=True).start()

    def path(self, reader: int) -> Path:
        return Path(self._folder.name) / f"reader-{reader}"

    def _serve(self, reader: int) -> None:
        while True:
            with open(self.path(reader), "wb") as pipe:
                with self._turn:
                    time.sleep(self._seconds)
                try:
                    pipe.write(self._data)
                except BrokenPipeError:
                    return
