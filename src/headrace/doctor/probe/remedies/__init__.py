"""Remedies that a proof injects into the user's processes, without a change of the code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable

from . import files, images, loaders
from .loaders import AppliedRemedy

if TYPE_CHECKING:
    from ..probe import Probe


BENEATH: dict[str, Callable[[Probe, Any, AppliedRemedy], None]] = {
    "threads": loaders.install_thread_limits,
    "staging": files.install_staging,
    "indexed_tar": files.install_indexed_tar,
    "native_decode": images.install_native_decode,
    "cache": images.install_image_cache,
    "loaders": loaders.install_arguments,
}
"""By their keys of docs/doctor/remedies.md, in the order in which they are installed: what comes later stands before
what came earlier. All of them stand behind the hooks, whose stages then time what took the place of the user's."""
AROUND: dict[str, Callable[[Probe, Any, AppliedRemedy], None]] = {"device_prefetch": loaders.install_device_prefetch}
"""These stand before the hooks, since they take batches from a loader in another thread."""
KEYS = frozenset((*BENEATH, *AROUND))


def inject_beneath(probe: Probe) -> None:
    """Before the hooks are there."""
    _inject(probe, BENEATH)


def inject_around(probe: Probe) -> None:
    """Once they are."""
    _inject(probe, AROUND)


def _inject(probe: Probe, remedies: dict[str, Callable[[Probe, Any, AppliedRemedy], None]]) -> None:
    changes = probe.settings.changes
    for key, install in remedies.items():
        if key not in changes:
            continue
        try:
            install(probe, changes[key], AppliedRemedy(probe, key))
        except Exception as error:
            probe.fault(f"remedy {key}", error)
