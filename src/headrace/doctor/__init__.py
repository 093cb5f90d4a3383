"""Says what a training run waits for, without a change to it."""

from __future__ import annotations

from headrace.doctor.notebook import Watch, watch

__all__ = ["Watch", "watch"]
