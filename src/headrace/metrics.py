"""Loader metrics for experiment trackers and dashboards: plain numbers, Prometheus, OpenTelemetry, callbacks.

They only read counters that the loader maintains anyway: a reading takes microseconds and never blocks on a batch.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol, cast

from headrace.errors import UsageError
from headrace.loader import Stats, sums

if TYPE_CHECKING:
    from lightning.pytorch import Callback
    from opentelemetry.metrics import Meter, Observation
    from prometheus_client.core import Metric
    from transformers import Trainer

EVERY_N_STEPS = 50
"""Steps between two readings of a callback."""


class MeasuredLoader(Protocol):
    """Loader with counters: a `Loader` or a mixture."""

    @property
    def epoch(self) -> int: ...

    @property
    def rank(self) -> int: ...

    def counts(self) -> dict[str, float]: ...

    def stats(self) -> Stats | None: ...


class LoaderMetrics:
    """Metrics of one loader since the last reading, as flat numbers for W&B, TensorBoard or MLflow.

        metrics = LoaderMetrics(loader)
        wandb.log(metrics.read(), step=step)

    Args:
        loader: A `Loader` or a mixture.
        prefix: Prefix of each name.
        clock: Clock in seconds for the wall time between two readings.
    """

    def __init__(
        self, loader: MeasuredLoader, prefix: str = "data/", clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._loader = checked(loader)
        self._prefix = prefix
        self._clock = clock
        self._before, self._read_at = self._loader.counts(), clock()

    def read(self) -> dict[str, float]:
        """Return the metrics since the last reading, or since the creation of this object.

        - `samples_per_s`: throughput of this rank.
        - `wait_share`: fraction of the time that training waited for batches, 0 to 1. High: a data stall.
        - `ready_batches`: batches ready now. Repeatedly 0: the loader is the bottleneck.
        - `stage_share/NAME`: fraction of the loader's work in a stage, such as `decode`.
        - `bad_samples`, `read_retries`: counts since the last reading.
        - `cache_hit_rate`: with `cache=`, if there were lookups.
        """
        counts, now = self._loader.counts(), self._clock()
        new = sums(counts, {name: -value for name, value in self._before.items()})
        seconds = max(now - self._read_at, 1e-9)
        self._before, self._read_at = counts, now
        found = {
            "samples_per_s": new.get("samples", 0) / seconds,
            "wait_share": min(new.get("wait_seconds", 0) / seconds, 1.0),
            "bad_samples": new.get("bad_samples", 0),
            "read_retries": new.get("read_retries", 0),
        }
        stats = self._loader.stats()
        if stats is not None:
            found["ready_batches"] = stats.ready_batches
        stages = {stage: new[name] for name, stage in by_stage(new, "stage_seconds")}
        worked = sum(stages.values())
        if worked > 0:
            found |= {f"stage_share/{stage}": busy / worked for stage, busy in stages.items()}
        looked_up = new.get("cache_hits", 0) + new.get("cache_misses", 0)
        if looked_up:
            found["cache_hit_rate"] = new["cache_hits"] / looked_up
        return {self._prefix + name: float(value) for name, value in found.items()}


COUNTERS = {
    "batches": "Batches that training has received.",
    "samples": "Samples that training has received.",
    "wait_seconds": "Time in which training waited for a batch.",
    "feed_wait_seconds": "Time in which batches lay ready and waited for training.",
    "python_seconds": "CPU time of the loader's own Python.",
    "bad_samples": "Samples that could not be decoded.",
    "replaced_samples": "Bad samples in whose place another one was taken.",
    "skipped_samples": "Bad samples that were left out.",
    "pillow_samples": "Samples that Pillow decoded, not the core.",
    "read_retries": "Reads that were tried again.",
    "copy_seconds": "Device time of H2D copies.",
    "cache_hits": "Look-ups in the cache that found their entry.",
    "cache_misses": "Look-ups in the cache that did not.",
    "stage_seconds": "Time in a stage, over all threads.",
    "stage_items": "Items that went through a stage.",
    "stage_bytes": "Bytes that went through a stage.",
}
"""Descriptions of counters by their name in `Stats.counts()` up to a slash."""
GAUGES: dict[str, tuple[str, Callable[[Stats], float]]] = {
    "ready_batches": ("Batches that lie ready.", lambda stats: stats.ready_batches),
    "threads": ("Native threads that read, decode and resample.", lambda stats: stats.threads),
    "prefetch": ("Batches that may lie ready.", lambda stats: stats.prefetch),
}
"""Description and getter of each gauge of the latest pass."""


class PrometheusCollector:
    """Collector of loader metrics for prometheus_client.

        REGISTRY.register(PrometheusCollector({"train": loader}))
        start_http_server(8000)

    Names begin with `headrace_`; labels are `loader` (the key in `loaders`), `rank`, and `stage` for stage counters.
    """

    def __init__(self, loaders: Mapping[str, MeasuredLoader]) -> None:
        self._loaders = {name: checked(loader) for name, loader in loaders.items()}

    def describe(self) -> Iterable[Metric]:
        """Return an empty list: names need no check against other collectors."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield the current metrics of all loaders."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        counts = {name: loader.counts() for name, loader in self._loaders.items()}
        for kind, text in COUNTERS.items():
            labels = ["loader", "rank", "stage"] if kind.startswith("stage_") else ["loader", "rank"]
            family = CounterMetricFamily(f"headrace_{kind}", text, labels=labels)
            for loader, found in counts.items():
                place = [loader, str(self._loaders[loader].rank)]
                for name, stage in by_stage(found, kind):
                    family.add_metric([*place, stage] if stage else place, found[name])
            if family.samples:
                yield family
        for kind, (text, of) in GAUGES.items():
            gauge = GaugeMetricFamily(f"headrace_{kind}", text, labels=["loader", "rank"])
            for name, each in self._loaders.items():
                stats = each.stats()
                if stats is not None:
                    gauge.add_metric([name, str(each.rank)], of(stats))
            yield gauge


