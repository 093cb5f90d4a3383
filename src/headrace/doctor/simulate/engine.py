"""Processes that compute on shared cores and wait, on a simulated clock. Times are microseconds."""

from __future__ import annotations

from collections.abc import Generator
from heapq import heappop, heappush
from math import ceil

COMPUTE, TEAM, WAIT, PARK = "compute", "team", "wait", "park"
TAKING_TURNS = 1.12
"""Factor on work of teams that share a core and its caches, as measured in tests/doctor/recorded_pairs."""
_NEVER = float("inf")

Request = tuple[str, float, float]
"""Request of a process. Threads of a TEAM wait for each other, WAIT needs no core, PARK lasts until woken."""
Behaviour = Generator[Request, None, None]
PARKED: Request = (PARK, 0.0, 0.0)


class SimulatedProcess:
    """Process that continues once its request is met."""

    __slots__ = ("behaviour", "has_ended", "is_parked", "is_team", "threads")

    def __init__(self, behaviour: Behaviour) -> None:
        self.behaviour = behaviour
        self.is_parked = self.has_ended = self.is_team = False
        self.threads = 0.0


class Engine:
    """Shared cores.

    With too few cores, all computing threads slow down by the same factor. Remaining work is stored as a point on a
    common scale, the work done by a thread present from the beginning, so a change in the number of threads needs no
    updates.

    The threads of a team meet at a barrier after each small part of the work, as OpenMP's do, and spin until the last
    arrives. So a team is as fast as its thread on the most crowded core, and the cores of its waiting threads do
    nothing for others.
    """

    def __init__(self, cores: float | None, others: float = 0.0) -> None:
        """Share `cores` with `others`: threads of other programs that compute all the time."""
        self.now = 0.0
        self.current: SimulatedProcess | None = None
        self._cores = float("inf") if cores is None else cores
        self._work = 0.0
        self._threads = self._others = others
        self.others_us = 0.0
        """CPU time of other programs."""
        self._speed = 1.0
        self._teams = 0
        self._computing: list[tuple[float, int, SimulatedProcess]] = []
        self._waiting: list[tuple[float, int, SimulatedProcess]] = []
        self._order = 0

    def start(self, behaviour: Behaviour) -> SimulatedProcess:
        process = SimulatedProcess(behaviour)
        self._resume(process)
        return process

    def wake(self, process: SimulatedProcess | None) -> None:
        if process is not None and process.is_parked:
            process.is_parked = False
            self._resume(process)

    def run(self, last: SimulatedProcess) -> None:
        """Run until this process has ended, or nothing is in progress. Parked processes then stay parked."""
        computing, waiting = self._computing, self._waiting
        while not last.has_ended:
            done = self.now + (computing[0][0] - self._work) / self._speed if computing else _NEVER
            until = waiting[0][0] if waiting else _NEVER
            at = min(done, until)
            if at == _NEVER:
                return
            done_us = (at - self.now) * self._speed
            self._work += done_us
            self.others_us += self._others * done_us
            self.now = at
            if done <= until:
                process = heappop(computing)[2]
                self._teams -= process.is_team
                self._compute_threads(-process.threads)
            else:
                process = heappop(waiting)[2]
            self._resume(process)

    def _resume(self, process: SimulatedProcess) -> None:
        """Run a process until it requests something that takes time."""
        before, self.current = self.current, process
        for kind, amount, threads in process.behaviour:
            if kind is PARK:
                process.is_parked = True
                break
            if amount <= 0:
                continue
            self._order += 1
            if kind is WAIT:
                heappush(self._waiting, (self.now + amount, self._order, process))
            else:
                process.threads, process.is_team = threads, kind is TEAM
                self._teams += process.is_team
                self._compute_threads(threads)
                heappush(self._computing, (self._work + amount, self._order, process))
            break
        else:
            process.has_ended = True
        self.current = before

    def _compute_threads(self, more: float) -> None:
        self._threads = threads = self._threads + more
        if threads <= self._cores:
            self._speed = 1.0
        elif not self._teams:
            self._speed = self._cores / threads
        else:  # speed of a thread on the most crowded core; fractional threads mean one more part of the time
            whole = int(threads)
            each = [ceil(number / ceil(self._cores)) for number in (whole, whole + 1)]
            slow, slower = (1.0 if number <= 1 else 1.0 / (number * TAKING_TURNS) for number in each)
            self._speed = slow + (threads - whole) * (slower - slow)


def compute(us: float, threads: float = 1.0) -> Request:
    return COMPUTE, us, threads


def team(us: float, threads: float) -> Request:
    return TEAM, us, threads


def wait(us: float) -> Request:
    return WAIT, us, 0.0
