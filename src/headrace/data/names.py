"""Many names, and which of them is which: looked up in O(1) without an object for each."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace._core import NameLookup, build_name_table
from headrace.data import checked
from headrace.data.storage.safetensors import Arrays, InvalidFileError
from headrace.data.strings import StringColumn

END = 2**63 - 1
"""Beyond every position."""


class NameTable:
    """Names in order (`strings`), and a hash table over them: see `core/names/name_table.hpp` for its arrays."""

    __slots__ = ("_blob", "_lookup", "_offsets", "order", "starts", "strings")

    def __init__(self, strings: StringColumn, starts: npt.NDArray[np.uint32], order: npt.NDArray[np.int32]) -> None:
        self.strings = strings
        self.starts = starts
        self.order = order
        self._lookup = NameLookup(strings.blob, strings.offsets, starts, order)
        # Single entries come out of a memoryview several times as fast as out of an array.
        self._blob, self._offsets = strings.blob.data, strings.offsets.data

    @classmethod
    def build(cls, strings: StringColumn) -> NameTable:
        return cls(strings, *build_name_table(strings.blob, strings.offsets))

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> NameTable:
        """The inverse of `to_arrays`, from untrusted input. Raises InvalidFileError."""
        strings = checked.strings(arrays, "names")
        starts = checked.array(arrays, "names.starts", np.uint32)
        buckets = len(starts) - 1
        if buckets < 1 or buckets & (buckets - 1) or not checked.divides(starts, len(strings)):
            raise InvalidFileError("names.starts do not divide names.order")
        return cls(
            strings, starts, checked.indices(arrays, "names.order", len(strings), dtype=np.int32, count=len(strings))
        )

    def to_arrays(self) -> Arrays:
        return {
            "names.blob": self.strings.blob,
            "names.offsets": self.strings.offsets,
            "names.starts": self.starts,
            "names.order": self.order,
        }

    def __reduce__(self) -> tuple[Any, ...]:
        return NameTable, (self.strings, self.starts, self.order)

    def __len__(self) -> int:
        return len(self.strings)

    def __getitem__(self, position: int) -> str:
        start, stop = self._offsets[position], self._offsets[position + 1]
        return str(self._blob[start:stop], "utf-8", "surrogateescape")

    def find(self, name: str, before: int = END) -> int | None:
        """Position of the last of that name ahead of `before`; None: there is none."""
        try:
            key = name.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:  # a surrogate that no bytes decode to
            return None
        at = self._lookup.find(key, before)
        return at if at >= 0 else None

    def find_paths(self, paths: StringColumn, which: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """For each of the paths numbered `which`, the position of the last name that is that path; -1 where there is
        none. A leading "./" makes no difference, and the name that is written in the same way goes first."""
        return self._lookup.find_paths(paths.blob, paths.offsets, which)

    def find_any(self, names: Iterable[str], before: int = END) -> int | None:
        """What `find` says of the first of `names` that is here."""
        return next((at for name in names if (at := self.find(name, before)) is not None), None)
