"""Waiting for other threads and processes, by what programs most often wait with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ...probe import Probe


def install_futures(probe: Probe, futures: Any) -> None:
    probe.time_calls(futures.Future, "result", "wait", "future")
    probe.time_calls(futures, "wait", "wait", "future")


def install_pool(probe: Probe, pool: Any) -> None:
    probe.time_calls(pool.ApplyResult, "get", "wait", "multiprocessing pool")


def install_locks(probe: Probe, fcntl: Any) -> None:
    for name in ("flock", "lockf"):
        probe.time_calls(fcntl, name, "wait", f"{name}")
