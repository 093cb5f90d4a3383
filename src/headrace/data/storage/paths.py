"""From what the caller gives to absolute paths, and what to say of those that are not there."""

from __future__ import annotations

import difflib
import os

from headrace.data.patterns import expand, is_pattern
from headrace.errors import NotFoundError, UsageError


def path_text(path: object, expected: str) -> str:
    """Raises UsageError, which says what was `expected`, for what is no local path."""
    if not isinstance(path, str | os.PathLike):
        raise UsageError(f"expected {expected}, got {path!r}")
    text = os.fsdecode(path)
    if "://" in text:
        raise UsageError(f"expected a local path, got {text!r}. Download it, or mount it as a folder")
    if not text:
        raise UsageError("expected a path, got an empty string")
    return os.path.expanduser(text)


def resolve(text: str) -> list[str]:
    """Absolute paths. What exists under exactly this name is never taken for a pattern."""
    if os.path.lexists(text) or not is_pattern(text):
        return [os.path.abspath(text)]
    paths = expand(text)
    if not paths:
        raise NotFoundError(f"expected files that match {text!r}, got none. {nearby(os.path.abspath(text))}")
    return [os.path.abspath(path) for path in paths]


def nearby(path: str) -> str:
    """The deepest folder of `path` that exists, and the name in it that comes closest to the next part."""
    while not os.path.isdir(parent := os.path.dirname(path)):
        path = parent
    try:
        names = os.listdir(parent)
    except OSError as error:
        return f"{parent} cannot be listed: {error.strerror}"
    close = difflib.get_close_matches(os.path.basename(path), names, 1)
    return (
        f"Did you mean {os.path.join(parent, close[0])}?"
        if close
        else f"{parent} exists and holds {len(names):,} entries"
    )
