"""Which arguments are worth a thought for one loader on one machine. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import product

from headrace.tune.arguments import Arguments, arguments

WORKERS = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
PREFETCH = (2, 4, 8)


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """What a loader and its machine allow. Absent figures bound nothing."""

    present: Arguments
    cores: float | None = None
    most_workers: int | None = None
    """Workers that keep the cores busy; more of them only take turns."""
    worker_bytes: float | None = None
    """Memory that a worker takes for itself."""
    free_bytes: float | None = None
    """Memory that is left beside the present workers."""
    batch_bytes: float | None = None
    queue_bytes: float | None = None
    """Shared memory that is left beside the present queue."""
    has_gpu: bool = False
    passes: int = 1
    """Over the loader that were seen."""
    is_made_anew: bool = False
    """Whether the script makes a new loader for each pass."""
    is_iterable: bool = False
    """Its workers split an iterable dataset between them."""
    needs_workers: str = ""
    """The argument that has a meaning in workers only; empty where there is none."""


@dataclass(frozen=True)
class Grid:
    """Every combination, the present one among them, the cheapest first; and what was left out, in sentences."""

    candidates: tuple[Arguments, ...]
    left_out: tuple[str, ...] = field(default=())


def grid(bounds: Bounds) -> Grid:
    """Return workers up to twice the cores, since those that wait for storage need none, as far as memory goes; no
    more than keep the cores busy, where that is known."""
    candidates = {
        arguments(workers, prefetch, pin_memory=pinned, persistent_workers=persistent)
        for workers, prefetch, pinned, persistent in product(
            _workers(bounds), PREFETCH, _pinned(bounds), _persistent(bounds)
        )
    }
    fitting = {one for one in candidates if _fits(one, bounds)} | {bounds.present}
    return Grid(tuple(sorted(fitting, key=lambda one: one.cost)), tuple(_left_out(bounds)))


def _workers(bounds: Bounds) -> list[int]:
    now = bounds.present.num_workers
    if bounds.is_iterable:
        return [now]
    cores = 1 if bounds.cores is None else int(bounds.cores)
    most = 2 * max(now, cores + 1)
    if bounds.most_workers is not None:
        most = max(min(most, bounds.most_workers), 1)
    counts = [count for count in WORKERS if count <= most and (count or not bounds.needs_workers)]
    return sorted({*counts, now})


def _pinned(bounds: Bounds) -> set[bool]:
    return {False, True} if bounds.has_gpu else {bounds.present.pin_memory}


def _persistent(bounds: Bounds) -> set[bool]:
    varies = bounds.passes > 1 and not bounds.is_made_anew
    return {False, True} if varies else {bounds.present.persistent_workers}


def _fits(one: Arguments, bounds: Bounds) -> bool:
    return _fits_memory(one, bounds) and _fits_queue(one, bounds)


def _fits_memory(one: Arguments, bounds: Bounds) -> bool:
    more = one.num_workers - bounds.present.num_workers
    if more <= 0 or bounds.worker_bytes is None or bounds.free_bytes is None:
        return True
    return more * bounds.worker_bytes <= bounds.free_bytes


def _fits_queue(one: Arguments, bounds: Bounds) -> bool:
    more = one.in_flight - bounds.present.in_flight
    if more <= 0 or bounds.batch_bytes is None or bounds.queue_bytes is None:
        return True
    return more * bounds.batch_bytes <= bounds.queue_bytes


def _left_out(bounds: Bounds) -> list[str]:
    said = []
    if bounds.is_iterable:
        said.append(
            "num_workers: left as it is, since the samples of an iterable dataset hang on how many workers share it"
        )
    elif bounds.needs_workers:
        said.append(f"num_workers=0: not tried, since {bounds.needs_workers} has a meaning in workers only")
    if not bounds.is_iterable and any(not _fits_memory(arguments(count), bounds) for count in _workers(bounds)):
        said.append("more workers: host memory has no room for them")
    if not bounds.has_gpu:
        said.append("pin_memory: no CUDA device was used in this run, so nothing is copied from pinned memory")
    if bounds.is_made_anew:
        said.append(
            "persistent_workers: the script makes a new DataLoader for each pass; of one made once the workers can stay"
        )
    elif bounds.passes < 2:
        said.append(
            "persistent_workers: one pass over the data was seen, so it was left as it is; where a script makes "
            "several passes it saves the start of the workers in each"
        )
    return said
