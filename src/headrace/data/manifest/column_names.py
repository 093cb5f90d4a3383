"""The names of a manifest's columns: its header's, or those that the caller gives with `columns=`."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.data.manifest.source import MAX_COLUMNS
from headrace.errors import DatasetError, EmptyDatasetError, UsageError

_SHOWN = 10


def check_names(columns: Sequence[str]) -> list[str]:
    """`columns=` as a list. Raises UsageError."""
    if isinstance(columns, str) or not all(isinstance(name, str) for name in columns):
        raise UsageError(f"columns: expected a list of names, such as ['image', 'label'], got {columns!r}")
    names = list(columns)
    if not names or "" in names:
        raise UsageError(f"columns: expected names, got {names!r}")
    if len(set(names)) < len(names):
        raise UsageError(f"columns: expected names that differ, got {names!r}")
    return names


def is_header(first: Sequence[str], columns: Sequence[str]) -> bool:
    """Whether a first row holds the names that the caller knows the columns by."""
    return set(columns) <= set(first)


def header_names(manifest: str, first: Sequence[str]) -> list[str]:
    """The names in a header; a column without one, such as the index that pandas writes, is named by its number."""
    return differing(manifest, [name or f"column {number}" for number, name in enumerate(first, 1)])


def differing(manifest: str, names: Sequence[str]) -> list[str]:
    """Names as a list. Raises DatasetError where there are two of one name, too many, or none."""
    if not names:
        raise EmptyDatasetError(f"{manifest}: expected at least one column, got none. Check the file")
    if len(names) > MAX_COLUMNS:
        raise DatasetError(f"{manifest}: expected at most {MAX_COLUMNS:,} columns, got {len(names):,}")
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise DatasetError(
                f"{manifest}: expected column names that differ, got {name!r} twice. Rename one in the manifest"
            )
        seen.add(name)
    return list(names)


def chosen(manifest: str, names: Sequence[str], columns: Sequence[str] | None) -> list[str]:
    """Those of a manifest's columns that `columns=` picks, or all. Raises UsageError for one that is not there."""
    if columns is None:
        return differing(manifest, names)
    for name in columns:
        if name not in names:
            some = ", ".join(map(repr, names[:_SHOWN])) + (", …" if len(names) > _SHOWN else "")
            raise UsageError(f"columns: expected names of columns of {manifest} ({some}), got {name!r}")
    return differing(manifest, columns)
