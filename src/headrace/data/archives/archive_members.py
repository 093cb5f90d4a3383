"""Members of an archive: a hash table of their names, and their grouping into samples."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Self

import msgspec
import numpy as np
import numpy.typing as npt

from headrace._core import JoinedInt64, JoinedUInt32, NameLookup, build_name_table, group_members
from headrace.data.storage.safetensors import (
    Arrays,
    InvalidFileError,
    checked_array,
    checked_indices,
    checked_strings,
    divides,
)
from headrace.data.storage.strings import Ints, StringColumn

END = 2**63 - 1
"""Position beyond every other."""


class NameTable:
    """Names in order (`strings`) with a hash table over them; `core/names/name_table.hpp` documents the arrays."""

    __slots__ = ("_blob", "_lookup", "_offsets", "order", "starts", "strings")

    def __init__(self, strings: StringColumn, starts: npt.NDArray[np.uint32], order: npt.NDArray[np.int32]) -> None:
        self.strings = strings
        self.starts = starts
        self.order = order
        self._lookup = NameLookup(strings.blob, strings.offsets, starts, order)
        # Reading single entries from a memoryview is several times as fast as from an array.
        self._blob, self._offsets = strings.blob.data, strings.offsets.data

    @classmethod
    def build(cls, strings: StringColumn) -> NameTable:
        return cls(strings, *build_name_table(strings.blob, strings.offsets))

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> NameTable:
        """Load the output of `to_arrays` from untrusted input. Raises InvalidFileError."""
        names = checked_strings(arrays, "names")
        starts = checked_array(arrays, "names.starts", np.uint32)
        buckets = len(starts) - 1
        if buckets < 1 or buckets & (buckets - 1) or not divides(starts, len(names)):
            raise InvalidFileError("names.starts do not divide names.order")
        order = checked_indices(arrays, "names.order", len(names), dtype=np.int32, count=len(names))
        return cls(names, starts, order)

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
        """Return the position of the last such name before `before`, or None."""
        try:
            key = name.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:  # a surrogate that no bytes decode to
            return None
        at = self._lookup.find(key, before)
        return at if at >= 0 else None

    def find_paths(self, paths: StringColumn, which: Ints) -> Ints:
        """Return for each of the paths numbered `which` the position of the last name equal to it; -1 for none.

        A leading "./" is ignored, but an exact match takes precedence.
        """
        return self._lookup.find_paths(paths.blob, paths.offsets, which)


@dataclass(frozen=True, eq=False)
class ArchiveMembers(ABC):
    """All members of one archive, in order, as arrays with one entry per member."""

    columns: ClassVar[Mapping[str, type[np.generic]]]
    """Names and types of the arrays."""
    located: ClassVar[tuple[str, ...]]
    """Arrays that locate a member's data and describe its form."""
    proof: ClassVar[str]
    """Array that identifies a member's data among data of the same length."""
    prefix: ClassVar[str] = ""
    """Prefix of the arrays' names in the index."""

    names: NameTable
    views: tuple[memoryview, ...] = field(init=False, repr=False)
    """`columns` as memoryviews, which read single entries several times as fast as arrays."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "views", tuple(getattr(self, name).data for name in self.columns))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), tuple(getattr(self, each.name) for each in fields(self) if each.init)

    def __len__(self) -> int:
        return len(self.names)

    @abstractmethod
    def find_files(self, paths: StringColumn, which: Ints) -> Ints:
        """Return the position of the file that each of the paths numbered `which` names; -1 for none."""

    def to_arrays(self) -> Arrays:
        return {**self.names.to_arrays(), **{f"{self.prefix}{name}": getattr(self, name) for name in self.columns}}

    @classmethod
    def from_arrays(cls, arrays: Arrays, archive_bytes: int) -> Self:
        """Load the output of `to_arrays` from untrusted input.

        Raises InvalidFileError unless all members fit in an archive of `archive_bytes` bytes.
        """
        names = NameTable.from_arrays(arrays)
        held = (checked_array(arrays, f"{cls.prefix}{name}", kind, len(names)) for name, kind in cls.columns.items())
        members = cls(names, *held, *cls.further(arrays, len(names)))
        if not members.fit(archive_bytes):
            raise InvalidFileError("a member lies outside the archive")
        return members

    @classmethod
    def further(cls, arrays: Arrays, members: int) -> tuple[Any, ...]:
        """Return the extra fields of this kind of archive, from untrusted input. Raises InvalidFileError."""
        return ()

    @abstractmethod
    def fit(self, archive_bytes: int) -> bool:
        """Return True if all members are inside an archive of that size."""


class SamplesOutline(msgspec.Struct):
    """JSON outline of an archive's samples in its index."""

    extensions: tuple[str, ...] = ()
    skipped: dict[str, int] = {}
    digest: str = ""
    """`table_digest` of the samples, so that a state can identify its dataset without reading each of them."""
    ungrouped: str | None = None
    """Reason why the members form no samples; None if they do."""


