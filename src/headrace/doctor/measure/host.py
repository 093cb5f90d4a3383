"""Machine figures of the host that a trainer ran on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil
from statistics import fmean, median
from typing import Any

from ..session.model import Machine, ProbedProcess, Session
from ..session.producers import BatchProducer
from ..session.trainers import Trainer
from .batches import MadeBatch, busy_us

Figures = dict[str, Any]
BUSY_CORES = 0.9
"""Share of the cores from which a thread that computes is likely to wait for one."""

PASSIVE_ENVIRONMENT = {"OMP_WAIT_POLICY": "passive"}
"""Variables by which OpenMP's threads sleep while they wait, where the process starts with them."""


def wait_policy(facts: Mapping[str, Any]) -> str | None:
    """Return what OpenMP's threads do while they wait, where the environment says so, or they are not known to be.

    `facts` are a process's own.
    """
    backend = facts.get("parallel_backend")
    if backend != "OpenMP":
        return f"torch's parallel backend is {backend or 'not known'}"
    told = facts.get("wait_policy")
    return None if told is None else str(told)


@dataclass(frozen=True)
class Host:
    """One machine of a session, and what ran there while it trained.

    Columns are read over the measured steps only, so that start-up does not count; over the whole run where fewer than
    two readings fell into them.
    """

    machine: Machine
    trainers: list[Trainer]
    makers: list[BatchProducer]
    processes: dict[int, ProbedProcess]
    rows: range = field(repr=False)

    @property
    def facts(self) -> dict[str, Any]:
        return self.machine.facts

    def known(self, column: str) -> list[float]:
        """Return what was measured of a column."""
        values = self.machine.columns.get(column, [])
        return [value for row in self.rows if row < len(values) and (value := values[row]) is not None]

    def mean(self, column: str) -> float | None:
        return fmean(values) if (values := self.known(column)) else None

    def peak(self, column: str) -> float | None:
        return max(self.known(column), default=None)

    @property
    def least_free_bytes(self) -> float | None:
        """Memory that was free at the fullest reading."""
        return min(self.known("memory_available_bytes"), default=None)

    @property
    def free_shared_bytes(self) -> float | None:
        """Memory that was free in /dev/shm at the fullest reading."""
        total = self.fact("shm_bytes")
        return None if total is None else total - (self.peak("shm_used_bytes") or 0.0)

    def fact(self, name: str) -> float | None:
        """Return a fact that is a number; None for any other."""
        value = self.facts.get(name)
        return float(value) if isinstance(value, (int, float)) else None

    @property
    def cores(self) -> float | None:
        return self.fact("cores")

    @property
    def workers(self) -> int:
        """Worker processes at once: of each trainer, the largest number in a pass."""
        return sum(
            max((len(set(one.workers) - {trainer.pid}) for one in trainer.passes), default=0)
            for trainer in self.trainers
        )

    @property
    def worker_makers(self) -> list[BatchProducer]:
        return [maker for maker in self.makers if maker.worker is not None]

    def figures(self, pid: int) -> Figures:
        """Return what the sampler saw of a process."""
        return self.machine.processes.get(pid, {})

    def summed(self, makers: list[BatchProducer], figure: str) -> float | None:
        """Sum a figure over the makers that have it; None where none does."""
        told = [value for maker in makers if (value := self.figures(maker.pid).get(figure)) is not None]
        return sum(told) if told else None

    def told(self, pid: int, kind: str, name: str) -> Any:
        """Return what a process's own records (`torch`, `facts`) say; None where they do not."""
        process = self.processes.get(pid)
        return None if process is None else process.facts.get(kind, {}).get(name)

    def wait_policy(self, pid: int) -> str | None:
        """Return how OpenMP's threads of a process wait, as `wait_policy` has it."""
        process = self.processes.get(pid)
        return wait_policy({} if process is None else process.facts.get("facts", {}))

    def waited_share(self) -> float | None:
        """Return the share of its life in which the median maker's first thread was ready to run and had no core."""
        shares = []
        for maker in self.makers:
            figures = self.figures(maker.pid)
            started, last, waited_s = (figures.get(name) for name in ("started", "last", "cpu_wait_s"))
            if started is not None and last is not None and waited_s is not None and last > started:
                shares.append(min(float(waited_s) * 1e6 / float(last - started), 1.0))
        return median(shares) if shares else None

    @property
    def rank_cores(self) -> float | None:
        """Cores for one rank and its workers: each of the host's ranks has as many."""
        return None if self.cores is None else self.cores / max(len(self.trainers), 1)

    @property
    def others_cores(self) -> float:
        """Mean cores of these that other programs kept busy."""
        return (self.mean("cpu_cores_other") or 0.0) / max(len(self.trainers), 1)

    def pool(self, pid: int) -> int:
        """Return the threads by which torch shares what that process computes, no more than have a core each.

        It is 1 where a device computes for it, or where nothing tells.
        """
        if self.told(pid, "facts", "device") is not None:
            return 1
        told = self.told(pid, "facts", "torch_threads")
        most = told if isinstance(told, int) else 1
        return most if self.rank_cores is None else min(most, max(ceil(self.rank_cores), 1))

    def has_pool_of_its_own(self, pid: int) -> bool:
        """Return whether several threads may make a batch in the training process: those of OpenCV.

        Of torch's own the CPU time tells nothing there, since they spin for a while after each part of a step.
        """
        torch, opencv = (self.told(pid, "facts", label) for label in ("torch_threads", "opencv_threads"))
        return torch in (None, 1) or (isinstance(opencv, int) and opencv > 1)

    @property
    def is_busy(self) -> bool:
        """Tell whether hardly a core was idle."""
        busy = self.mean("cpu_cores_busy")
        return busy is not None and busy >= BUSY_CORES * (self.cores or float("inf"))

    def delay(self, made: MadeBatch) -> float | None:
        """Return how long a batch's maker was ready to run and had no core while it made it, in microseconds.

        Where it does not tell, a worker's first thread waited as much in each batch as in all.
        """
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
    """Return the host that a trainer ran on; None where no machine was sampled there."""
    return next((one for one in hosts(session) if one.machine.host == trainer.host), None)


def _rows(machine: Machine, trainers: list[Trainer]) -> range:
    """Return the readings that count.

    Each is of the time since the one before, and must have ended within the steps.
    """
    starts = [trainer.steps.start[0] for trainer in trainers if trainer.steps.start]
    ends = [trainer.steps.end[-1] for trainer in trainers if trainer.steps.end]
    if not starts:
        return range(len(machine.time))
    within = [row for row, time in enumerate(machine.time) if min(starts) < time <= max(ends)]
    return range(within[0], within[-1] + 1) if len(within) >= 2 else range(len(machine.time))
