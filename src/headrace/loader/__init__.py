"""The `Loader`, its stages (decode, replace bad samples, map, deliver), autotuning, and mixtures of loaders.

Used by training scripts and `dropins`. Read `loader.py` and `runner.py` first.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.loader.bad_samples import error_at
    from headrace.loader.batch_memory import ProcessBlocks
    from headrace.loader.decoding.pillow import decode_picture
    from headrace.loader.decoding.pixels import image_options
    from headrace.loader.framework_dataloader import LoaderDataLoader, as_dataloader
    from headrace.loader.loader import Loader
    from headrace.loader.map_stage import PythonThreads
    from headrace.loader.mixtures.mixed_loader import MixedLoader, mix
    from headrace.loader.ray_workers.cluster import RayWorkers
    from headrace.loader.recipe import Output
    from headrace.loader.single_batch import first_batch
    from headrace.loader.stats import StageStats, Stats, sums
    from headrace.loader.user_functions import batch_rng, sample_rng

_HOMES = {
    "bad_samples": ("error_at",),
    "batch_memory": ("ProcessBlocks",),
    "decoding.pillow": ("decode_picture",),
    "decoding.pixels": ("image_options",),
    "single_batch": ("first_batch",),
    "framework_dataloader": ("LoaderDataLoader", "as_dataloader"),
    "loader": ("Loader",),
    "map_stage": ("PythonThreads",),
    "mixtures.mixed_loader": ("MixedLoader", "mix"),
    "ray_workers.cluster": ("RayWorkers",),
    "recipe": ("Output",),
    "stats": ("StageStats", "Stats", "sums"),
    "user_functions": ("batch_rng", "sample_rng"),
}
"""Public names by module. A module is imported on first access to one of its names."""

__all__ = [
    "Loader",
    "LoaderDataLoader",
    "MixedLoader",
    "Output",
    "ProcessBlocks",
    "PythonThreads",
    "RayWorkers",
    "StageStats",
    "Stats",
    "as_dataloader",
    "batch_rng",
    "decode_picture",
    "error_at",
    "first_batch",
    "image_options",
    "mix",
    "sample_rng",
    "sums",
]


def __getattr__(name: str) -> Any:
    for module, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
