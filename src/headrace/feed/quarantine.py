"""The quarantine file: bad samples as JSON lines, for people; nothing reads it back."""

from __future__ import annotations

import json
import time
import warnings
from pathlib import Path

from headrace.errors import SampleError, UsageError


class Quarantine:
    """Writes each bad sample of a loader once, whatever the number of epochs. Thread-safe, also across a fork.

    A line holds key, shard, offset, field, why, epoch, position and time. Ranks and runs may share the file.
    """

    def __init__(self, path: Path) -> None:
        """Raises UsageError where the file cannot be written: better now than at the first bad sample."""
        self.path = path
        self._writer_of: dict[int, object] = {}
        try:
            path.open("ab").close()
        except OSError as error:
            raise UsageError(
                f"quarantine: expected a file that can be written, got {path}: {error.strerror}; name another"
            ) from error

    def add(self, sample: int, error: SampleError, *, epoch: int, position: int) -> None:
        """A disk that is full later on costs the record, not the run: it warns."""
        mine = object()
        if self._writer_of.setdefault(sample, mine) is not mine:  # one step: no lock that a fork could leave taken
            return
        record = {
            "key": error.key,
            "shard": error.shard,
            "offset": error.offset,
            "field": error.field,
            "why": error.why,
            "epoch": epoch,
            "position": position,
            "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        }
        # One write of one line, so that writers do not mix. JSON escapes the surrogates of odd names.
        try:
            with self.path.open("ab", buffering=0) as file:
                file.write(json.dumps(record).encode() + b"\n")
        except OSError as failure:
            warnings.warn(
                f"quarantine: {self.path} cannot be written ({failure.strerror}), so it lacks {error}", stacklevel=2
            )
