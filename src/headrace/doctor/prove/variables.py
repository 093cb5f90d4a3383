"""Environment variables by which libraries are told their number of threads before they are loaded."""

from __future__ import annotations

from typing import Any

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")


def variables(changes: dict[str, Any]) -> dict[str, str]:
    """Those that a run with these changes starts with. Workers are told inside (probe/remedies/threads.py), since they
    inherit what the trainer has."""
    most = changes.get("threads", {}).get("trainer")
    return {} if most is None else dict.fromkeys(THREADS, str(most))
