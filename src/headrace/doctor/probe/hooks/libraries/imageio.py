"""imageio: one decode, whichever library it asks."""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...probe import Probe

READS = ("imread", "imopen", "mimread", "mvolread", "volread")


def install(probe: Probe, imageio: ModuleType) -> None:
    """Of imageio.v2 or imageio.v3."""
    for name in READS:
        probe.time_calls(imageio, name, "decode", f"imageio {name}")
