"""Evidence file of a process: one JSON array per line (see doctor/session/evidence.py), bounded in size."""

from __future__ import annotations

import fcntl
import gc
import json
import math
import operator
import os
import re
import sys
import threading
import traceback
from contextlib import suppress
from typing import Any, Callable

from .settings import SessionClock

CUT = "***"
_QUOTE = r"\\?[\"']"  # also the escaped quote of JSON within a text
_IN_QUOTES = r"(?:[^\"'\\]|\\[^\"'])+"
_WORD = r"(?!None\b|null\b|true\b|false\b)(?:[^\s\"'\\,;&)]|\\[^\"'])+"
_NAMED = (
    r"(?:secret(?:[_-]?access)?(?:[_-]?key)?|passw(?:or)?d|passphrase|credential|connection[_-]string|authorization"
    r"|(?:session|access|auth|security|sas|hf|bearer)[_-]?token|(?:account|access|api)[_-]?key(?:[_-]?id)?)"
)
"""Endings of setting names that hold a credential, as used by the SDKs and command lines of object stores."""
_NAMES = ("secret", "passw", "passphrase", "credential", "connection", "authorization", "token", "key")


def _cut(pattern: str, cut: str, *hints: str) -> tuple[tuple[str, ...], re.Pattern[str], str]:
    return hints, re.compile(pattern, re.IGNORECASE), cut


_CUTS = [
    _cut(r"(bearer\s+)[\w.~+/=-]{6,}", rf"\1{CUT}", "bearer"),
    _cut(r"(authorization\W{1,6}(?:basic|token)\s+)[\w.~+/=-]{4,}", rf"\1{CUT}", "authorization"),
    _cut(r"(?<=://)[^/@\s\"'<>]{1,1100}@", f"{CUT}@", "://"),
    _cut(r"(://[^\s?\"'<>\\]{0,1100})\?[^\s\"'<>\\]+", rf"\1?{CUT}", "://"),
    _cut(r"(x-(?:amz|goog)-[\w-]{1,40})=[^&\s\"'\\]+", rf"\1={CUT}", "x-amz", "x-goog"),
    _cut(rf"\b(awsaccesskeyid|signature|sig)={_WORD}", rf"\1={CUT}", "sig", "awsaccesskeyid"),
    _cut(rf"({_NAMED}{_QUOTE}\s*:\s*{_QUOTE})(?!bearer |basic |token ){_IN_QUOTES}", rf"\1{CUT}", *_NAMES),
    _cut(rf"({_QUOTE}token{_QUOTE}\s*:\s*{_QUOTE}){_IN_QUOTES}", rf"\1{CUT}", "token"),
    _cut(rf"({_NAMED}\s*[=:]\s*(?:{_QUOTE})?)(?!(?:basic|bearer|token)\s|[\s\"'{{\[\\]){_WORD}", rf"\1{CUT}", *_NAMES),
    # Command options, in a single string and as a list.
    _cut(rf"(--[\w-]{{0,30}}{_NAMED}(?:\s+|{_QUOTE},\s*{_QUOTE})){_WORD}", rf"\1{CUT}", *_NAMES),
    _cut(rf"(--token(?:=|\s+|{_QUOTE},\s*{_QUOTE})){_WORD}", rf"\1{CUT}", "--token"),
    _cut(
        rf"((?<![\w-])(?:-u|--user)(?:\s+|=|{_QUOTE},\s*{_QUOTE}){_QUOTE}?)[^\s\"':]{{1,80}}:{_WORD}",
        rf"\1{CUT}",
        *("-u ", '-u"', "-u'", "-u\\", "--user"),
    ),
    _cut(r"\b(?:AKIA|ASIA)[0-9A-Z]{10,}", CUT, "akia", "asia"),
    _cut(r"\b(?:hf|gh[oprsu])_[A-Za-z0-9]{16,}", CUT, "hf_", "gh"),
]


def without_credentials(text: str) -> str:
    """Return the text with `***` in place of each credential recognised by form or by name."""
    low = text.lower()
    for hints, pattern, cut in _CUTS:
        if any(hint in low for hint in hints):
            text = pattern.sub(cut, text)
    return text


