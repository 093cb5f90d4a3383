"""Paths from patterns: `train-{000..009}.tar`, `shards/*.tar`, and both together."""

from __future__ import annotations

import glob
import os
from itertools import islice

from headrace.data.storage.sidecar import INDEX_SUFFIXES
from headrace.errors import UsageError

_MAX_PATHS = 100_000


def is_pattern(text: str) -> bool:
    return "{" in text or glob.has_magic(text)


def expand(pattern: str) -> list[str]:
    """The paths that a pattern names: braces in the order written (as bash and WebDataset), globs sorted bytewise.

    A part without `*`, `?` or `[` names a path that may not exist; a glob names only what is there.
    """
    paths: list[str] = []
    for part in _braces(pattern):
        paths += _matches(part) if glob.has_magic(part) else [part]
    return paths


def _matches(pattern: str) -> list[str]:
    """What a glob matches, but for our own indices that lie beside the tars."""
    names = glob.glob(pattern, recursive=True)
    return sorted((name for name in names if not name.endswith(INDEX_SUFFIXES)), key=os.fsencode)


def _braces(pattern: str) -> list[str]:
    if "{" not in pattern:
        return [pattern]
    from braceexpand import braceexpand

    try:
        parts = list(islice(braceexpand(pattern), _MAX_PATHS + 1))
    except ValueError as error:
        raise UsageError(f"expected balanced braces, such as train-{{000..009}}.tar, got {pattern!r}") from error
    if len(parts) > _MAX_PATHS:
        raise UsageError(f"expected a pattern of at most {_MAX_PATHS:,} paths, got more from {pattern!r}")
    return parts
