"""How a run goes at the moment: rates and shares over its last seconds, from evidence records as they come."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from headrace.doctor.report.tail import Record, TailedProcess, take_in

WINDOW_US = 10_000_000


@dataclass(frozen=True)
class Pace:
    """The last seconds. None where nothing was seen yet."""

    step: int | None
    """Number of the newest."""
    steps_per_s: float | None
    """Of one rank, on average."""
    wait_share: float | None
    """Of the training threads' time, waiting for data."""
    workers: int
    """Processes that made a batch."""
    busy: float | None
    """Share of their time in which they made one."""
    stages: list[tuple[str, float]] = field(default_factory=list)
    """`category:label` and its share of the making, heaviest first."""


class PaceMeter:
    """Takes records in and forgets those that are older than the window. Times are the session's, in microseconds."""

    def __init__(self, window_us: int = WINDOW_US) -> None:
        self._window_us = window_us
        self._steps: deque[tuple[int, int, str]] = deque()  # end, duration, trainer
        self._waits: deque[tuple[int, int]] = deque()  # end, duration
        self._batches: deque[tuple[int, int, str, list[tuple[str, int]]]] = deque()  # end, wall, maker, stages
        self._newest: int | None = None
        self._now_us = 0

    def add(self, records: Iterable[tuple[TailedProcess, Record]]) -> None:
        take_in(records, self._take)

    def pace(self) -> Pace:
        since = self._now_us - self._window_us
        for kept in (self._steps, self._waits, self._batches):
            while kept and kept[0][0] < since:
                kept.popleft()
        steps_us = sum(duration for _, duration, _ in self._steps)
        making_us = sum(wall for _, wall, _, _ in self._batches)
        makers = {maker for _, _, maker, _ in self._batches}
        return Pace(
            step=self._newest,
            steps_per_s=len(self._steps) * 1e6 / steps_us if steps_us else None,
            wait_share=min(sum(duration for _, duration in self._waits) / steps_us, 1.0) if steps_us else None,
            workers=len(makers),
            busy=min(making_us / (len(makers) * self._covered_us()), 1.0) if makers else None,
            stages=self._stages(),
        )

    def _take(self, process: TailedProcess, record: Record) -> None:
        kind = record[0]
        if kind == "step":
            _, number, start, end, *_ = record
            self._steps.append((end, end - start, process.path.name))
            self._newest = max(self._newest or 0, number)
            self._now_us = max(self._now_us, end)
        elif kind == "get":
            start, duration = record[3:5]
            self._waits.append((start + duration, duration))
        elif kind == "batch":
            start, fetched, stages = record[3], record[4], record[8]
            named = [(process.names[stage], wall) for stage, _, wall, _ in stages]
            self._batches.append((fetched, fetched - start, process.path.name, named))
            self._now_us = max(self._now_us, fetched)

    def _covered_us(self) -> int:
        """The window, or what of it there has been."""
        first = min(end - wall for end, wall, _, _ in self._batches)
        return max(min(self._window_us, self._now_us - first), 1)

    def _stages(self) -> list[tuple[str, float]]:
        walls: Counter[str] = Counter()
        for *_, stages in self._batches:
            for name, wall in stages:
                walls[name] += wall
        whole = walls.total()
        return [(name, wall / whole) for name, wall in walls.most_common()] if whole else []