Record = tuple[Any, ...]

MOST_HELD = 16
LONGEST_HELD_NS = 250_000_000
"""Steps or batches, and ns, for which records of the training thread may be held back and then written together.

A killed process loses this much. Writing each record separately costs several times as much, since the user's step
evicts the probe's code and data from the CPU caches (benchmarks/doctor_overhead.py).
"""
LAST_BYTES = 64 << 10
"""Bytes reserved, in a file of usual size, for the records of how the process ended."""
FIGURES = frozenset(
    (
        *("step", "get", "fetch", "replayed", "device", "ready", "collective", "padding", "window"),
        *("pass", "last", "before", "loop", "batch", "lines", "end"),
    )
)
"""Record kinds that hold only the probe's own numbers and words. All others may hold a credential of the script."""
ERROR_LINES = 50
ERROR_CHARS = 16_000


class EvidenceFile:
    """Evidence of one process, as docs/doctor/internals.md describes it.

    Each `write` is one unbuffered system call, so a killed process leaves everything written so far. Nothing here
    raises: a failed write ends the evidence, never the run, and is reported once.
    """

    def __init__(self, path: str, most_bytes: int, header: Callable[[], Record]) -> None:
        """Prepare the file; the first write creates it, beginning with `header()`."""
        self._most_bytes = most_bytes
        self._usual_bytes = most_bytes - min(LAST_BYTES, most_bytes // 4)
        self._header = header
        self.names: dict[str, int] = {}
        self._descriptor: int | None = None
        self._file = (0, 0)
        self._begin(path)

    def _begin(self, path: str) -> None:
        self.path = path
        # Re-entrant: a signal handler or finaliser of the user may run between any two lines of the probe and re-enter
        # through a hook.
        self._lock = threading.RLock()
        self._unwritten = list(self.names)
        self._written = 0
        self._is_over = False

    def forked(self, path: str) -> None:
        """Continue in `path` in a fork's child, where no thread holds the lock. Hooks still refer to the names."""
        was_over = self._is_over
        self._let_go()
        self._begin(path)
        self._is_over = was_over

    @property
    def is_begun(self) -> bool:
        return self._descriptor is not None

    def write(self, *records: Record) -> None:
        """Append all records, or none if they would exceed the bound. Without records, only create the file."""
        with self._lock:
            self._append(records, self._usual_bytes)

    def write_last(self, *records: Record) -> None:
        """Append records that must be written even if the file is full: how the process ends."""
        with self._lock:
            self._append(records, self._most_bytes)

    def name(self, text: str) -> int:
        """Return a number that stands for `text` in this file's records; the name is written with the next record."""
        number = self.names.get(text)
        if number is not None:
            return number
        with self._lock:
            if text not in self.names:
                self.names[text] = len(self.names)
                self._unwritten.append(text)
            return self.names[text]

    def close(self) -> None:
        with self._lock:
            self._is_over = True
            self._let_go()

    def _append(self, records: tuple[Record, ...], bound: int) -> None:
        if self._is_over:
            return
        try:
            if self._descriptor is None:
                self._open(os.O_CREAT)
                self._put(json_line(self._header()))
            elif not self._is_ours():
                self._open(0)
            names = len(self._unwritten)
            parts = [json_line(("name", self.names[text], text)) for text in self._unwritten[:names]]
            data = b"".join(parts + [json_line(record) for record in records])
            if self._written + len(data) <= bound:
                self._put(data)
                del self._unwritten[:names]
        except Exception as error:
            self.close()
            with suppress(Exception):  # the run's standard error may be closed, and nobody else can be notified
                sys.stderr.write(
                    f"headrace: {self.path}: {error}; the run goes on, this process is no longer observed\n"
                )

    def _open(self, flags: int) -> None:
        """Open the file above the standard descriptors: a script may have been started without these."""
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | flags, 0o600)
        self._descriptor = descriptor if descriptor > 2 else fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 3)
        if self._descriptor != descriptor:
            os.close(descriptor)
        self._file = _file_of(self._descriptor)

    def _is_ours(self) -> bool:
        """Return True if the descriptor is still this file's: daemons close all, and may reuse its number."""
        try:
            return self._descriptor is not None and _file_of(self._descriptor) == self._file
        except OSError:
            return False

    def _let_go(self) -> None:
        if self._is_ours():
            os.close(self._descriptor)  # type: ignore[arg-type]  # it is open
        self._descriptor = None

    def _put(self, data: bytes) -> None:
        written = os.write(self._descriptor, data) if data else 0  # type: ignore[arg-type]  # it is open
        self._written += written
        if written != len(data):
            raise OSError(f"{written} of {len(data)} bytes could be written: the disk is full, or a limit is reached")


