"""Autotuning of threads and prefetch while a loader runs."""

from __future__ import annotations

from headrace.loader.autotuning.observation import Setting, TuningBounds
from headrace.loader.autotuning.tuner import Controls, Readings, TunedPass, Tuner, tuner_of

__all__ = ["Controls", "Readings", "Setting", "TunedPass", "Tuner", "TuningBounds", "tuner_of"]
