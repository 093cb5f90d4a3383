"""Simulation of a training run: recorded work through workers, queue, cores and device."""

from __future__ import annotations

from .batch_work import SHARED
from .prediction import Prediction, predicted
from .recording import recorded
from .work import FeedSetup, NativeFeed, RecordedRun, StageChange