@dataclass(frozen=True, eq=False)
class GroupedMembers:
    """Members of an archive grouped into samples as in WebDataset, in 5 bytes per member and 8 per sample.

    The members of sample `i` are `member[first[i]:first[i + 1]]`, at least one, with distinct extensions. Members that
    share a stem form one sample (core/samples/grouping.hpp); its key is a prefix of their names.
    """

    first: npt.NDArray[np.uint32]
    """Offsets into `member`: uint32[s + 1]."""
    member: npt.NDArray[np.int32]
    """Index of each member in the archive."""
    extension: npt.NDArray[np.uint8]
    """Index into `extensions` for each of `member`."""
    extensions: tuple[str, ...]
    """Distinct extensions in lower case."""
    folders: StringColumn
    """First components of the keys, in order of first appearance."""
    folder_of: npt.NDArray[np.int32]
    """Index into `folders` for each sample; -1: none."""
    skipped: Mapping[str, int]
    """Members that belong to no sample, by reason; only counts above 0."""
    last_dot: bool = False
    """True if names are split at their last dot."""

    def __len__(self) -> int:
        return len(self.first) - 1

    @classmethod
    def group(
        cls, names: StringColumn, types: npt.NDArray[np.uint8], skipped: Mapping[str, int], *, last_dot: bool = False
    ) -> GroupedMembers:
        """Group members by their names and tar type codes; `skipped` counts members that were excluded before.

        Raises ValueError beyond the limit of extensions.
        """
        first, member, extension, extensions, folders, folder_offsets, folder_of, passed = group_members(
            names.blob, names.offsets, types, last_dot
        )
        return cls(
            first,
            member,
            extension,
            tuple(text.decode("utf-8", "surrogateescape") for text in extensions),
            StringColumn(folders, folder_offsets),
            folder_of,
            {what: count for what, count in {**skipped, **passed}.items() if count},
            last_dot,
        )

    def to_arrays(self) -> Arrays:
        """Return all fields except `extensions` and `skipped`."""
        return {
            "samples.first": self.first,
            "samples.member": self.member,
            "samples.extension": self.extension,
            "samples.folder_of": self.folder_of,
            "folders.blob": self.folders.blob,
            "folders.offsets": self.folders.offsets,
        }

    @classmethod
    def from_arrays(cls, arrays: Arrays, outline: SamplesOutline, members: int) -> GroupedMembers:
        """Load samples of an archive of `members` members, from untrusted input. Raises InvalidFileError."""
        extensions = outline.extensions
        if len(set(extensions)) < len(extensions):
            raise InvalidFileError("an extension comes twice")
        member = checked_indices(arrays, "samples.member", members, dtype=np.int32)
        first = checked_array(arrays, "samples.first", np.uint32)
        if not divides(first, len(member), empty=False):
            raise InvalidFileError("samples.first does not divide samples.member")
        extension = checked_array(arrays, "samples.extension", np.uint8, len(member))
        if len(extension) and extension.max() >= len(extensions):
            raise InvalidFileError("samples.extension is out of range")
        folders = checked_strings(arrays, "folders")
        folder_of = checked_indices(
            arrays, "samples.folder_of", len(folders), dtype=np.int32, count=len(first) - 1, first=-1
        )
        return cls(first, member, extension, extensions, folders, folder_of, outline.skipped)


_NATIVE: dict[np.dtype[Any], type[JoinedInt64] | type[JoinedUInt32]] = {
    np.dtype(np.int64): JoinedInt64,
    np.dtype(np.uint32): JoinedUInt32,
}


class JoinedArray:
    """Arrays of several archives, indexed as one, without the memory of a joined copy."""

    __slots__ = ("_native", "parts")

    def __init__(self, parts: Iterable[npt.NDArray[Any]]) -> None:
        """Join at least one array, all int64 or all uint32."""
        self.parts = tuple(parts)
        self._native: Any = _NATIVE[self.parts[0].dtype]()
        for part in self.parts:
            self._native.add(part)

    def take(self, part: Ints, index: Ints) -> npt.NDArray[Any]:
        """Return `parts[part[i]][index[i]]` for each `i`; 0 for index -1. Raises IndexError."""
        taken: npt.NDArray[Any] = self._native.take(part, index)
        return taken

    def __reduce__(self) -> tuple[Any, ...]:
        return JoinedArray, (self.parts,)
