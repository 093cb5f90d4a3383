"""Measured runs in this very process that go through all windows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from probing import probed, records

from headrace.doctor.probe.probe import Probe
from headrace.doctor.probe.training.step_limit import StepsMeasured

STEPS, REPLAY = 6, 4
MEASURED: dict[str, Any] = {"observe": False, "steps": STEPS, "replay": REPLAY}
Train = Callable[[Probe], None]


def windows(folder: Path) -> list[tuple[Any, ...]]:
    """Name, first step, steps and how many settle."""
    return [tuple(window[1:5]) for window in records(folder, "window")]


def measured(folder: Path, train: Train, **changed: Any) -> None:
    """Train until the doctor ends it."""
    with probed(folder, **{**MEASURED, **changed}) as probe, pytest.raises(StepsMeasured):
        train(probe)
