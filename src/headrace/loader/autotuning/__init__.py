"""Autotuning of threads and prefetch while a loader runs."""

from __future__ import annotations

from headrace.loader.autotuning.observation import Readings, Setting, TuningBounds
from headrace.loader.autotuning.tuner import TunedPass, Tuner, tuner_of

__all__ = ["Readings", "Setting", "TunedPass", "Tuner", "TuningBounds", "tuner_of"]
