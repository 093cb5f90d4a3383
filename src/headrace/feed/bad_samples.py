"""What becomes of samples that cannot be decoded: named, counted, written down, replaced or raised."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

from headrace.data import Dataset
from headrace.errors import (
    ChangedError,
    DecodeError,
    HeadraceError,
    LimitError,
    ReadError,
    SampleError,
    TooManyBadSamplesError,
    UnsupportedError,
    UsageError,
)

DECLINED = 1
_KINDS: dict[int, type[SampleError]] = {1: DecodeError, 2: DecodeError, 3: LimitError, 4: UnsupportedError}
_IO, _CHANGED, _VIEW = 5, 6, 8

MAX_ATTEMPTS = 100
"""Replacements tried for one sample. With 1 % bad, the chance that 100 in a row are bad is 10^-200."""


def error_of(code: int, why: str, *, dataset: Dataset, sample: int, field: str, column: str) -> HeadraceError:
    """The exception for a failure that the core reported (core/common/fault.hpp)."""
    key = dataset.key(sample)
    shard, offset = dataset.where(column, sample)
    if code in _KINDS:
        return _KINDS[code](why, key=key, shard=shard, offset=offset, field=field)
    at = f"sample {key!r}, field {field!r}"
    if code == _IO:
        return ReadError(f"{at}: {why}; is the file still there, and readable?")
    if code == _CHANGED:
        return ChangedError(f"{at}: {why}")
    if code == _VIEW:
        return UsageError(f"{at}: {why}")
    return HeadraceError(f"{at}: {why}")


class BadSamples:
    """Counts bad samples of one pass and writes them to the quarantine file, once each. Thread-safe.

    The file is JSON lines (key, shard, offset, field, why, epoch, position, time) that nothing reads back.
    """

    def __init__(self, *, samples: int, max_bad: float, quarantine: Path | None) -> None:
        self._most = max(1, int(max_bad * samples))
        self._samples = samples
        self._max_bad = max_bad
        self._quarantine = quarantine
        self._lock = threading.Lock()
        self._seen: set[int] = set()
        self.replaced = 0
        self.declined = 0

    def __len__(self) -> int:
        return len(self._seen)

    def count_declined(self) -> None:
        with self._lock:
            self.declined += 1

    def count_replaced(self) -> None:
        with self._lock:
            self.replaced += 1

    def add(self, sample: int, error: SampleError, *, epoch: int, position: int) -> None:
        """Raises TooManyBadSamplesError when the run can no longer be trusted."""
        with self._lock:
            if sample in self._seen:
                return
            self._seen.add(sample)
            self._write(error, epoch, position)
            if len(self._seen) > self._most:
                raise TooManyBadSamplesError(
                    f"{len(self._seen)} of {self._samples} samples are bad, expected at most {self._most} "
                    f"(max_bad={self._max_bad}); the last: {error}. Look at them"
                    + (f" in {self._quarantine}" if self._quarantine is not None else " with quarantine=PATH")
                    + ", or raise max_bad"
                ) from error

    def _write(self, error: SampleError, epoch: int, position: int) -> None:
        if self._quarantine is None:
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
        # One write of one line: ranks and runs may share the file. Surrogates of odd names are escaped by JSON.
        with self._quarantine.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
