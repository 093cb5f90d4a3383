"""Happens-before checker: finds uses of memory that nothing orders, whatever the order in this run."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

import headrace
from stream_double.clocks import Clock, Clocks, Moment, join, this_thread

READ_BEFORE_COPY = "read-before-copy"
"""The device reads what a copy, or a kernel of the same thread, may not have written yet."""
MISSING_WAIT = "missing-wait"
"""A consumer's stream reads a batch of another thread without having waited for its ready event."""
WRITE_UNDER_USE = "write-under-use"
"""The device writes memory while another stream may still use it."""
REUSE_ACROSS_STREAMS = "reuse-across-streams"
"""A freed block goes back to the stream that allocated it while another stream may still use it."""
REFILL_UNDER_COPY = "refill-under-copy"
"""The host writes pinned memory, or may get it anew, while a copy from it is in flight."""
HOST_READ_UNSYNCHRONISED = "host-read-unsynchronised"
"""The host reads a result of the device that may not be there yet."""
NEEDLESS_SYNC = "needless-sync"
"""The product waits for the device in its hot path."""

PRODUCT = str(Path(headrace.__file__).parent)
OUTSIDE = (str(Path(torch.__file__).parent), str(Path(__file__).parent), "<")
"""Code that is never to blame: torch, this package, and generated code."""
MEASURES = str(Path(PRODUCT, "device", "memory.py"))
"""The meter of a step's memory has to wait for the step, once each: no hot path."""


@dataclass(frozen=True)
class Finding:
    """Fault in the order of work, by its code."""

    code: str
    what: str
    where: str
    """Innermost line outside torch and this package."""

    def __str__(self) -> str:
        return f"{self.code} at {self.where}: {self.what}"


class Checker:
    """Findings of one run, from the calls of the doubles. All methods may be called by any thread."""

    def __init__(self) -> None:
        self.clocks = Clocks()
        self.lock = threading.RLock()
        self.findings: list[Finding] = []

    @property
    def codes(self) -> set[str]:
        with self.lock:
            return {finding.code for finding in self.findings}

    def report(self, code: str, what: str) -> None:
        with self.lock:
            self.findings.append(Finding(code, what, _place_of(_frame())))

    def launch(
        self,
        stream: str,
        reads: Iterable[DeviceBlock],
        writes: Iterable[DeviceBlock],
        what: str,
        *,
        is_copy: bool = False,
    ) -> Moment:
        """Enqueue an operation, and report what it uses too early."""
        with self.lock:
            moment = self.clocks.enqueue(stream, is_copy=is_copy)
            clock = self.clocks.of_stream(stream)
            for block in reads:
                self._check_read(block, clock, what)
                block.uses[stream] = moment
            for block in writes:
                if not all(use.is_before(clock) for use in block.uses.values()):
                    self.report(WRITE_UNDER_USE, what)
                block.uses[stream] = block.written = moment
            return moment

    def _check_read(self, block: DeviceBlock, clock: Clock, what: str) -> None:
        written = block.written
        if written is None or written.is_before(clock):
            return
        is_other = written.thread != this_thread()
        self.report(MISSING_WAIT if is_other else READ_BEFORE_COPY, f"{what} reads what {written.stream} writes")

    def free(self, block: DeviceBlock) -> None:
        """Give a block back to the stream that allocated it, which may reuse it at once.

        As in torch's caching allocator, only streams named by `record_stream` are waited for.
        """
        with self.lock:
            clock = self.clocks.of_stream(block.stream)
            join(clock, self.clocks.known())
            for stream, use in block.uses.items():
                if stream not in block.recorded and not use.is_before(clock):
                    self.report(REUSE_ACROSS_STREAMS, f"memory of {block.stream} is freed under its use on {stream}")

    def wait_on_host(self, clock: Clock, what: str) -> None:
        """Let the calling thread wait; report it in the product's hot path."""
        with self.lock:
            self.clocks.learn(clock)
            frame = _frame()
            path = frame.f_code.co_filename
            if path.startswith(PRODUCT) and path != MEASURES:
                self.report(NEEDLESS_SYNC, what)

    def read_on_host(self, clock: Clock, what: str) -> None:
        """Report a host's read of what is complete at `clock` only, unless this thread has waited for it."""
        with self.lock:
            known = self.clocks.known()
            if any(known.get(stream, 0) < number for stream, number in clock.items()):
                self.report(HOST_READ_UNSYNCHRONISED, what)


@dataclass(eq=False)
class DeviceBlock:
    """Memory of the device, and its last use on each stream."""

    checker: Checker
    stream: str
    """Stream on which it was allocated."""
    storage: Any = None
    """Memory that stands for it: the storage lives as long as the block."""
    written: Moment | None = None
    uses: dict[str, Moment] = field(default_factory=dict)
    recorded: set[str] = field(default_factory=set)
    """Streams named by `record_stream`."""

    def __del__(self) -> None:
        self.checker.free(self)


def _frame() -> Any:
    """Return the innermost frame of the product or of a test."""
    frame = sys._getframe(1)
    while frame.f_code.co_filename.startswith(OUTSIDE) and frame.f_back is not None:
        frame = frame.f_back
    return frame


def _place_of(frame: Any) -> str:
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno} {frame.f_code.co_name}"
