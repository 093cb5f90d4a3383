"""Simulation of a training run: recorded work through workers, queue, cores and device."""

from __future__ import annotations

from .prediction import Prediction, predicted
from .recording import RecordedRun, recorded
from .work import FeedSetup, StageChange

__all__ = ["FeedSetup", "Prediction", "RecordedRun", "StageChange", "predicted", "recorded"]
