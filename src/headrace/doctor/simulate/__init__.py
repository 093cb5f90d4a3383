"""Simulation of a training run: recorded work through workers, queue, cores and device."""

from __future__ import annotations

from headrace.doctor.simulate.prediction import Prediction, predicted
from headrace.doctor.simulate.recording import RecordedRun, recorded
from headrace.doctor.simulate.work import FeedSetup, StageChange

__all__ = ["FeedSetup", "Prediction", "RecordedRun", "StageChange", "predicted", "recorded"]
