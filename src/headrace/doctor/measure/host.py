"""One machine of a session, and what ran there, while it trained."""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import fmean, median
from typing import Any

from headrace.doctor.session.model import Machine, Maker, Process, Session, Trainer

Figures = dict[str, Any]


@dataclass(frozen=True)
class Host:
    """Columns are read over the measured steps only, so that start-up does not count; over the whole run where fewer
    than two readings fell into them."""

    machine: Machine
    trainers: list[Trainer]
    makers: list[Maker]
    processes: dict[int, Process]
    rows: range = field(repr=False)

    @property
    def facts(self) -> dict[str, Any]:
        return self.machine.facts

    def known(self, column: str) -> list[float]:
        """What was measured of a column."""
        values = self.machine.columns.get(column, [])
        return [value for row in self.rows if row < len(values) and (value := values[row]) is not None]

    def mean(self, column: str) -> float | None:
        return fmean(values) if (values := self.known(column)) else None

    def peak(self, column: str) -> float | None:
        return max(self.known(column), default=None)

    def fact(self, name: str) -> float | None:
        """A fact that is a number."""
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
    def worker_makers(self) -> list[Maker]:
        return [maker for maker in self.makers if maker.worker is not None]

    def figures(self, pid: int) -> Figures:
        """What the sampler saw of a process."""
        return self.machine.processes.get(pid, {})

    def summed(self, makers: list[Maker], figure: str) -> float | None:
        """Over those of the makers that tell; None where none does."""
        told = [value for maker in makers if (value := self.figures(maker.pid).get(figure)) is not None]
        return sum(told) if told else None

    def told(self, pid: int, kind: str, name: str) -> Any:
        """What a process's own records (`torch`, `facts`) say; None where they do not."""
        process = self.processes.get(pid)
        return None if process is None else process.facts.get(kind, {}).get(name)

    def waited_share(self) -> float | None:
        """Of the makers' lives, how long their first threads were ready to run and had no core: the median maker."""
        shares = [share for maker in self.makers if (share := _waited(self.figures(maker.pid))) is not None]
        return median(shares) if shares else None


def hosts(session: Session) -> list[Host]:
    return [_host(session, machine) for machine in session.machines]


def host_of(session: Session, trainer: Trainer) -> Host | None:
    """That a trainer ran on; None where no machine was sampled there."""
    return next((one for one in hosts(session) if one.machine.host == trainer.host), None)


def _host(session: Session, machine: Machine) -> Host:
    trainers = [trainer for trainer in session.trainers if trainer.host == machine.host]
    return Host(
        machine=machine,
        trainers=trainers,
        makers=[maker for maker in session.makers if maker.host == machine.host],
        processes={process.pid: process for process in session.processes if process.host == machine.host},
        rows=_rows(machine, trainers),
    )


def _rows(machine: Machine, trainers: list[Trainer]) -> range:
    """Readings are of the time since the one before: the first that ended within the steps is the first that counts."""
    starts = [trainer.steps.start[0] for trainer in trainers if trainer.steps.start]
    ends = [trainer.steps.end[-1] for trainer in trainers if trainer.steps.end]
    if not starts:
        return range(len(machine.time))
    within = [row for row, time in enumerate(machine.time) if min(starts) < time <= max(ends)]
    return range(within[0], within[-1] + 1) if len(within) >= 2 else range(len(machine.time))


def _waited(figures: Figures) -> float | None:
    started, last, waited_s = (figures.get(name) for name in ("started", "last", "cpu_wait_s"))
    if started is None or last is None or waited_s is None or last <= started:
        return None
    return min(float(waited_s) * 1e6 / float(last - started), 1.0)
