"""Absolute paths from patterns and brace lists, and a walk over folders."""

from __future__ import annotations

import difflib
import errno
import glob
import os
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, TypeVar

from headrace.data.storage.sidecar import INDEX_SUFFIXES
from headrace.errors import NotFoundError, ReadError, UsageError

T = TypeVar("T")

_MAX_PATHS = 100_000


def expand_pattern(pattern: str) -> list[str]:
    """Return the paths for a pattern: braces in the given order, as in bash, and globs sorted bytewise.

    A part without `*`, `?` or `[` may name a missing path; a glob returns only existing paths, without Headrace's
    indices.
    """
    paths: list[str] = []
    for part in brace_parts(pattern):
        if glob.has_magic(part):
            names = glob.glob(part, recursive=True)
            paths += sorted((name for name in names if not name.endswith(INDEX_SUFFIXES)), key=os.fsencode)
        else:
            paths.append(part)
    return paths


def brace_parts(pattern: str) -> list[str]:
    """Return the expansions of braces in the given order, as in bash. Raises UsageError."""
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


def local_path(path: object, expected: str) -> str:
    """Return `path` as text with `~` expanded. Raises UsageError, with `expected` in the message, for no local path."""
    if not isinstance(path, str | os.PathLike):
        raise UsageError(f"expected {expected}, got {path!r}")
    text = os.fsdecode(path)
    if "://" in text:
        raise UsageError(f"expected a local path, got {text!r}. Download it, or mount it as a folder")
    if not text:
        raise UsageError("expected a path, got an empty string")
    return os.path.expanduser(text)


def resolve_paths(text: str) -> list[str]:
    """Return the absolute paths for `text`; an existing path is never a pattern."""
    if os.path.lexists(text) or not ("{" in text or glob.has_magic(text)):
        return [os.path.abspath(text)]
    paths = expand_pattern(text)
    if not paths:
        raise NotFoundError(f"expected files that match {text!r}, got none. {suggest_path(os.path.abspath(text))}")
    return [os.path.abspath(path) for path in paths]


def suggest_path(path: str) -> str:
    """Return a hint for a missing path: the closest name in its deepest existing folder."""
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


def is_folder(entry: os.DirEntry[Any]) -> bool:
    """Return True if an entry is a folder; False for a link to itself."""
    return _unless_circular(entry.is_dir)


def is_regular(entry: os.DirEntry[Any]) -> bool:
    """Return True if an entry is a regular file; False for a link to itself."""
    return _unless_circular(entry.is_file)


def _unless_circular(check: Callable[[], bool]) -> bool:
    try:
        return check()
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        return False


def walk_folders(
    root: bytes, look: Callable[[bytes], tuple[list[bytes], T]], *, in_circle: Callable[[], object] | None = None
) -> Iterator[tuple[bytes, T]]:
    """Yield each folder's path relative to `root` (empty for `root` itself) and the result of `look`.

    `look` returns the names of the subfolders to visit, and its result. Links to a parent folder are not followed; they
    call `in_circle` instead. Raises ReadError for a folder that cannot be listed.
    """
    todo: list[tuple[bytes, tuple[tuple[int, int], ...]]] = [(b"", ())]
    while todo:
        path, above = todo.pop()
        full = os.path.join(root, path) if path else root
        try:
            status = os.stat(full)
            here = (status.st_dev, status.st_ino)
            if here in above:
                if in_circle is not None:
                    in_circle()
                continue
            subfolders, found = look(full)
        except OSError as error:
            raise ReadError(
                f"{os.fsdecode(full)}: could not be listed: {error.strerror}. "
                f"Make it readable, or move it out of the dataset"
            ) from error
        yield path, found
        prefix = path + b"/" if path else b""
        todo += [(prefix + name, (*above, here)) for name in subfolders]
