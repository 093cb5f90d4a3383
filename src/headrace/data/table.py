"""All samples of a dataset before any selection: keys, paths and columns."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from ..errors import UsageError
from .columns import ByteColumn, Column
from .strings import StringColumn


@dataclass(frozen=True, eq=False)
class Table:
    """Immutable; shared by every selection of the same dataset, and across forks."""

    root: str
    """Absolute folder that `paths` are relative to."""
    source: str
    """What was opened, in words: "folder photos/"."""
    paths: StringColumn
    keys: StringColumn
    columns: Mapping[str, Column]
    skipped: Mapping[str, int]
    """What lay there and is no part of any sample, by reason; only counts above 0."""

    def __len__(self) -> int:
        return len(self.keys)

    def bytes_of(self, name: str) -> ByteColumn:
        column = self.columns.get(name)
        if isinstance(column, ByteColumn):
            return column
        names = ", ".join(key for key, other in self.columns.items() if isinstance(other, ByteColumn))
        got = "a column of values" if column is not None else "no such column"
        raise UsageError(f"expected the name of a column of bytes ({names}), got {name!r}: {got} in {self.source}")

    def path(self, path_id: int) -> bytes:
        return os.path.join(os.fsencode(self.root), self.paths.bytes(path_id))

    @cached_property
    def digest(self) -> str:
        """Identity of the samples: keys, members' lengths and checks, values. Not where the root is."""
        state = hashlib.blake2b(digest_size=16)
        outline = {name: [column.kind, getattr(column, "classes", None)] for name, column in self.columns.items()}
        state.update(json.dumps(["headrace table 1", outline], sort_keys=True).encode())
        _feed(state, self.keys.blob, "<u1")
        _feed(state, self.keys.lengths(), "<i8")
        for name in sorted(self.columns):
            column = self.columns[name]
            if isinstance(column, ByteColumn):
                _feed(state, column.length, "<i8")
                _feed(state, column.check, "<u4")
            else:
                _feed(state, column.values, f"<{column.values.dtype.kind}{column.values.dtype.itemsize}")
        return state.hexdigest()


def _feed(state: hashlib.blake2b, array: npt.NDArray[np.generic] | None, dtype: str) -> None:
    """Hashes an array in one byte order on every machine; its size goes first, so that arrays cannot run together."""
    data = b"" if array is None else np.ascontiguousarray(array, dtype=np.dtype(dtype)).view(np.uint8).data
    state.update(len(data).to_bytes(8, "little") + (b"\0" if array is None else b"\1"))
    state.update(data)
