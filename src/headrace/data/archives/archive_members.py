"""Which members of an archive make up each sample: the WebDataset layout, in 5 bytes a member and 8 a sample."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace._core import group_members
from headrace.data import checked
from headrace.data.storage.safetensors import Arrays, InvalidFileError
from headrace.data.strings import StringColumn


@dataclass(frozen=True, eq=False)
class Samples:
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
    def group(cls, names: StringColumn, types: npt.NDArray[np.uint8], skipped: Mapping[str, int]) -> Samples:
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
    def from_arrays(cls, arrays: Arrays, outline: Mapping[str, Any], members: int) -> Samples:
        """The inverse of `to_arrays` and `outline`, from untrusted input: raises InvalidFileError unless all fits an
        archive of that many members."""
        extensions, skipped = _read_outline(outline)
        member = checked.indices(arrays, "samples.member", members, dtype=np.int32)
        first = checked.array(arrays, "samples.first", np.uint32)
        if not checked.divides(first, len(member), empty=False):
            raise InvalidFileError("samples.first does not divide samples.member")
        extension = checked.array(arrays, "samples.extension", np.uint8, len(member))
        if len(extension) and extension.max() >= len(extensions):
            raise InvalidFileError("samples.extension is out of range")
        folders = checked.strings(arrays, "folders")
        folder_of = checked.indices(
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
