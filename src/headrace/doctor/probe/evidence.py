"""The evidence file of one process: one JSON array a line, appended whole, bounded in size."""

from __future__ import annotations

import json
import os
import sys
import threading
from typing import Any, Callable

Record = tuple[Any, ...]

_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=True, default=str).encode


class Evidence:
    """What docs/doctor/evidence.md describes. Each `write` is one system call without a buffer before it, so that a
    process that is killed leaves what it had. A write that fails ends the evidence, never the run, and says so once.
    """

    def __init__(
        self, path: str, most_bytes: int, header: Callable[[], Record], names: dict[str, int] | None = None
    ) -> None:
        """The file is made, and begun with `header()`, at the first write. `names` are those of the process that this
        one is a fork of: its hooks know stages by their numbers."""
        self.path = path
        self._most_bytes = most_bytes
        self._header = header
        self._lock = threading.Lock()
        self.names = dict(names or {})
        self._unwritten = list(self.names)
        self._descriptor: int | None = None
        self._written = 0
        self._is_over = False

    def write(self, *records: Record) -> None:
        """Appends the records, or none of them where they would exceed the bound."""
        with self._lock:
            self._append(records)

    def name(self, text: str) -> int:
        """A number that stands for `text` in this file's records. It is written with the next of them."""
        number = self.names.get(text)
        if number is not None:
            return number
        with self._lock:
            if text not in self.names:
                self.names[text] = len(self.names)
                self._unwritten.append(text)
            return self.names[text]

    @property
    def stride(self) -> int:
        """Of steps and batches, those whose number it divides are worth writing: 1 until the file is half full, 2 until
        three quarters, and so on, so that a run of any length fits."""
        free = self._most_bytes - self._written
        return 1 if free * 2 > self._most_bytes else 1 << (self._most_bytes // max(free, 1)).bit_length() - 1

    def close(self) -> None:
        with self._lock:
            self._is_over = True
            if self._descriptor is not None:
                os.close(self._descriptor)
                self._descriptor = None

    def _append(self, records: tuple[Record, ...]) -> None:
        if self._is_over:
            return
        try:
            if self._descriptor is None:
                self._descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
                self._put((self._header(),))
            if self._unwritten:
                names, self._unwritten = self._unwritten, []
                self._put(tuple(("name", self.names[text], text) for text in names))
            self._put(records)
        except OSError as error:
            self._is_over = True
            _say(f"headrace: {self.path}: {error}; the run goes on, this process is no longer observed")

    def _put(self, records: tuple[Record, ...]) -> None:
        assert self._descriptor is not None
        data = "".join([_encode(record) + "\n" for record in records]).encode("ascii")
        if self._written + len(data) > self._most_bytes:
            return
        if os.write(self._descriptor, data) != len(data):
            raise OSError("the last record could not be written whole")
        self._written += len(data)


def _say(text: str) -> None:
    try:
        sys.stderr.write(text + "\n")
    except Exception:  # the run's standard error may be closed; there is nobody else to tell
        return
