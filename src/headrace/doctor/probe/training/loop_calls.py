"""Calls of the training loop that make it wait for the device, or that print: how many a step, how long, from where.

What the backward pass, optimizers and loaders call does not count, nor what an evaluation does. A loop that reads its
tensors number by number makes thousands of such calls a step: then whole steps pass without being watched.
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
"""Calls of a step whose cost is never too much."""
REST_STEPS = 64
"""Steps that pass without being watched after one in which watching cost too much."""
MOST_TURNS = 8
"""Steps that are watched in turns. Each turn replaces methods of a class, of which Python keeps a count."""
MOST_ROWS = 64
"""Places between two records; calls of further ones are counted without a place."""
_PARTS_OF_RUN = 20
"""The next record comes after one of as many parts of the run so far: a long run writes few."""

Place = tuple[str, int, str]
"""File, line and function."""
Row = tuple[str, Optional[Place], bool]
"""What is called, the place in the user's code, and whether the device is waited for."""


class LoopCalls:
    """Calls of one training thread, counted by what is called and from where.

    `watch` and `ignore` are the hook's: calls of tensors' methods are seen, or are not.
    """

    def __init__(self, name: Callable[[str], int]) -> None:
        """`name` returns a text's number in the evidence."""
        self.watch: Callable[[], None] = nothing
        self.ignore: Callable[[], None] = nothing
        self.is_evaluating = False
        """Whether the batch at hand came while autograd was off."""
        self.is_inside = False
        """Whether such a call is under way: what it calls itself does not count."""
        self.rest = 0.0
        """Steps that are yet to pass without being watched."""
        self._name = name
        self._rows: dict[Row, list[int]] = {}
        """Calls and nanoseconds."""
        self._steps = 0
        """Watched since the last record."""
        self._calls = self._cost_ns = 0
        """Of the step under way."""
        self._since = time.monotonic_ns()
        self._turns = 0
        self._begun: int | None = None
        self._due = 0

    def add(self, what: str, caller: FrameType, waits: bool, start: int, end: int) -> int:
        """Count a call from `start` to `end`, and return what counting it cost, in nanoseconds."""
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
        """Count a step that has ended; let the next ones pass where watching it cost too much."""
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
        """Begin anew in the child of a fork."""
        self._rows.clear()
        self._steps = self._calls = self._cost_ns = 0
        self.is_inside = self.is_evaluating = False

    def records(self, now: int, now_us: int, is_over: bool) -> list[Record]:
        """Return the calls of the steps that were watched since the last record, once that is due."""
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
