"""Ray, which is optional, and the connection of this process to a cluster."""

from __future__ import annotations

import importlib
from typing import Any

from headrace.errors import UsageError


def load_ray(option: str) -> Any:
    """Return the module `ray`. Raises UsageError, naming the option that needs it."""
    try:
        return importlib.import_module("ray")
    except ImportError as error:
        raise UsageError(f"{option}: needs Ray, which is not installed: pip install 'headrace[ray]'") from error


def connect_to_ray(option: str, address: str, *, logs_tasks: bool = True) -> tuple[Any, bool]:
    """Return the module `ray`, connected, and True if this call has connected it: then the caller disconnects.

    `address` counts only if this process is not connected yet. `logs_tasks`: print what tasks print. Raises UsageError.
    """
    ray = load_ray(option)
    if ray.is_initialized():
        return ray, False
    try:
        ray.init(address=address, logging_level="error", log_to_driver=logs_tasks)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise UsageError(
            f"{option}: expected a running Ray cluster at address {address!r}, got none ({error}); start one with "
            "`ray start --head`, or connect the program with ray.init() first"
        ) from error
    return ray, True