def _file_of(descriptor: int) -> tuple[int, int]:
    """Return the device and inode that identify an open file."""
    stat = os.fstat(descriptor)
    return stat.st_dev, stat.st_ino


class LastRecords:
    """Last records of a process: how it ends, as far as the process itself knows. Written once per process."""

    def __init__(self, evidence: EvidenceFile, clock: SessionClock) -> None:
        self._evidence = evidence
        self._clock = clock
        self._callbacks: list[Callable[[], None]] = []
        self.reason = "exit"
        """Reason in the `end` record; `steps` once the doctor has ended the run."""
        self._ended = 0
        self._told: str | None = None

    def add(self, callback: Callable[[], None]) -> None:
        """Register a callback to run before the `end` record, in this process and in forks that exit normally."""
        self._callbacks.append(callback)

    def write(self) -> None:
        """Write what hooks have held back, and the `end` record. Does nothing if there is no evidence so far."""
        if self._ended == os.getpid() or not self._evidence.is_begun:
            return
        self._ended = os.getpid()
        # A DataLoader iterator that only the garbage collector frees waits 5 s for its workers if freed here, among the
        # functions called at exit. Freed after them, as without the probe, it does not wait.
        was_enabled = gc.isenabled()
        gc.disable()
        try:
            for callback in self._callbacks:
                self._call(callback)
            self._evidence.write_last(("end", self._clock.now_us(), self.reason))
        finally:
            if was_enabled:
                gc.enable()

    def _call(self, callback: Callable[[], None]) -> None:
        try:
            callback()
        except Exception as error:
            self._evidence.write_last(("note", self._clock.now_us(), "hook-off", f"at the end: {error!r}"))

    def failed(self, error: BaseException) -> None:
        """Write the `error` record, once per exception, by its text: a reference would keep its frames alive."""
        text = traceback_text(error)
        if text != self._told:
            self._told = text
            self._evidence.write_last(("error", self._clock.now_us(), text))


def traceback_text(error: BaseException) -> str:
    """Return the last lines of the traceback, bounded: an exception's text may hold a tensor."""
    try:
        text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    except Exception:  # the user's exception cannot be formatted
        text = type(error).__qualname__
    lines = [line if len(line) <= 500 else line[:497] + "..." for line in text.rstrip().splitlines()[-ERROR_LINES:]]
    return "\n".join(lines)[-ERROR_CHARS:]


# Escapes only control characters, so that invalid Unicode shows when the text is encoded.
_encode: Callable[[Any], str] = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode


def json_line(record: tuple[Any, ...]) -> bytes:
    """Encode a record as UTF-8 JSON and a line feed.

    Values that JSON cannot hold are approximated: numbers of other libraries become numbers, NaN and infinity null,
    lone surrogates `?`, anything else its text. Credentials are cut.
    """
    try:
        text = _encode(record)
    except (TypeError, ValueError):
        text = _encode(_plain(record))
    if record[0] not in FIGURES:
        text = without_credentials(text)
    return text.encode("utf-8", "replace") + b"\n"


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, dict):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(inner) for inner in value]
    if hasattr(value, "__index__"):
        return operator.index(value)
    if hasattr(value, "__float__"):
        number = float(value)
        return number if math.isfinite(number) else None
    return str(value)
