"""What other programs do meanwhile: proofs are compared with a run that had as much of the machine."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from headrace.doctor.machine.control_groups import Cgroups
from headrace.doctor.machine.cores import Cores
from headrace.doctor.machine.kernel import Kernel, LinuxKernel

BUSY = "cpu_cores_busy"


def used_s() -> float:
    """CPU time of this process, and of those that it, or one of those, has waited for."""
    return sum(os.times()[:4])


class Others:
    """From its making on, cores that neither this process nor those that it has waited for kept busy."""

    def __init__(
        self,
        kernel: Kernel | None = None,
        clock: Callable[[], float] = time.monotonic,
        used_s: Callable[[], float] = used_s,
    ) -> None:
        known = LinuxKernel() if kernel is None else kernel
        own = os.getpid()
        self._cores = Cores(known, own, Cgroups(known, own))
        self._clock, self._used_s = clock, used_s
        self._began, self._used = clock(), used_s()
        self._cores.read(self._began)

    def cores(self) -> float | None:
        """On average; None where the machine does not tell. To be asked once, at the end."""
        now = self._clock()
        busy = self._cores.read(now)[BUSY]
        return None if busy is None else max(busy - (self._used_s() - self._used) / (now - self._began), 0.0)
