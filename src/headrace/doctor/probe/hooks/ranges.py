"""Ranges for torch.profiler and Nsight Systems, where the doctor was asked for them."""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING

from ..ranges import Ranges

if TYPE_CHECKING:
    from ..probe import Probe


def install(probe: Probe, torch: ModuleType) -> None:
    if probe.settings.ranges:
        probe.training.ranges = Ranges(torch)
