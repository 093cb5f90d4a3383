"""Machine figures of the host that a trainer ran on."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil
from statistics import fmean, median
from typing import Any

from headrace.doctor.measure.batches import MadeBatch, busy_us
from headrace.doctor.session.model import Machine, ProbedProcess, Session
from headrace.doctor.session.trainers import BatchProducer, Trainer

Figures = dict[str, Any]
BUSY_CORES = 0.9
"""Share of busy cores above which a computing thread probably waits for one."""


@dataclass(frozen=True)
class Host:
    """One machine of a session during the measured steps, or the whole run if these have fewer than two readings."""

    machine: Machine
    trainers: list[Trainer]
    makers: list[BatchProducer]
    processes: dict[int, ProbedProcess]
    rows: range = field(repr=False)

    def known(self, column: str) -> list[float]:
        values = self.machine.columns.get(column, [])
        return [value for row in self.rows if row < len(values) and (value := values[row]) is not None]

    def mean(self, column: str) -> float | None:
        return fmean(values) if (values := self.known(column)) else None

    def peak(self, column: str) -> float | None:
        return max(self.known(column), default=None)

    def fact(self, name: str) -> float | None:
        value = self.machine.facts.get(name)
        return float(value) if isinstance(value, (int, float)) else None

    @property
    def cores(self) -> float | None:
        return self.fact("cores")

    @property
    def workers(self) -> int:
        """Maximum number of worker processes: the sum over trainers of the largest number in a pass."""
        return sum(
            max((len(set(one.workers) - {trainer.pid}) for one in trainer.passes), default=0)
            for trainer in self.trainers
        )

    @property
    def worker_makers(self) -> list[BatchProducer]:
        return [maker for maker in self.makers if maker.worker is not None]

    def figures(self, pid: int) -> Figures:
        return self.machine.processes.get(pid, {})

    def summed(self, makers: list[BatchProducer], figure: str) -> float | None:
        """Return the sum of a figure over the producers that have it; None if none does."""
        told = [value for maker in makers if (value := self.figures(maker.pid).get(figure)) is not None]
        return sum(told) if told else None

    def told(self, pid: int, kind: str, name: str) -> Any:
        """Return a value in a process's own records (`torch`, `facts`), or None."""
        process = self.processes.get(pid)
        return None if process is None else process.facts.get(kind, {}).get(name)

    def waited_share(self) -> float | None:
        """Return the median over producers of the share of life that the first thread was runnable without a core."""
        shares = []
        for maker in self.makers:
            figures = self.figures(maker.pid)
            started, last, waited_s = (figures.get(name) for name in ("started", "last", "cpu_wait_s"))
            if started is not None and last is not None and waited_s is not None and last > started:
                shares.append(min(float(waited_s) * 1e6 / float(last - started), 1.0))
        return median(shares) if shares else None

    @property
    def rank_cores(self) -> float | None:
        """Cores per rank with its workers: the host's ranks share them equally."""
        return None if self.cores is None else self.cores / max(len(self.trainers), 1)

    @property
    def others_cores(self) -> float:
        """Mean cores of these used by other programs."""
        return (self.mean("cpu_cores_other") or 0.0) / max(len(self.trainers), 1)

    def pool(self, pid: int) -> int:
        """Return the threads of a process's torch pool, within its cores; 1 if a device computes, or if unknown."""
        if self.told(pid, "facts", "device") is not None:
            return 1
        told = self.told(pid, "facts", "torch_threads")
        most = told if isinstance(told, int) else 1
        return most if self.rank_cores is None else min(most, max(ceil(self.rank_cores), 1))

    def has_pool_of_its_own(self, pid: int) -> bool:
        """Return True if OpenCV threads may produce a batch here. CPU time shows nothing: torch's own threads spin."""
        torch, opencv = (self.told(pid, "facts", label) for label in ("torch_threads", "opencv_threads"))
        return torch in (None, 1) or (isinstance(opencv, int) and opencv > 1)

    @property
    def is_busy(self) -> bool:
        """True if hardly any core was idle."""
        busy = self.mean("cpu_cores_busy")
        return busy is not None and busy >= BUSY_CORES * (self.cores or float("inf"))

    def delay(self, made: MadeBatch) -> float | None:
        """Return how long a batch's producer was runnable without a core (µs), or its share of its thread's wait."""
        maker, row = made
        batches = maker.batches
        told = batches.delay[row] if batches.delay else None
        if told is not None:
            return float(told)
        waited_s, worked = self.figures(maker.pid).get("cpu_wait_s"), busy_us(maker)
        if maker.worker is None or waited_s is None or not worked:
            return None
        return min(float(waited_s) * 1e6 / worked, 1.0) * (batches.fetched[row] - batches.start[row])


def hosts(session: Session) -> list[Host]:
    found = []
    for machine in session.machines:
        trainers = [trainer for trainer in session.trainers if trainer.host == machine.host]
        makers = [maker for maker in session.makers if maker.host == machine.host]
        processes = {process.pid: process for process in session.processes if process.host == machine.host}
        found.append(Host(machine, trainers, makers, processes, _rows(machine, trainers)))
    return found


def host_of(session: Session, trainer: Trainer) -> Host | None:
    """Return the host that a trainer ran on; None if no machine was sampled there."""
    return next((one for one in hosts(session) if one.machine.host == trainer.host), None)


def _rows(machine: Machine, trainers: list[Trainer]) -> range:
    """Return the readings that count. The time that each covers must have ended within the steps."""
    starts = [trainer.steps.start[0] for trainer in trainers if trainer.steps.start]
    ends = [trainer.steps.end[-1] for trainer in trainers if trainer.steps.end]
    if not starts:
        return range(len(machine.time))
    within = [row for row, time in enumerate(machine.time) if min(starts) < time <= max(ends)]
    return range(within[0], within[-1] + 1) if len(within) >= 2 else range(len(machine.time))
