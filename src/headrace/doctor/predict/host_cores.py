"""What the machine's side of a session says of cores: how many there are for a rank, and who waited for one."""

from __future__ import annotations

from dataclasses import dataclass

from ..analyse.host import Host, host_of
from ..analyse.join import Made
from ..session.model import Maker, Session, Trainer

BUSY = 0.9
"""Share of the cores from which a thread that computes is likely to wait for one."""


@dataclass(frozen=True)
class HostCores:
    """Of the host of one trainer. None is what nothing tells."""

    host: Host | None

    @classmethod
    def of(cls, session: Session, trainer: Trainer) -> HostCores:
        return cls(host_of(session, trainer))

    def share(self) -> float | None:
        """Cores for one rank and its workers: each of the host's ranks has as many."""
        host = self.host
        return None if host is None or host.cores is None else host.cores / max(len(host.trainers), 1)

    def others(self) -> float:
        """Of these cores, what other programs kept busy on average."""
        return (
            0.0 if self.host is None else (self.host.mean("cpu_cores_other") or 0.0) / max(len(self.host.trainers), 1)
        )

    @property
    def is_busy(self) -> bool:
        """Whether hardly a core was idle."""
        busy = None if self.host is None else self.host.mean("cpu_cores_busy")
        return busy is not None and self.host is not None and busy >= BUSY * (self.host.cores or float("inf"))

    def delay_share(self, maker: Maker) -> float | None:
        """Of the time in which a maker made batches, how long its first thread waited for a core."""
        figures = {} if self.host is None else self.host.figures(maker.pid)
        waited_s = figures.get("cpu_wait_s")
        batches = maker.batches
        worked = sum(batches.fetched) - sum(batches.start)
        return None if waited_s is None or not worked else min(waited_s * 1e6 / worked, 1.0)

    def delay(self, made: Made) -> float | None:
        """How long the batch's maker was ready to run and had no core while it made it, in microseconds."""
        maker, row = made
        told = maker.batches.delay[row] if maker.batches.delay else None
        if told is not None:
            return float(told)
        share = self.delay_share(maker) if maker.worker is not None else None
        return None if share is None else share * (maker.batches.fetched[row] - maker.batches.start[row])
