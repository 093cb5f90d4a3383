"""Files of one folder or pattern, each with the stem by which it is matched with files of others."""

from __future__ import annotations

import fnmatch
import glob
import os
import re
from dataclasses import dataclass

from headrace.data.storage.sidecar import INDEX_SUFFIXES
from headrace.data.walking import walk
from headrace.errors import DatasetError, EmptyDatasetError, NotFoundError

_PART = re.compile(r"\*\*/|\*|\?|\[!?\]?[^\]]*\]")
"""What of a pattern is no plain text; a `**` that is no whole part of a path is two stars, as in `glob`."""


ALL = "**/*"


@dataclass(frozen=True)
class StemmedFiles:
    """Files below `root`, in bytewise order of their names."""

    root: str
    name_of: dict[str, str]
    """Relative path by stem."""


def stemmed_files(where: str) -> StemmedFiles:
    """All files below a folder, or those that a pattern names (`masks/*_mask.png`).

    A stem is what the wildcards stand for; below a folder, and for a pattern that ends in `*`, it is without the
    extension. Hidden files and folders are passed over.

    Raises NotFoundError, EmptyDatasetError, DatasetError where two files have one stem, or ReadError for a folder below
    a folder that cannot be listed.
    """
    root, pattern = split_pattern(where)
    if not os.path.isdir(root):
        got = "a file" if os.path.exists(root) else "nothing"
        raise NotFoundError(f"{root}: expected a folder with the files of {where!r}, got {got}. Check the path")
    found = _files_below(root) if pattern == ALL else glob.glob(pattern, root_dir=root, recursive=True)
    expression, bare = re.compile(_expression(pattern), re.DOTALL), pattern.endswith("*")
    name_of: dict[str, str] = {}
    for name in sorted(found, key=os.fsencode):
        if name.endswith(INDEX_SUFFIXES) or not os.path.isfile(os.path.join(root, name)):
            continue
        stem = _stem(expression, name)
        if bare:
            stem = os.path.splitext(stem)[0]
        if stem in name_of:
            raise DatasetError(
                f"{root}: expected one file of each stem, got {name_of[stem]!r} and {name!r} for {stem!r}. "
                f"Name one kind by a pattern, such as '*.png'"
            )
        name_of[stem] = name
    if not name_of:
        raise EmptyDatasetError(f"{where}: expected files, got none. Check the path or the pattern")
    return StemmedFiles(root, name_of)


def _files_below(root: str) -> list[str]:
    """What the pattern of all files names. A glob would pass over folders that it may not list, and follow a link that
    leads back until the system refuses."""
    below = walk(os.fsencode(root), _entries)
    return [os.fsdecode(os.path.join(path, name)) for path, names in below for name in names]


def _entries(folder: bytes) -> tuple[list[bytes], list[bytes]]:
    """Names of the subfolders and of all else in a folder, but for hidden ones."""
    subfolders: list[bytes] = []
    others: list[bytes] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if not entry.name.startswith(b"."):
                (subfolders if entry.is_dir() else others).append(entry.name)
    return subfolders, others


def split_pattern(where: str) -> tuple[str, str]:
    """The folder that holds all files, and the pattern below it."""
    if os.path.isdir(where) or not glob.has_magic(where):
        return os.path.abspath(where), ALL
    parts = where.split("/")
    plain = next(at for at, part in enumerate(parts) if glob.has_magic(part))
    if parts[-1] == "**":  # files are meant, and those are what the star after it names
        parts.append("*")
    return os.path.abspath("/".join(parts[:plain]) or ("/" if where.startswith("/") else ".")), "/".join(parts[plain:])


def _stem(expression: re.Pattern[str], name: str) -> str:
    match = expression.fullmatch(name)
    assert match is not None, f"{name!r} was found by a glob whose expression is {expression.pattern}"
    return "/".join(group.rstrip("/") for group in match.groups() if group)


def _expression(pattern: str) -> str:
    """The pattern as a regular expression with a group for each wildcard."""
    text, at = "", 0
    for part in _PART.finditer(pattern):
        text += re.escape(pattern[at : part.start()]) + _group(part[0])
        at = part.end()
    return text + re.escape(pattern[at:])


def _group(wildcard: str) -> str:
    match wildcard:
        case "**/":
            return "((?:[^/]+/)*)"
        case "*":
            return "([^/]*)"
        case "?":
            return "([^/])"
    return "(" + fnmatch.translate(wildcard)[len("(?s:") : -len(r")\Z")] + ")"
