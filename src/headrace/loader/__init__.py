"""`Loader` and what runs it: decode, replace bad samples, map, deliver; autotuning; mixtures."""

from __future__ import annotations

from headrace.loader.autotuning import Tuner, tuner_of
from headrace.loader.bad_samples import Quarantine
from headrace.loader.recipe import Batch, BatchMap, OnError, Output, Recipe, Sample, SampleMap
from headrace.loader.runner import Runner
from headrace.loader.stats import StageStats, Stats
from headrace.system.channel import Closed
from headrace.system.resources import available_cores, default_threads

__all__ = [
    "Batch",
    "BatchMap",
    "Closed",
    "OnError",
    "Output",
    "Quarantine",
    "Recipe",
    "Runner",
    "Sample",
    "SampleMap",
    "StageStats",
    "Stats",
    "Tuner",
    "available_cores",
    "default_threads",
    "tuner_of",
]
