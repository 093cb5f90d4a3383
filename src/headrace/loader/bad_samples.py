"""Bad samples: counted, bounded, and written to the quarantine file."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from pathlib import Path

from headrace._core import Code
from headrace.data import Dataset, outside_root_text
from headrace.errors import (
    ChangedError,
    DecodeError,
    HeadraceError,
    LimitError,
    OutsideRootError,
    ReadError,
    SampleError,
    TooManyBadSamplesError,
    UnsupportedError,
    UsageError,
    ViewError,
    warn_caller,
)


class Quarantine:
    """File of bad samples, one JSON line each, for people: nothing reads it back.

    Each bad sample of a loader is written once over all epochs, with key, shard, offset, field, why, epoch, position
    and time. Ranks and runs may share the file. Thread-safe, also across a fork.
    """

    def __init__(self, path: Path) -> None:
        """Raise UsageError now, not at the first bad sample, if the file cannot be written."""
        self.path = path
        self._writer_of: dict[int, object] = {}
        try:
            path.open("ab").close()
        except OSError as error:
            raise UsageError(
                f"quarantine: expected a file that can be written, got {path}: {error.strerror}; name another"
            ) from error

    def add(self, sample: int, error: SampleError, *, epoch: int, position: int) -> None:
        """Write a bad sample. A full disk costs the record, not the run: it only warns."""
        mine = object()
        if self._writer_of.setdefault(sample, mine) is not mine:  # atomic, without a lock that a fork could leave taken
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
        # One write per line, so that the lines of several writers do not mix. JSON escapes the surrogates of
        # undecodable names.
        try:
            with self.path.open("ab", buffering=0) as file:
                file.write(json.dumps(record).encode() + b"\n")
        except OSError as failure:
            warn_caller(f"quarantine: {self.path} cannot be written ({failure.strerror}), so it lacks {error}")


_KINDS: dict[int, type[SampleError]] = {
    Code.DECLINED: DecodeError,
    Code.CORRUPT: DecodeError,
    Code.LIMIT: LimitError,
    Code.UNSUPPORTED: UnsupportedError,
    Code.UNFIT: ViewError,
}

MAX_ATTEMPTS = 100
"""Replacements tried for one sample. With 1 % bad, the chance that 100 in a row are bad is 10^-200."""


def error_of(code: int, why: str, *, dataset: Dataset, sample: int, field: str, column: str) -> HeadraceError:
    """Return the exception for a failure that the core reported for a dataset's sample."""
    key, named = dataset.key(sample), dataset.named(column, sample)
    if code == Code.OUTSIDE:
        return OutsideRootError(f"{_place(key, named, field)}: {outside_root_text(why)}")
    if code == Code.MISSING:
        where = dataset.table.place
        return ReadError(f"{_place(key, named, field)}: {why} {where}; correct it, or leave the sample out")
    shard, offset = dataset.where(column, sample)
    if code == Code.CHANGED and dataset.files(column).is_remote:  # the store reports the version that was indexed
        return ChangedError(
            f"{_place(key, named, field)}: {shard} at byte {offset}: expected what was indexed, got other bytes at "
            f"each of 2 reads. It was replaced, or a proxy answers in place of the store: check both, and open it again"
        )
    return error_at(code, why, key=key, shard=shard, offset=offset, field=field, named=named)


def error_at(
    code: int, why: str, *, key: str, shard: str, offset: int | None, field: str, named: str | None = None
) -> HeadraceError:
    """Return the exception for a failure code. `named` is the text that names the file."""
    if code in _KINDS:
        if named is not None:
            why = f"{why} ({named})"
        if _KINDS[code] is LimitError:
            why += "; raise it with limits=headrace.Limits(...) if you trust the file"
        return _KINDS[code](why, key=key, shard=shard, offset=offset, field=field)
    at = _place(key, named, field)
    if code == Code.IO:
        return ReadError(f"{at}: {why}; is the file still there, and readable?")
    if code == Code.CHANGED:
        return ChangedError(f"{at}: {why}")
    if code == Code.VIEW:
        return UsageError(f"{at}: {why}")
    return HeadraceError(f"{at}: {why}")


def _place(key: str, named: str | None, field: str) -> str:
    return f"sample {key!r}{'' if named is None else f' ({named})'}, field {field!r}"


_NAMED = 5
"""Bad samples that the error lists, besides the last one."""


class BadSamples:
    """Bad samples of one pass: counted, and written to the quarantine. Thread-safe.

    `samples` is the number of samples that one pass takes. Each rank judges by its own part.
    """

    def __init__(self, *, samples: int, max_bad: float, quarantine: Quarantine | None) -> None:
        self._most = max(1, int(max_bad * samples)) if max_bad > 0 else 0
        self._samples = samples
        self._max_bad = max_bad
        self._quarantine = quarantine
        self._lock = threading.Lock()
        self._seen: set[int] = set()
        self._first: list[SampleError] = []
        self._counts = Counter[str]()

    def __len__(self) -> int:
        return len(self._seen)

    def count(self, what: str, samples: int = 1) -> None:
        """Count samples that were "declined" by the core, or "replaced"."""
        with self._lock:
            self._counts[what] += samples

    def counted(self, what: str) -> int:
        return self._counts[what]

    def add(self, sample: int, error: SampleError, *, epoch: int, position: int) -> None:
        """Count a bad sample. Raises TooManyBadSamplesError if the share of bad samples exceeds `max_bad`."""
        with self._lock:
            if sample in self._seen:
                return
            self._seen.add(sample)
            if self._quarantine is not None:
                self._quarantine.add(sample, error, epoch=epoch, position=position)
            if len(self._first) < _NAMED:
                self._first.append(error.with_traceback(None))
            if len(self._seen) > self._most:
                named = "".join(f"\n  {each}" for each in dict.fromkeys([*self._first, error]))
                left_out = len(self._seen) - len(self._first) - (error not in self._first)
                raise TooManyBadSamplesError(
                    f"{len(self._seen)} of {self._samples:,} samples are bad, expected at most {self._most} "
                    f"(max_bad={self._max_bad}):{named}\n"
                    + (f"and {left_out:,} more. " if left_out else "")
                    + "Look at them"
                    + (f" in {self._quarantine.path}" if self._quarantine is not None else " with quarantine=PATH")
                    + ", or raise max_bad"
                ) from error
