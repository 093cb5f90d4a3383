"""Statistics of a pass, in numbers and in words."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from headrace.cache import CacheStats
from headrace.fetch import FetchStats

STAGES = ("read", "probe", "decode", "resample", "augment")


@dataclass(frozen=True)
class StageStats:
    """One stage, over all threads or processes. The stage with the highest `busy_s` is the bottleneck."""

    busy_s: float
    items: int
    bytes: int

    @property
    def us_per_item(self) -> float | None:
        """Microseconds per item in this stage; None before the first item."""
        return self.busy_s / self.items * 1e6 if self.items else None


class StageMeter:
    """Counters of one stage in Python. One thread writes them, others read."""

    def __init__(self) -> None:
        self._busy_s = 0.0
        self._items = self._bytes = 0

    def add(self, busy_s: float, items: int, bytes: int) -> None:
        self._busy_s += busy_s
        self._items += items
        self._bytes += bytes

    def stats(self) -> StageStats:
        return StageStats(self._busy_s, self._items, self._bytes)


@dataclass(frozen=True)
class RayStats:
    """Statistics of the Ray actors of a pass.

    `actors` at work now; `lost` actors ended or could not be reached, and `redone` steps were made again for that.
    `local_steps` were made in this process, while no actor had started or after the last was lost. High: the cluster
    has no free CPUs. `steps` came from actors, in `bytes` of Ray's object store, which cross the network unless an
    actor runs on this node. `cpu_s` is the CPU time of the actors' processes. `wait_s` is the time in which the oldest
    step was not there; high, actors or network are too slow. `copy_s` is the time to copy batches out of the store.
    """

    actors: int = 0
    lost: int = 0
    redone: int = 0
    local_steps: int = 0
    steps: int = 0
    bytes: int = 0
    cpu_s: float = 0.0
    wait_s: float = 0.0
    copy_s: float = 0.0

    def totals(self) -> dict[str, float]:
        """Return the counts that grow over a pass."""
        return {
            "ray_lost_actors": self.lost,
            "ray_redone_steps": self.redone,
            "ray_local_steps": self.local_steps,
            "ray_bytes": self.bytes,
            "ray_cpu_seconds": self.cpu_s,
            "ray_wait_seconds": self.wait_s,
        }

    def __str__(self) -> str:
        each = self.bytes / self.steps / 1e6 if self.steps else 0.0
        lost = f", {self.lost} lost, {self.redone} steps made again" if self.lost else ""
        local = f", {self.local_steps} batches made here" if self.local_steps else ""
        return f"{self.actors} Ray actors, {each:,.1f} MB a batch, {self.cpu_s:,.1f} s of CPU time{lost}{local}"


@dataclass(frozen=True)
class Stats:
    """Statistics of a pass since it began.

    `stages` has the core's stages. It also has "text" if texts are tokenised (the time is the feed's, which waits for
    the tokenizer), "map" if there is one, "mixing" with `batch=`, and "device" for images that `decode="device"` made.

    `consumer_wait_s` high: training waits for data (a data stall). `feed_wait_s` high: data waits for training, all is
    well. `idle_s` is time in which the core's threads had no work, summed over threads. `python_s` is the CPU time of
    the feed's own Python code; high relative to the wall time, it blocks training on the GIL.

    `bad` samples could not be decoded; `replaced` counts those that others replaced. `declined` samples were decoded
    by Pillow instead of the core (slower). `retries` counts repeated reads: above 0, a disk or a network fails now and
    then. `left_out` and `repeated` count the samples that the epoch's remainder leaves out or repeats, over all ranks.

    `copy_s` and `convert_s` are device time for H2D copies and for cast and normalise. `overlap` is the share of both
    that ran alongside training; low, batches come too late. None: not measured, as on the CPU. `cache` has the counts
    of `cache=` in this pass; None without one.

    `fetch` has the reads of a store; None if all files are on this machine. `ray` has the actors of `workers=`, whose
    stages are in `stages`; None without.
    """

    batches: int
    samples: int
    wall_s: float
    consumer_wait_s: float
    feed_wait_s: float
    python_s: float
    idle_s: float
    threads: int
    ready_batches: int
    batch_bytes: int
    bad: int
    replaced: int
    declined: int
    retries: int
    left_out: int
    repeated: int
    stages: dict[str, StageStats]
    map_workers: int = 0
    prefetch: int = 0
    tuned: dict[str, str] = field(default_factory=dict)
    copy_s: float | None = None
    convert_s: float | None = None
    overlap: float | None = None
    cache: CacheStats | None = None
    fetch: FetchStats | None = None
    ray: RayStats | None = None

    @property
    def limit(self) -> str:
        """Bottleneck: "start" (nothing taken yet), "consumer", "store" (remote reads), or the name of a stage.

        "ray": actors idle while the consumer waits, so the network or the copy from Ray's object store is slow.
        """
        if self.batches == 0 or self.wall_s <= 0:
            return "start"
        if self.consumer_wait_s < 0.02 * self.wall_s:
            return "consumer"
        if self.fetch is not None and self.fetch.stall_s > 0.5 * self.consumer_wait_s:
            return "store"
        core_s = sum(self.stages[name].busy_s for name in STAGES)
        core_share = core_s / (core_s + self.idle_s) if core_s else 0.0
        # Busy share of map workers, and share of time in which the feed waits for a tokenizer.
        if self.map_workers and self.stages["map"].busy_s / (self.map_workers * self.wall_s) > max(core_share, 0.5):
            return "map"
        if "text" in self.stages and self.stages["text"].busy_s / self.wall_s > max(core_share, 0.5):
            return "text"
        # The core's threads idle while the consumer waits: something else is slow.
        if self.ray is not None and core_share < 1 / 3:
            return "ray"
        return "python" if core_share < 1 / 3 else max(STAGES, key=lambda name: self.stages[name].busy_s)

    def to_dict(self) -> dict[str, object]:
        """Return plain JSON values."""
        return asdict(self) | {"limit": self.limit}

    def counts(self) -> dict[str, float]:
        """Return the counts that grow over a pass, as flat numbers that sum over passes.

        A count of one stage is named like `stage_seconds/decode`. Times are seconds.
        """
        found = {
            "batches": self.batches,
            "samples": self.samples,
            "wait_seconds": self.consumer_wait_s,
            "feed_wait_seconds": self.feed_wait_s,
            "python_seconds": self.python_s,
            "bad_samples": self.bad,
            "replaced_samples": self.replaced,
            "pillow_samples": self.declined,
            "read_retries": self.retries,
        }
        for name, stage in self.stages.items():
            found[f"stage_seconds/{name}"] = stage.busy_s
            found[f"stage_items/{name}"] = stage.items
            found[f"stage_bytes/{name}"] = stage.bytes
        if self.copy_s is not None:
            found["copy_seconds"] = self.copy_s
        if self.fetch is not None:
            found |= self.fetch.totals()
        if self.ray is not None:
            found |= self.ray.totals()
        if self.cache is not None:
            found["cache_hits"] = self.cache.hits
            found["cache_misses"] = self.cache.misses
        return found

    def __str__(self) -> str:
        rate = self.samples / self.wall_s if self.wall_s > 0 else 0.0
        lines = [self._verdict(), f"{self.batches:,} batches, {self.samples:,} samples, {rate:,.0f} samples/s"]
        total = sum(stage.busy_s for stage in self.stages.values())
        for name, stage in self.stages.items():
            if stage.us_per_item is not None and total > 0:
                lines.append(f"  {name:<9}{stage.busy_s / total:>5.0%}  {stage.us_per_item:>9,.1f} µs an item")
        if self.declined:
            lines.append(f"  {self.declined:,} samples were decoded by Pillow, not by the core")
        if self.bad:
            lines.append(f"  {self.bad:,} bad samples, {self.replaced:,} replacements")
        if self.retries:
            lines.append(f"  {self.retries:,} times a read failed for a reason that may pass, and was tried again")
        if self.left_out or self.repeated:
            lines.append(f"  an epoch leaves out {self.left_out:,} samples and repeats {self.repeated:,}")
        if self.tuned:
            for knob, value in (("threads", self.threads), ("prefetch", self.prefetch)):
                why = f"tuned: {self.tuned[knob]}" if knob in self.tuned else "given"
                lines.append(f"  {knob} {value} ({why})")
        if self.copy_s is not None and self.batches:
            overlapped = "" if self.overlap is None else f", {self.overlap:.0%} of it alongside training"
            lines.append(f"  copy to the device {self.copy_s / self.batches * 1e3:,.2f} ms a batch{overlapped}")
        if self.fetch is not None:
            lines.append(f"  {self.fetch}")
        if self.ray is not None:
            lines.append(f"  {self.ray}")
        if self.cache is not None:
            lines.append(f"  {self.cache}")
        return "\n".join(lines)

    def _verdict(self) -> str:
        limit = self.limit
        if limit == "start":
            return "Nothing has been taken yet."
        share = self.consumer_wait_s / self.wall_s
        effect = "limits this run" if share >= _LIMITING else "costs this run little"
        if limit == "consumer":
            return f"Data is not what limits this run: the consumer waited {share:.1%} of the time."
        if limit == "python":
            return f"Python {effect}: the consumer waited {share:.0%} of the time while the core's threads idled."
        if limit == "ray":
            return f"Ray {effect}: the consumer waited {share:.0%} of the time while the actors idled: see the network."
        if limit == "store":
            return f"The store {effect}: the consumer waited {share:.0%} of the time, most of it for its answers."
        where = f"on {self.threads} threads"
        if limit == "map":
            where = f"in {self.map_workers} processes"
        elif limit == "text":
            where = "in the feed's own thread"
        return f"The loader {effect}: the consumer waited {share:.0%} of the time, most of it for {limit} {where}."


def sums(first: Mapping[str, float], second: Mapping[str, float]) -> dict[str, float]:
    """Add two records of counts by name."""
    return {name: first.get(name, 0) + second.get(name, 0) for name in {**first, **second}}


_LIMITING = 0.1
"""Consumer's share of waiting time from which data counts as limiting the run."""
_SUMS = (
    "batches", "samples", "consumer_wait_s", "python_s", "idle_s", "ready_batches", "bad", "replaced", "declined",
    "retries", "left_out", "repeated", "map_workers",
)  # fmt: skip
_TOTALS: dict[str, Callable[[Iterable[Any]], Any]] = {
    **dict.fromkeys(_SUMS, sum), "wall_s": max, "feed_wait_s": min, "threads": max, "batch_bytes": max
}  # fmt: skip


def total_stats(sources: Iterable[Stats]) -> Stats:
    """Return the totals. `wall_s` is the longest; `feed_wait_s` is the minimum over the sources."""
    found = list(sources)
    totals = {name: total(getattr(each, name) for each in found) for name, total in _TOTALS.items()}
    return Stats(**totals, stages=total_stages(each.stages for each in found))


def total_stages(sources: Iterable[Mapping[str, StageStats]]) -> dict[str, StageStats]:
    """Return the sums of each stage."""
    stages: dict[str, StageStats] = {}
    for name, stage in (item for each in sources for item in each.items()):
        before = stages.get(name, StageStats(0.0, 0, 0))
        stages[name] = StageStats(before.busy_s + stage.busy_s, before.items + stage.items, before.bytes + stage.bytes)
    return stages
