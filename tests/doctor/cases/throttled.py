"""Storage that gives so many bytes a second to all of its readers together, as a network share does."""

from __future__ import annotations

import fcntl
import os
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

import torch
from torch.utils.data import Dataset, get_worker_info


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


class ThrottledFiles(Dataset[torch.Tensor]):
    """Each worker reads one sample after the other from its own pipe."""

    def __init__(self, readers: int, *, size: int, bytes_per_s: float) -> None:
        self._storage = ThrottledStorage(readers, size=size, bytes_per_s=bytes_per_s)
        self._size = size
        self._file: BinaryIO | None = None

    def __len__(self) -> int:
        return 8_000

    def __getitem__(self, index: int) -> torch.Tensor:
        if self._file is None:
            self._file = open(self._storage.path(get_worker_info().id), "rb")  # noqa: SIM115 - as long as the worker
        return torch.frombuffer(bytearray(self._file.read(self._size)), dtype=torch.uint8)
