"""When the device came past certain points of each step: marks that are set in passing and read when it is done."""

from __future__ import annotations

from typing import Any, Protocol

Marks = list[tuple[str, float]]
"""Kind, and microseconds since the process's first mark."""
STEP_BEGINS, STEP_ENDS = "s", "p"


class Device(Protocol):
    """What can put a mark into the work queued on a device: `CudaDevice`, or a simulated one in tests."""

    def follow(self) -> None:
        """What is computed on now is what marks are of: called when an optimizer steps."""

    def record(self, spare: Any) -> Any:
        """A mark behind all work queued so far, in `spare` where that is given; None where no mark may be set now."""

    def is_done(self, mark: Any) -> bool:
        """Whether the device has come past the mark. Never waits."""

    def elapsed_us(self, earlier: Any, later: Any) -> float:
        """Between two marks that are done."""


class DeviceMarks:
    """Marks of the open step, and of the steps that the device has not come past yet.

    Nothing here waits for the device: a step's marks are read once its last one is done. A device that falls more than
    `most_steps` behind gets no marks until it has caught up. The mark at which a step ends begins the next one.
    """

    def __init__(self, device: Device, most_steps: int = 32, most_marks: int = 128) -> None:
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

    def begin(self) -> None:
        """A step begins here, whatever was marked since the one before was closed."""
        self._step = []
        mark = self.device.record(None)
        if mark is not None:
            self._step.append((STEP_BEGINS, mark))

    def close(self, number: int, is_wanted: bool) -> None:
        """The step's marks are complete, up to the last end of an optimizer."""
        marks = self._step
        end = max((position for position, (kind, _) in enumerate(marks) if kind == STEP_ENDS), default=-1) + 1
        if not end:
            self._step = []
            return
        self._step = [(STEP_BEGINS, marks[end - 1][1]), *marks[end:]]
        if is_wanted:
            self._waiting.append((number, marks[:end]))
        else:
            self._spares.extend(mark for _, mark in marks[1 : end - 1] if mark is not marks[0][1])

    def read(self) -> list[tuple[int, Marks]]:
        """The steps that the device has come past since the last call."""
        done: list[tuple[int, Marks]] = []
        while self._waiting and self.device.is_done(self._waiting[0][1][-1][1]):
            number, marks = self._waiting.pop(0)
            done.append((number, [(kind, self._since_first(mark)) for kind, mark in marks]))
        return done

    def _since_first(self, mark: Any) -> float:
        """Counted from mark to mark, since the device tells a long time in few digits."""
        if self._last_read is None:
            self._last_read = mark
        elif mark is not self._last_read:
            self._last_read_us += self.device.elapsed_us(self._last_read, mark)
            self._spares.append(self._last_read)
            self._last_read = mark
        return self._last_read_us
