"""Files that the sampler saw open, and that are still there."""

from __future__ import annotations

import os
import stat

from ..session.model import Machine, SeenFile

NO_DATA = (".py", ".pyc", ".so", ".log", ".json", ".jsonl", ".yaml", ".toml")
"""Ends of names of files that are read once, at the start, or not as samples."""


def seen_files(machine: Machine) -> list[SeenFile]:
    """Regular files, those seen most first."""
    told = [(one["path"], one["seen"]) for one in machine.facts.get("files") or []]
    found = [(path, seen, _size(path)) for path, seen in told if not path.endswith(NO_DATA)]
    return [SeenFile(path, size, seen) for path, seen, size in found if size]


def _size(path: str) -> int | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None
