"""headrace tune: the doctor with its candidates limited to DataLoader arguments."""

from __future__ import annotations

from .report import show
from .run import Tuning, tune

__all__ = ["Tuning", "show", "tune"]
