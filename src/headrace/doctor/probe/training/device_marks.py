"""Marks on the device's stream: timing events between the parts of a step, read once the device has passed them."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from ..evidence_file import Record

Marks = list[tuple[str, float]]
"""Kind, and microseconds since the first mark of the process."""
STEP_BEGINS, STEP_ENDS = "s", "p"


class CudaDevice:
    """The CUDA stream of the first optimizer step. Its marks are timing events, and querying a mark never blocks.

    Work on another stream, such as a prefetcher's copy, gets no mark, since times of two streams have no common order.
    """

    def __init__(self, torch: ModuleType) -> None:
        self._cuda = torch.cuda
        self._is_capturing = torch.cuda.is_current_stream_capturing
        self._stream: Any = None
        self.captures = 0
        """Number of CUDA graphs being captured, in any thread. The driver forbids queries during a capture."""

    def follow(self) -> None:
        """Follow the current stream, if none is followed. Called when an optimizer steps."""
        if self._stream is None:
            self._stream = self._cuda.current_stream()

    def record(self, spare: Any) -> Any:
        """Record a mark after all work queued so far, reusing `spare` if given; None if no mark is allowed now."""
        if self._stream is None or self.captures or self._is_capturing():
            return None
        if self._cuda.current_stream() != self._stream:
            return None
        event = self._cuda.Event(enable_timing=True) if spare is None else spare
        event.record(self._stream)
        return event

    def is_done(self, mark: Any) -> bool:
        """Return True if the device has passed the mark. Never blocks."""
        return not self.captures and bool(mark.query())

    def elapsed_us(self, earlier: Any, later: Any) -> float:
        return float(earlier.elapsed_time(later)) * 1000.0


class DeviceMarks:
    """Marks of the open step, and of the steps that the device has not passed yet.

    Nothing here waits for the device: a step's marks are read once the last of them is done. If the device falls more
    than `most_steps` behind, no marks are set until it has caught up. The mark that ends a step begins the next.
    """

    def __init__(self, device: CudaDevice, most_steps: int = 32, most_marks: int = 128) -> None:
        self.device = device
        self._most_steps = most_steps
        self._most_marks = most_marks
        self._spares: list[Any] = []
        self._step: list[tuple[str, Any]] = []
        self._waiting: list[tuple[int, list[tuple[str, Any]]]] = []
        self._last_read: Any = None
        self._last_read_us = 0.0

    def mark(self, kind: str) -> None:
        if len(self._step) >= self._most_marks or len(self._waiting) >= self._most_steps:
            return
        mark = self.device.record(self._spares.pop() if self._spares else None)
        if mark is None:
            return
        if not self._step:
            self._step.append((STEP_BEGINS, mark))
        self._step.append((kind, mark))

    def close(self, number: int) -> None:
        """Close the step: its marks are complete up to the last end of an optimizer."""
        marks = self._step
        end = max((position for position, (kind, _) in enumerate(marks) if kind == STEP_ENDS), default=-1) + 1
        if not end:
            self._step = []
            return
        self._step = [(STEP_BEGINS, marks[end - 1][1]), *marks[end:]]
        self._waiting.append((number, marks[:end]))

    def read(self) -> list[tuple[int, Marks]]:
        """Return the steps that the device has passed since the last call."""
        done: list[tuple[int, Marks]] = []
        while self._waiting and self.device.is_done(self._waiting[0][1][-1][1]):
            number, marks = self._waiting.pop(0)
            done.append((number, [(kind, self._since_first(mark)) for kind, mark in marks]))
        return done

    def _since_first(self, mark: Any) -> float:
        """Return the time since the first mark, summed mark by mark: the device reports long times in few digits."""
        if self._last_read is None:
            self._last_read = mark
        elif mark is not self._last_read:
            self._last_read_us += self.device.elapsed_us(self._last_read, mark)
            self._spares.append(self._last_read)
            self._last_read = mark
        return self._last_read_us


def device_records(marks: DeviceMarks) -> list[Record]:
    """Return the records of the steps that the device has passed.

    Marks are integers in tenths of a microsecond since the previous mark: absolute times have ten digits in a long run.
    Times are rounded before subtraction, so errors do not accumulate.
    """
    records: list[Record] = []
    for number, step_marks in marks.read():
        times = [round(us * 10) for _, us in step_marks]
        gaps = [time - before for before, time in zip([0, *times], times)]
        records.append(("device", number, "".join(kind for kind, _ in step_marks), gaps))
    return records
