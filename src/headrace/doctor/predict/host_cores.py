"""What the machine's side of a session says of cores: how many there are for a rank, and who waited for one."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from headrace.doctor.analyse.join import Made
from headrace.doctor.measure.host import Host, host_of
from headrace.doctor.session.model import Maker, Session, Trainer

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

    def pool(self, pid: int) -> int:
        """Return the threads by which torch shares what that process computes, and no more than have a core each; 1
        where a device computes for it, or where nothing tells."""
        host, share = self.host, self.share()
        if host is None or host.told(pid, "facts", "device") is not None:
            return 1
        told = host.told(pid, "facts", "torch_threads")
        most = told if isinstance(told, int) else 1
        return most if share is None else min(most, max(ceil(share), 1))

    def has_pool_of_its_own(self, pid: int) -> bool:
        """Return whether several threads may make a batch in the training process: those of OpenCV. Of torch's own the
        CPU time tells nothing there, since they spin for a while after each part of a step."""
        host = self.host
        told = [] if host is None else [host.told(pid, "facts", label) for label in ("torch_threads", "opencv_threads")]
        return not told or told[0] in (None, 1) or (isinstance(told[1], int) and told[1] > 1)

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
