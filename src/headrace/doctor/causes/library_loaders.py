"""Advice for batches from other libraries: DALI, SPDL, Grain, tf.data, LitData, Streaming."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ..measure import BOUND, Finding, LoaderProduction, TrainerView
from ..quantities import percent
from ..session.trainers import LoaderFacts
from .loop_work import place_words
from .stage_names import by_category, category, look
from .training_kinds import TRAINING

Settings = Mapping[str, Any]
"""Settings of the library's loader by name, as far as the probe could read them."""
OF_STORAGE = ("read", "remote", "lookup", "scan", "wait")
"""Categories of stages in which a worker waits for shards, or for locks around shards."""
OF_LINES = ("getitem", "other")
"""Categories of stages that only a line of the script's own code can explain."""
SHARDS = {
    "litdata.": (
        "LitData's StreamingDataset",
        "max_pre_download= (chunks ahead), a cache that holds the dataset (max_cache_size=, cache_dir= on a local "
        "disk), num_workers= of the StreamingDataLoader, and larger chunks",
    ),
    "streaming.": (
        "Streaming's StreamingDataset",
        "predownload= (samples ahead), a local= on a fast disk with a cache_limit= that holds the dataset, batch_size= "
        "of the dataset, and num_workers=",
    ),
}
"""Name and advice for datasets that download and cache shards themselves, by class name prefix."""


def source_advice(view: TrainerView, cause: str) -> str:
    """Return advice for a step that waits for `cause`: the script's own line, or a known library's options."""
    lines = [line for making in view.batch_production[:1] for line in making.lines[:1]]
    if lines and category(cause) in OF_LINES and cause == by_category(view.causes)[0].name:
        return f"Look at {place_words(lines[0].place)}: that line is {percent(lines[0].share)} of making a batch."
    label = cause.partition(":")[2]
    library = label.partition(".")[0]
    if category(cause) != "source" or library not in LIBRARIES:
        return look(cause)
    loader = next((one for one in view.trainer.loaders if label.startswith(f"{one.facts.get('source')}, ")), None)
    return LIBRARIES[library](_settings(loader), view.has_gpu)


def shard_findings(view: TrainerView) -> Iterator[Finding]:
    """Yield advice for workers that read shards that their dataset downloads and caches."""
    for making in view.batch_production:
        loader = view.loader(making.loader)
        name = next((name for name in SHARDS if _is_of(loader, name)), None)
        if name is None or making.loader not in view.training.fed:
            continue
        whose, where = SHARDS[name]
        waiting = _waiting_share(making)
        weight = waiting * (view.wait_share or 0.0)
        if weight >= BOUND:
            stages = [f"{one.label} {percent(one.share)}" for one in making.stages if one.category in OF_STORAGE]
            figures = {"waiting": waiting, "whose": whose, "stages": "; ".join(stages), "where": where}
            yield TRAINING["shards"].found(weight, **figures)


def _is_of(loader: LoaderFacts | None, library: str) -> bool:
    """Return True if the loader's dataset is a class of the library, or a subclass in the script."""
    if loader is None:
        return False
    described = loader.facts.get("described")
    dataset = described.get("dataset") if isinstance(described, dict) else None
    bases = dataset.get("bases") if isinstance(dataset, dict) else None
    return any(str(one).startswith(library) for one in [loader.facts.get("dataset"), *(bases or [])])


def _waiting_share(making: LoaderProduction) -> float:
    return sum(one.share for one in making.stages if one.category in OF_STORAGE)


def _settings(loader: LoaderFacts | None) -> Settings:
    found = None if loader is None else loader.facts.get("settings")
    return found if isinstance(found, dict) else {}


def _set(settings: Settings, name: str) -> str:
    """Return text such as `num_threads= (now 2)`, without the value if unknown."""
    return f"{name}= (now {settings[name]})" if settings.get(name) is not None else f"{name}="


def _dali(settings: Settings, has_gpu: bool) -> str:
    said = f"DALI works ahead in threads of its own: look at {_set(settings, 'num_threads')} of the pipeline"
    said += f"; {_set(settings, 'prefetch_queue_depth')} only bridges single slow batches."
    if has_gpu and settings.get("device_id", 0) is None:
        return said + ' The pipeline has no device: device_id= and decoders.image(device="mixed") decode on the GPU.'
    on_gpu = ' A GPU that has time for it decodes with device="mixed".'
    return said + (on_gpu if has_gpu or "device_id" not in settings else "")


def _spdl(settings: Settings, _: bool) -> str:
    if "num_workers" in settings:
        said = f"look at {_set(settings, 'num_workers')} of its loader, and at {_set(settings, 'buffer_size')}"
        return f"SPDL works ahead: {said} where single batches are slow."
    return (
        f"SPDL works ahead: look at concurrency= of its slowest stage, which its own statistics name, at "
        f"{_set(settings, 'num_threads')} of the pipeline, and at {_set(settings, 'buffer_size')} of its sink where "
        "single batches are slow. A stage in Python that holds the GIL gains nothing from threads: run it in a process "
        "pool (executor=)."
    )


def _grain(settings: Settings, _: bool) -> str:
    if settings.get("num_workers") == 0:
        return (
            "Grain makes these batches in the training process (worker_count=0), where Python holds the GIL: look at "
            "worker_count=, one a core. ReadOptions(num_threads=, prefetch_buffer_size=) only read ahead."
        )
    if "num_workers" in settings:
        return f"Look at worker_count= (now {settings['num_workers']}) and worker_buffer_size= of Grain's DataLoader."
    return (
        "Look at mp_prefetch() of Grain's dataset, which makes batches in processes; "
        "ReadOptions(num_threads=, prefetch_buffer_size=) of to_iter_dataset() only help what leaves the GIL."
    )


def _tensorflow(_: Settings, __: bool) -> str:
    return (
        "Look at num_parallel_calls=tf.data.AUTOTUNE in map() and interleave(), and end the pipeline with "
        "prefetch(tf.data.AUTOTUNE). cache() in front of random transforms keeps what is the same in each epoch."
    )


def _webdataset(_: Settings, __: bool) -> str:
    return (
        "Without a loader the pipeline runs in the training thread: webdataset.WebLoader(…, batch_size=None, "
        "num_workers=…) runs it in workers. Batch in the workers (.batched() in the dataset), and shuffle encoded "
        "samples, before decode()."
    )


def _ffcv(settings: Settings, _: bool) -> str:
    return (
        f"FFCV works ahead: look at {_set(settings, 'num_workers')} and {_set(settings, 'batches_ahead')} of its "
        "Loader, and at os_cache=True where the file fits into memory."
    )


def _nodes(_: Settings, __: bool) -> str:
    return (
        'Look at ParallelMapper(…, num_workers=…) around the slowest node, with method="process" where it holds the '
        "GIL, and end the graph with Prefetcher."
    )


LIBRARIES: dict[str, Callable[[Settings, bool], str]] = {
    "nvidia": _dali,
    "spdl": _spdl,
    "grain": _grain,
    "tensorflow": _tensorflow,
    "webdataset": _webdataset,
    "ffcv": _ffcv,
    "torchdata": _nodes,
}
"""Functions that return advice, by library name, from its settings and whether the training uses a GPU."""
