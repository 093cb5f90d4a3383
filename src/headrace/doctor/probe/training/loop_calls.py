"""Calls of the training loop that wait for the device or print: number per step, duration, and call site.

Calls inside the backward pass, optimizers, loaders and evaluations do not count. A loop that reads tensors element by
element makes thousands of calls per step; whole steps then pass unwatched.
"""

from __future__ import annotations

import time
from math import inf
from types import FrameType
from typing import TYPE_CHECKING, Callable, Optional

from ..overhead import AIM, ALWAYS_NS, MOST_STEP_SHARE, nothing
from ..stack_sampler import users_frame

if TYPE_CHECKING:
    from ..evidence_file import Record

FEW_CALLS = 16
"""Number of calls per step at an always acceptable cost."""
REST_STEPS = 64
"""Steps that pass unwatched after one in which watching cost too much."""
MOST_TURNS = 8
"""Maximum number of switches to unwatched steps. Each replaces methods of a class, which Python counts."""
MOST_ROWS = 64
"""Maximum number of call sites per record; further calls are counted without a place."""
_PARTS_OF_RUN = 20
"""Inverse share of the run so far until the next record is due, so that a long run writes few records."""

Place = tuple[str, int, str]
"""File, line and function."""
Row = tuple[str, Optional[Place], bool]
"""Called function, place in user code, and True if it waits for the device."""


class LoopCalls:
    """Calls of one training thread, counted by function and call site.

    The hook sets `watch` and `ignore`, which switch the observation of tensor methods.
    """

    def __init__(self, name: Callable[[str], int]) -> None:
        """`name` returns a text's number in the evidence."""
        self.watch: Callable[[], None] = nothing
        self.ignore: Callable[[], None] = nothing
        self.is_evaluating = False
        """True if the current batch arrived while autograd was off."""
        self.is_inside = False
        """True during a counted call. Its inner calls do not count."""
        self.rest = 0.0
        """Remaining steps to pass unwatched."""
        self._name = name
        self._rows: dict[Row, list[int]] = {}
        """Number of calls and nanoseconds, by row."""
        self._steps = 0
        """Steps watched since the last record."""
        self._calls = self._cost_ns = 0
        """Calls and cost of the current step."""
        self._since = time.monotonic_ns()
        self._turns = 0
        self._begun: int | None = None
        self._due = 0

    def add(self, what: str, caller: FrameType, waits: bool, start: int, end: int) -> int:
        """Count a call from `start` to `end`, and return the cost of counting in nanoseconds."""
        frame = users_frame(caller)
        place = None
        if frame is not None:
            code = frame.f_code
            place = (code.co_filename, frame.f_lineno, getattr(code, "co_qualname", code.co_name))
        row = (what, place, waits)
        if row not in self._rows and len(self._rows) >= MOST_ROWS:
            row = (what, None, waits)
        counted = self._rows.setdefault(row, [0, 0])
        counted[0] += 1
        counted[1] += end - start
        self._calls += 1
        cost = time.monotonic_ns() - end
        self._cost_ns += cost
        return cost

    def closed(self) -> None:
        """Count a finished step, and stop watching for a while if watching cost too much."""
        calls, cost_ns, self._calls, self._cost_ns = self._calls, self._cost_ns, 0, 0
        since, self._since = self._since, time.monotonic_ns()
        if self.rest:
            self.rest -= 1
            if not self.rest:
                self.watch()
            return
        self._steps += 1
        bound = AIM * max(MOST_STEP_SHARE * (self._since - since), ALWAYS_NS)
        if calls > FEW_CALLS and cost_ns > bound:
            self._turns += 1
            self.rest = REST_STEPS if self._turns < MOST_TURNS else inf
            self.ignore()

    def forked(self) -> None:
        self._rows.clear()
        self._steps = self._calls = self._cost_ns = 0
        self.is_inside = self.is_evaluating = False

    def records(self, now: int, now_us: int, is_over: bool) -> list[Record]:
        """Return the record of calls in steps watched since the last record, once due."""
        if self._begun is None:
            self._begun = now
        if not self._steps or (now < self._due and not is_over):
            return []
        self._due = now + (now - self._begun) // _PARTS_OF_RUN
        steps, rows, self._steps, self._rows = self._steps, self._rows, 0, {}
        counted = [
            (
                self._name(what),
                -1 if place is None else self._name("{}:{}:{}".format(*place)),
                int(waits),
                calls,
                ns // 1000,
            )
            for (what, place, waits), (calls, ns) in rows.items()
        ]
        return [("calls", now_us, steps, counted)]