def prometheus_text(loaders: Mapping[str, MeasuredLoader]) -> str:
    """Return the metrics in Prometheus' text format, for a node_exporter file or your own server."""
    from prometheus_client import CollectorRegistry, generate_latest

    registry = CollectorRegistry()
    registry.register(PrometheusCollector(loaders))
    return generate_latest(registry).decode()


def observe(loaders: Mapping[str, MeasuredLoader], meter: Meter | None = None) -> None:
    """Report loaders to OpenTelemetry through observable counters and gauges, as `PrometheusCollector` does.

    Names are `headrace.samples` and so on; attributes are `loader`, `rank` and `stage`.

    Args:
        loaders: Loaders by name. They live as long as the meter.
        meter: Meter to register with; default: the global provider's.
    """
    from opentelemetry.metrics import get_meter

    meter = get_meter("headrace") if meter is None else meter
    measured = {name: checked(loader) for name, loader in loaders.items()}
    for kind, text in COUNTERS.items():
        unit = "s" if kind.endswith("seconds") else "By" if kind.endswith("bytes") else "1"
        meter.create_observable_counter(f"headrace.{kind}", [_counter_of(measured, kind)], unit, text)
    for kind, (text, of) in GAUGES.items():
        meter.create_observable_gauge(f"headrace.{kind}", [_gauge_of(measured, of)], "1", text)


def _counter_of(loaders: Mapping[str, MeasuredLoader], kind: str) -> Callable[[Any], Iterator[Observation]]:
    """Return the callback for the observations of one counter."""
    from opentelemetry.metrics import Observation

    def observations(_: Any) -> Iterator[Observation]:
        for loader, each in loaders.items():
            counts = each.counts()
            for name, stage in by_stage(counts, kind):
                attributes: dict[str, str | int] = {"loader": loader, "rank": each.rank}
                if stage:
                    attributes["stage"] = stage
                yield Observation(counts[name], attributes)

    return observations


def _gauge_of(loaders: Mapping[str, MeasuredLoader], of: Callable[[Stats], float]) -> Callable[[Any], Any]:
    """Return the callback for the observations of one gauge."""
    from opentelemetry.metrics import Observation

    def observations(_: Any) -> Iterator[Observation]:
        for loader, each in loaders.items():
            stats = each.stats()
            if stats is not None:
                yield Observation(of(stats), {"loader": loader, "rank": each.rank})

    return observations


def lightning_callback(loader: MeasuredLoader | None = None, every_n_steps: int = EVERY_N_STEPS) -> Callback:
    """Return a Lightning callback that logs `LoaderMetrics` to every logger of the Trainer.

    Pass it to `Trainer(callbacks=[…])`. The metrics are rank 0's, where loggers write.

    Args:
        loader: A `Loader`, a mixture, or its `as_dataloader()`; default: the Trainer's training dataloader.
        every_n_steps: Optimizer steps between two readings.
    """
    from lightning.pytorch import Callback

    class LoaderMetricsCallback(Callback):
        def on_train_start(self, trainer: Any, *_: Any) -> None:
            self.metrics = LoaderMetrics(trainer.train_dataloader if loader is None else loader)

        def on_train_batch_end(self, trainer: Any, *_: Any, **__: Any) -> None:
            if trainer.global_step % every_n_steps == 0 and trainer.is_global_zero:
                found = self.metrics.read()
                for logger in trainer.loggers:
                    logger.log_metrics(found, step=trainer.global_step)

    return LoaderMetricsCallback()


def add_trainer_callback(trainer: Trainer, loader: MeasuredLoader) -> None:
    """Add `LoaderMetrics` to the logs of Hugging Face's Trainer, for all integrations in `report_to`.

    The callback is inserted before the Trainer's other callbacks, which log the values present when they are called.
    """
    from transformers import TrainerCallback

    metrics = LoaderMetrics(loader)

    class LoaderMetricsTrainerCallback(TrainerCallback):
        def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float] | None = None, **_: Any) -> None:
            if logs is not None and "loss" in logs:  # not the final summary or an evaluation
                logs.update(metrics.read())

    trainer.callback_handler.callbacks.insert(0, LoaderMetricsTrainerCallback())


def by_stage(counts: Mapping[str, float], kind: str) -> Iterator[tuple[str, str]]:
    """Yield (name, stage) of the counts of one kind; the stage is "" for counts without a stage."""
    for name in counts:
        before, _, stage = name.partition("/")
        if before == kind:
            yield name, stage


def checked(loader: Any) -> MeasuredLoader:
    """Return the loader, unwrapped from `as_dataloader()`. Raises UsageError for anything without counters."""
    inner: Any = getattr(getattr(loader, "_parts", None), "source", loader)
    if not hasattr(inner, "counts") or not hasattr(inner, "stats"):
        raise UsageError(
            f"metrics: expected a headrace.Loader, a mixture, or what its as_dataloader() gave, got "
            f"{type(inner).__name__}"
        )
    return cast("MeasuredLoader", inner)
