"""Identity of samples: what they are, not where they lie."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from headrace.data.columns import Column
from headrace.data.strings import Strings


def digest_of(keys: Strings, columns: Mapping[str, Column]) -> str:
    """Hex identity of the samples: keys, members' lengths and checks, values. Not where the root is."""
    state = hashlib.blake2b(digest_size=16)
    outline = {name: [column.kind, getattr(column, "classes", None)] for name, column in columns.items()}
    state.update(json.dumps(["headrace table 1", outline], sort_keys=True).encode())
    _feed_strings(state, keys)
    for name in sorted(columns):
        for array, dtype in columns[name].parts():
            _feed(state, array, dtype)
    return state.hexdigest()


def _feed_strings(state: hashlib.blake2b, strings: Strings) -> None:
    """As the one blob and the one array of lengths that they would be."""
    lengths = np.concatenate([np.empty(0, np.int64), *(piece.lengths() for piece in strings.pieces())])
    _feed_size(state, int(lengths.sum()))
    for piece in strings.pieces():
        state.update(np.ascontiguousarray(piece.blob).data)
    _feed(state, lengths, "<i8")


def _feed(state: hashlib.blake2b, array: npt.NDArray[np.generic] | None, dtype: str) -> None:
    """Hashes an array in one byte order on every machine; its size goes first, so that arrays cannot run together."""
    data = b"" if array is None else np.ascontiguousarray(array, dtype=np.dtype(dtype)).view(np.uint8).data
    _feed_size(state, None if array is None else len(data))
    state.update(data)


def _feed_size(state: hashlib.blake2b, size: int | None) -> None:
    state.update((size or 0).to_bytes(8, "little") + (b"\0" if size is None else b"\1"))
