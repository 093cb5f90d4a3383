"""Whether the files that a table names are there, before a run begins that would miss them all."""

from __future__ import annotations

import os

import numpy as np

from headrace.data.columns import MISSING, TextColumn
from headrace.data.table import Table
from headrace.errors import NotFoundError, OutsideRootError, ReadError

_LOOKED_FOR = 8


def expect_files(table: Table, column: str) -> None:
    """Looks for the files of a few samples, if `column` gives them as paths.

    Raises NotFoundError if none is there (one that is not may be the only one), and OutsideRootError.
    """
    texts = table.columns.get(column)
    if table.root is None or not isinstance(texts, TextColumn):
        return
    spread = np.unique(np.linspace(0, len(table) - 1, _LOOKED_FOR).astype(np.int64))
    named = [base_id for base_id in spread.tolist() if texts.strings[base_id]]
    if not named or any(_is_there(table, column, base_id) for base_id in named):
        return
    name = texts.strings[named[0]]
    raise NotFoundError(
        f"{table.source}: expected the files that its column {column!r} names, got none of {len(named)} looked "
        f"for {table.root.place}, such as {name!r} ({_place(table, named[0])}). {table.root.advice}"
    )


def _is_there(table: Table, column: str, base_id: int) -> bool:
    found = table.bytes_of(column)
    at = found.locate(np.array([base_id]))
    if at.length is not None:
        return bool(at.length[0] != MISSING)
    try:
        return os.path.exists(found.path(at))
    except ReadError:
        return False
    except OutsideRootError as error:
        raise OutsideRootError(f"{_place(table, base_id)}: {error}") from error


def _place(table: Table, base_id: int) -> str:
    return f"sample {table.keys[base_id]!r}" if table.origin is None else table.origin.of(base_id)
