"""Deprecated alias of `headrace.dropins`, which warns for one release before its removal."""

from __future__ import annotations

import warnings
from importlib import import_module
from typing import Any

warnings.warn(
    "headrace.compat is called headrace.dropins now; most of its names are headrace's own, such as "
    "headrace.ThreadDataLoader",
    DeprecationWarning,
    stacklevel=2,
)


def __getattr__(name: str) -> Any:
    return getattr(import_module("headrace.dropins"), name)
