"""Simulation of a training run: recorded work through workers, queue, cores and device."""

from __future__ import annotations

from headrace.doctor.simulate.prediction import (
    Change,
    Factor,
    Prediction,
    chained,
    name_of,
    predicted,
    scaled,
    setting,
    untimed,
)
from headrace.doctor.simulate.recording import recorded
from headrace.doctor.simulate.work import FeedSetup, NativeFeed, RecordedRun, StageChange
