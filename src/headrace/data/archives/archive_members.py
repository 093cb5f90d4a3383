"""An archive's members: a hash table of their names, and their grouping into samples."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from headrace._core import JoinedInt64, JoinedUInt32, NameLookup, build_name_table, group_members
from headrace.data.storage import safetensors
from headrace.data.storage.safetensors import Arrays, InvalidFileError
from headrace.data.storage.strings import StringColumn

# -- from data/samples.py: Which members of an archive make up each sample: the WebDataset layout, in 5 bytes a member
# and 8 a sample.


@dataclass(frozen=True, eq=False)
class GroupedMembers:
    """The members of sample `i` are `member[first[i]:first[i + 1]]`, one an extension and at least one.

    Members that share a stem are one sample (core/samples/grouping.hpp); its key is the beginning of their names.
    """

    first: npt.NDArray[np.uint32]
    """uint32[s + 1]"""
    member: npt.NDArray[np.int32]
    """Positions in the archive."""
    extension: npt.NDArray[np.uint8]
    """Of each of `member`, into `extensions`."""
    extensions: tuple[str, ...]
    """Lower-case."""
    folders: StringColumn
    """First components of the keys, in order of first appearance."""
    folder_of: npt.NDArray[np.int32]
    """For each sample, into `folders`; -1: none."""
    skipped: Mapping[str, int]
    """Members that belong to no sample, by reason; only counts above 0."""

    def __len__(self) -> int:
        return len(self.first) - 1

    @classmethod
    def group(cls, names: StringColumn, types: npt.NDArray[np.uint8], skipped: Mapping[str, int]) -> GroupedMembers:
        """The samples of an archive's members, whose types are tar's, after others were `skipped`.

        Raises ValueError beyond the limit of extensions.
        """
        first, member, extension, extensions, folders, folder_offsets, folder_of, passed = group_members(
            names.blob, names.offsets, types
        )
        return cls(
            first,
            member,
            extension,
            tuple(text.decode("utf-8", "surrogateescape") for text in extensions),
            StringColumn(folders, folder_offsets),
            folder_of,
            {what: count for what, count in {**skipped, **passed}.items() if count},
        )

    def to_arrays(self) -> Arrays:
        """All but what is in the outline."""
        return {
            "samples.first": self.first,
            "samples.member": self.member,
            "samples.extension": self.extension,
            "samples.folder_of": self.folder_of,
            "folders.blob": self.folders.blob,
            "folders.offsets": self.folders.offsets,
        }

    def outline(self) -> dict[str, Any]:
        """What is no array, for JSON."""
        return {"extensions": self.extensions, "skipped": dict(self.skipped)}

    @classmethod
    def from_arrays(cls, arrays: Arrays, outline: Mapping[str, Any], members: int) -> GroupedMembers:
        """The inverse of `to_arrays` and `outline`, from untrusted input: raises InvalidFileError unless all fits an
        archive of that many members."""
        extensions, skipped = _read_outline(outline)
        member = safetensors.checked_indices(arrays, "samples.member", members, dtype=np.int32)
        first = safetensors.checked_array(arrays, "samples.first", np.uint32)
        if not safetensors.divides(first, len(member), empty=False):
            raise InvalidFileError("samples.first does not divide samples.member")
        extension = safetensors.checked_array(arrays, "samples.extension", np.uint8, len(member))
        if len(extension) and extension.max() >= len(extensions):
            raise InvalidFileError("samples.extension is out of range")
        folders = safetensors.checked_strings(arrays, "folders")
        folder_of = safetensors.checked_indices(
            arrays, "samples.folder_of", len(folders), dtype=np.int32, count=len(first) - 1, first=-1
        )
        return cls(first, member, extension, extensions, folders, folder_of, skipped)


def _read_outline(outline: Mapping[str, Any]) -> tuple[tuple[str, ...], dict[str, int]]:
    match outline:
        case {"extensions": list(extensions), "skipped": dict(skipped)}:
            names_fit = all(isinstance(name, str) for name in extensions) and len(set(extensions)) == len(extensions)
            if names_fit and all(isinstance(count, int) for count in skipped.values()):
                return tuple(extensions), skipped
    raise InvalidFileError("the outline has another form")


# -- from data/names.py: Many names, and which of them is which: looked up in O(1) without an object for each.


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
        strings = safetensors.checked_strings(arrays, "names")
        starts = safetensors.checked_array(arrays, "names.starts", np.uint32)
        buckets = len(starts) - 1
        if buckets < 1 or buckets & (buckets - 1) or not safetensors.divides(starts, len(strings)):
            raise InvalidFileError("names.starts do not divide names.order")
        return cls(
            strings,
            starts,
            safetensors.checked_indices(arrays, "names.order", len(strings), dtype=np.int32, count=len(strings)),
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


# -- from data/joined.py: Several arrays of one kind, read at random as if they were one.


T = TypeVar("T", np.int64, np.uint32)

_NATIVE: dict[np.dtype[Any], type[JoinedInt64] | type[JoinedUInt32]] = {
    np.dtype(np.int64): JoinedInt64,
    np.dtype(np.uint32): JoinedUInt32,
}


class JoinedArray(Generic[T]):
    """An array for each archive, borrowed: joining a thousand mapped ones would copy them all into memory."""

    __slots__ = ("_native", "parts")

    def __init__(self, parts: Iterable[npt.NDArray[T]]) -> None:
        """At least one array, all int64 or all uint32."""
        self.parts: tuple[npt.NDArray[T], ...] = tuple(parts)
        self._native: Any = _NATIVE[self.parts[0].dtype]()
        for part in self.parts:
            self._native.add(part)

    def take(self, part: npt.NDArray[np.int64], index: npt.NDArray[np.int64]) -> npt.NDArray[T]:
        """`parts[part[i]][index[i]]` for each i; 0 where the index is -1. Raises IndexError."""
        taken: npt.NDArray[T] = self._native.take(part, index)
        return taken

    def __reduce__(self) -> tuple[Any, ...]:
        return JoinedArray, (self.parts,)
