"""albumentations: each transform by its class, those that hold others (Compose, OneOf, …) by what they hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ...probe import Probe


def install(probe: Probe, interface: Any) -> None:
    probe.time_calls_by_type(interface.BasicTransform, "__call__", "transform")
