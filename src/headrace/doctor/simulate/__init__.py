"""Simulation of a training run: recorded work through workers, queue, cores and device."""

from __future__ import annotations

from headrace.doctor.simulate.changes import Change, Factor, chained, name_of, scaled, setting, untimed
from headrace.doctor.simulate.prediction import Prediction, predicted
from headrace.doctor.simulate.recording import recorded
from headrace.doctor.simulate.work import FeedSetup, NativeFeed, RecordedRun, StageChange
