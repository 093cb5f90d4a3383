"""How long workers wait for storage, and not for a core."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.doctor.causes.case import Case
from headrace.doctor.session.model import Maker


def waiting_us(case: Case) -> float:
    """A sample's, in reading: what it does not compute, less its part of what the workers were ready to run and had no
    core, as far as that was measured."""
    idle = sum(max(one.wall_us - (one.cpu_us or 0.0), 0.0) for one in case.stages("read"))
    return idle * _left(case)


def waiting_share(case: Case) -> float:
    """Of making a batch."""
    whole = sum(one.wall_us for one in case.making.stages)
    return waiting_us(case) / whole if whole else 0.0


def is_known(case: Case) -> bool:
    """Whether waiting for a core was told apart."""
    return any(one is not None for maker in _makers(case) for one in maker.batches.delay)


def _left(case: Case) -> float:
    """Share of the makers' idle time that no core was missing in."""
    waited, idle = 0.0, 0.0
    for maker in _makers(case):
        batches = maker.batches
        for row, delay in enumerate(batches.delay):
            wall = batches.fetched[row] - batches.start[row]
            idle += max(wall - sum(cpu for _, _, _, cpu in batches.stages[row]), 0)
            waited += delay or 0
    return max(1 - waited / idle, 0.0) if idle > 0 else 1.0


def _makers(case: Case) -> Iterator[Maker]:
    return (maker for maker in case.session.makers if maker.trainer == case.view.trainer.pid)
