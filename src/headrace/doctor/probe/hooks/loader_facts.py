"""What is known of a DataLoader when it is first iterated."""

from __future__ import annotations

from typing import Any

from ..call_site import call_site


def loader_facts(loader: Any) -> dict[str, Any]:
    """As docs/doctor/evidence.md has them. Asked once its workers have started: how they start is settled then."""
    file, line = call_site()
    if type(loader).__module__.startswith("headrace."):
        return {**_of_threads(loader), "file": file, "line": line}
    is_iterable = _is_iterable(loader)
    return {
        "num_workers": loader.num_workers,
        "batch_size": loader.batch_size or getattr(loader.batch_sampler, "batch_size", None),
        "prefetch_factor": loader.prefetch_factor,
        "persistent_workers": loader.persistent_workers,
        "pin_memory": bool(loader.pin_memory),
        "in_order": getattr(loader, "in_order", True),
        "timeout": loader.timeout,
        "iterable": is_iterable,
        "start_method": _start_method(loader),
        "dataset": f"{type(loader.dataset).__module__}.{type(loader.dataset).__qualname__}",
        "length": None if is_iterable else _length(loader),
        "file": file,
        "line": line,
    }


def makers_of(loader: Any) -> int:
    """How many processes, or threads, make its batches before they are asked for."""
    if type(loader).__module__.startswith("headrace."):
        return max(1, _of_threads(loader)["threads"] or 0)
    return int(loader.num_workers)


def _of_threads(loader: Any) -> dict[str, Any]:
    """Headrace's own loaders make batches in threads of the trainer."""
    kind = type(loader)
    return {
        "num_workers": 0,
        "threads": loader.threads if hasattr(loader, "threads") else loader.num_workers,
        "batch_size": getattr(loader, "batch_size", None),
        "dataset": f"{kind.__module__}.{kind.__qualname__}",
        "length": len(loader),
    }


def _is_iterable(loader: Any) -> bool:
    from torch.utils.data.dataloader import _DatasetKind

    return bool(loader._dataset_kind == _DatasetKind.Iterable)


def _start_method(loader: Any) -> str | None:
    import multiprocessing

    if not loader.num_workers:
        return None
    context = loader.multiprocessing_context or multiprocessing.get_context()
    return str(context.get_start_method())


def _length(loader: Any) -> int | None:
    """In batches. Not by `len(loader)`, which of an iterable dataset is remembered, and warned of later; that of a
    user's sampler may raise anything."""
    try:
        return len(loader._index_sampler)
    except Exception:
        return None
