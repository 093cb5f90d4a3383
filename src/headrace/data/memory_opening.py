"""Samples in memory, detected by type: tables, columns, rows, dicts, lists of images."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from headrace.data.byte_columns import BytesLike
from headrace.data.open_arguments import OpenableSource, OpenArguments, path_of, root_arguments, root_of
from headrace.data.sources.arrow_tables import open_memory_table, table_kind
from headrace.data.sources.file_kind import is_image, kind_of
from headrace.data.sources.image_folders import open_matched
from headrace.data.sources.memory_samples import table_of_columns, table_of_paths, table_of_records, table_of_rows
from headrace.data.sources.path_root import FolderRoot
from headrace.data.sources.stored_arrays import npy_column
from headrace.data.table import SampleTable
from headrace.errors import EmptyDatasetError, UsageError

_LOOKED_AT = 8
"""Images that are checked in a long list: enough to notice a mistake."""


def in_memory(where: Any, given: OpenArguments) -> OpenableSource | None:
    """Return samples in memory as a source; None if `where` names files."""
    table = table_kind(where)
    if table is not None:
        return _held(table, "a table in memory", given, partial(open_memory_table, where, columns=given.columns))
    if isinstance(where, np.ndarray) and where.ndim == 1:
        where = where.tolist()
    if isinstance(where, Mapping):
        return _mapping(where, given)
    if isinstance(where, list | tuple):
        return _list(where, given)
    if isinstance(where, str | os.PathLike | BytesLike) or (
        not hasattr(where, "__iter__") and not hasattr(where, "__getitem__")
    ):
        return None
    return _iterable(where, given)


def _mapping(where: Mapping[str, Any], given: OpenArguments) -> OpenableSource:
    """Return a source of folders or patterns by column, or of the columns themselves."""
    files = {name: path for name, each in where.items() if (path := _npy_path(each)) is not None}
    where = {**where, **{name: npy_column(path, given.layout) for name, path in files.items()}}
    if all(isinstance(each, str | os.PathLike) for each in where.values()):
        paths = {name: path_of(path) for name, path in where.items()}
        return OpenableSource("what is opened", "a mapping of folders", ("stage",), partial(open_matched, paths))
    make = partial(table_of_columns, where, given.columns, layout=given.layout)
    return _held("what is opened", "columns in memory", given, make, "layout")


def _npy_path(value: Any) -> str | None:
    """Return the absolute path of an `.npy` that a column names; None for any other value."""
    if not isinstance(value, str | os.PathLike):
        return None
    path = os.path.abspath(path_of(value))
    return path if path.endswith(".npy") and os.path.isfile(path) else None


def _list(where: Sequence[Any], given: OpenArguments) -> OpenableSource | None:
    """Return a list of samples, detected by its first item; None for paths of archives or manifests."""
    if not where:
        raise EmptyDatasetError("expected samples or paths, got an empty list. Check the pattern or query that made it")
    first, subject = where[0], "what is opened"
    if isinstance(first, Mapping):
        of_dicts = partial(table_of_records, where, given.columns, layout=given.layout)
        return _held(subject, "dicts in memory", given, of_dicts, "layout")
    if isinstance(first, tuple | list):
        return _held(subject, "rows in memory", given, partial(table_of_rows, where, given.columns))
    if isinstance(first, BytesLike):
        here = FolderRoot(os.getcwd())
        return OpenableSource(
            subject, "images' bytes in memory", (), lambda: table_of_columns({"image": where}, None, root=here)
        )
    if not isinstance(first, str | os.PathLike):
        return None
    path = path_of(first)
    # Images, rather than archives or manifests. Paths in a root cannot be checked yet.
    if is_image(os.path.abspath(path)) or (given.root is not None and not os.path.isfile(path)):
        if given.root is None:
            expect_images([path_of(path) for path in spread(where)])
        source = f"{len(where):,} paths in memory"
        return _held(subject, "a list of images", given, partial(table_of_paths, where, source=source), bare=True)
    return None


def _iterable(where: Any, given: OpenArguments) -> OpenableSource:
    name = f"the {type(where).__name__}"
    count = len(where) if hasattr(where, "__len__") else given.length
    if count is None:
        raise UsageError(
            f"length: expected how many samples {name} gives, since it does not say, got none. State it as length=, or "
            f"give a list"
        )
    records = where if hasattr(where, "__iter__") else (where[place] for place in range(count))
    length = count if given.length is None else given.length
    make = partial(table_of_records, records, given.columns, length=length, layout=given.layout)
    return _held(name, "an iterable", given, make, "length", "layout")


def _held(
    subject: str, what: str, given: OpenArguments, make: Callable[..., SampleTable], *more: str, bare: bool = False
) -> OpenableSource:
    """Return a source of samples in memory; their paths may lead into a root. `bare`: images are the only column."""

    def make_table() -> SampleTable:
        return make(root=root_of([os.path.abspath("memory")], given))

    takes = ("root", *root_arguments(given), *(() if bare else ("classes", "columns")), *more)
    return OpenableSource(subject, what, takes, make_table, labelled=True)


def expect_images(paths: Sequence[str]) -> None:
    """Raise UsageError if a path is another kind of dataset. A damaged or missing image is a bad sample."""
    for path in map(os.path.abspath, paths):
        kind = kind_of(path) if os.path.isfile(path) else None
        if kind is not None and kind.kind not in ("image", "other"):
            raise UsageError(f"expected images alone, as the first is, got {kind.words}, {path}. Open them apart")


def spread(items: Sequence[Any]) -> list[Any]:
    """Return a few items, the first and the last included."""
    return [items[place] for place in sorted({round(at) for at in np.linspace(0, len(items) - 1, _LOOKED_AT)})]
