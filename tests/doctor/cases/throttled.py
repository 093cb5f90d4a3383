"""Storage that gives so many bytes a second to all of its readers together, as a network share does."""

from __future__ import annotations

import fcntl
import os
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path


class ThrottledStorage:
    """Named pipes, one a reader, that threads of the training process write samples of `size` bytes to. Of what was
    not read yet a pipe holds a page."""

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
        with suppress(OSError), open(self.path(reader), "wb", buffering=0) as pipe:
            fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, 1)
            while True:
                with self._turn:
                    time.sleep(self._seconds)
                pipe.write(self._data)
