"""Runs a plan: reads, native decode, Python stages, batch memory, error policy, statistics."""

from headrace.channel import Closed
from headrace.cores import available_cores, default_threads
from headrace.feed.quarantine import Quarantine
from headrace.feed.recipe import Batch, BatchMap, OnError, Output, Recipe, Sample, SampleMap
from headrace.feed.runner import Runner
from headrace.feed.stats import StageStats, Stats
from headrace.feed.tuning import Tuner, tuner_of

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
