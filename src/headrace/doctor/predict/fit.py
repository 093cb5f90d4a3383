"""How the simulation is brought to agree with the run that it was recorded from."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Fit:
    """What the simulation of the present setup missed, put down to what limited it: a loader that is waited for tells
    nothing of errors in the steps, and steps that never wait tell nothing of errors in the loader."""

    making: float
    """By which the work of batches is multiplied."""
    computing: float
    """By which that of the steps is."""
    start_up: float
    """By which the time that workers take to start and to end is."""
    rest: float
    """By which the simulated step is multiplied, for what is left then."""
    gap: float
    """Logarithm of the observed step by the simulated one, before all that."""


UNFITTED = Fit(1.0, 1.0, 1.0, 1.0, 0.0)
