"""Runs a plan: reads, native decode, Python stages, batch memory, error policy, statistics."""

from headrace.cores import available_cores, default_threads
from headrace.feed.quarantine import Quarantine
from headrace.loader.autotuning import Tuner, tuner_of
from headrace.loader.recipe import Batch, BatchMap, OnError, Output, Recipe, Sample, SampleMap
from headrace.loader.runner import Runner
from headrace.loader.stats import StageStats, Stats
from headrace.system.channel import Closed

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
