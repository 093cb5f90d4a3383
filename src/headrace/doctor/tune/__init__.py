"""headrace tune: the doctor with its candidates limited to DataLoader arguments."""

from __future__ import annotations

from .report import show
from .run import tune

__all__ = ["show", "tune"]
