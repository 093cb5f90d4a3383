"""Remedies that a proof tries: changes that are made in the user's processes, without a change of the code.

Like all of the probe it imports the standard library only. What a remedy needs beyond that, headrace or torch, it takes
from the user's own environment when the time comes; where that has none, the remedy is not applied and says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable

from . import cache, device_prefetch, files, images, loaders, staging, threads
from .applied import Applied

if TYPE_CHECKING:
    from ..probe import Probe

BENEATH: dict[str, Callable[[Probe, Any, Applied], None]] = {
    "threads": threads.install,
    "staging": staging.install,
    "indexed_tar": files.install,
    "native_decode": images.install,
    "cache": cache.install,
    "loaders": loaders.install,
}
"""By their keys of docs/doctor/remedies.md, in the order in which they are installed: what comes later stands before
what came earlier. All of them stand behind the hooks, whose stages then time what took the place of the user's."""
AROUND: dict[str, Callable[[Probe, Any, Applied], None]] = {"device_prefetch": device_prefetch.install}
"""These stand before the hooks, since they take batches from a loader in another thread."""
KEYS = frozenset((*BENEATH, *AROUND))


def inject_beneath(probe: Probe) -> None:
    """Before the hooks are there."""
    _inject(probe, BENEATH)


def inject_around(probe: Probe) -> None:
    """Once they are."""
    _inject(probe, AROUND)


def _inject(probe: Probe, remedies: dict[str, Callable[[Probe, Any, Applied], None]]) -> None:
    changes = probe.settings.changes
    for key, install in remedies.items():
        if key not in changes:
            continue
        try:
            install(probe, changes[key], Applied(probe, key))
        except Exception as error:
            probe.fault(f"remedy {key}", error)
