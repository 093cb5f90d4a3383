"""Index of an archive, cached in its sidecar: members by name, and their samples."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

from headrace.data.archives.archive_columns import (
    ArchiveKeys,
    ArchiveSamples,
    MemberPlaces,
    archive_columns,
    archive_files,
)
from headrace.data.archives.archive_members import ArchiveMembers, GroupedMembers, SamplesOutline
from headrace.data.archives.merged_index import MergedIndex
from headrace.data.storage.open_file import FilePath
from headrace.data.storage.safetensors import Arrays, InvalidFileError, read_outline
from headrace.data.storage.sidecar import FileIdentity, Sidecar, identify_archive, open_sidecar
from headrace.data.table import table_digest
from headrace.errors import DatasetError

M = TypeVar("M", bound=ArchiveMembers)
T = TypeVar("T")


@dataclass(frozen=True)
class SampleIndex(Generic[M]):
    """Samples of one archive, and its members."""

    samples: GroupedMembers
    digest: str | None
    """`table_digest` of these samples alone; None if it is not in the index."""
    members: M


@dataclass(frozen=True)
class ArchiveKind(Generic[M]):
    """Kind of archive, tar or zip. One index serves readers of samples and readers of members by name."""

    word: str
    """Name in messages: "tar"."""
    listed_by: str
    """Command that lists an archive: "tar -tvf"."""
    format: str
    """Name and version of the index format. Raise the version with its meaning: old indices are rebuilt."""
    build: Callable[[FilePath], tuple[Arrays, str]]
    """Function that scans the archive at a path. It works in memory: a member takes less than a hundred bytes."""
    members: type[M]

    def open_members(self, path: FilePath, identity: FileIdentity, *, cache: str | None) -> M:
        """Return all members of the archive at `path`, which has this `identity`. Raises ReadError, DatasetError."""
        return self._open(path, identity, cache, lambda members, _, __: members)

    def open_index(
        self, path: FilePath, *, cache: str | None, merged: MergedIndex | None = None, last_dot: bool = False
    ) -> SampleIndex[M]:
        """Return the samples of the archive at `path`, from its index in `merged` if given.

        `last_dot`: regroup its members by the last dot of their names.

        Raises ReadError, or DatasetError if the archive is damaged, of another kind, or its members form no samples.
        """

        def load(members: M, arrays: Arrays, outline: str) -> SampleIndex[M]:
            known = read_outline(outline, SamplesOutline)
            if last_dot:
                return SampleIndex(_regrouped(members, arrays, known), None, members)
            if known.ungrouped is not None:
                raise DatasetError(
                    f"{path}: {known.ungrouped}. An extension is what follows the first dot of a file name: rename "
                    f'members so that their stems hold no dot, or pass stem="last-dot"'
                )
            if not known.digest:
                raise InvalidFileError("the outline has no digest")
            return SampleIndex(GroupedMembers.from_arrays(arrays, known, len(members)), known.digest, members)

        return self._open(path, identify_archive(path), cache, load, merged)

    def _open(
        self,
        path: FilePath,
        identity: FileIdentity,
        cache: str | None,
        take: Callable[[M, Arrays, str], T],
        merged: MergedIndex | None = None,
    ) -> T:
        def load(arrays: Arrays, outline: str, archive_bytes: int) -> T:
            return take(self.members.from_arrays(arrays, archive_bytes), arrays, outline)

        sidecar = Sidecar(self.format, lambda path, _: self.build(path), load)
        if merged is not None:
            return merged.load(sidecar, path, identity)
        return open_sidecar(sidecar, path, identity, cache=cache)


def _regrouped(members: ArchiveMembers, arrays: Arrays, known: SamplesOutline) -> GroupedMembers:
    """Group the members of samples by their last dot; all members if they form no samples by the first one."""
    names, types = members.names.strings, np.full(len(members), ord("0"), np.uint8)
    skipped: Mapping[str, int] = {}
    if known.ungrouped is None:
        found = GroupedMembers.from_arrays(arrays, known, len(members))
        types[:], skipped = 0, found.skipped
        types[found.member] = ord("0")
    return GroupedMembers.group(names, types, skipped, last_dot=True)


def index_arrays(
    path: FilePath, members: ArchiveMembers, types: npt.NDArray[np.uint8], skipped: Mapping[str, int]
) -> tuple[Arrays, str]:
    """Return the arrays and outline of the index of the archive at `path`; `types` are its members' tar type codes."""
    names = members.names.strings
    try:
        samples = GroupedMembers.group(names, types, skipped)
    except ValueError as error:
        return members.to_arrays(), json.dumps({"ungrouped": str(error)})
    alone = ArchiveSamples((names,), (samples,))
    digest = table_digest(ArchiveKeys(alone), archive_columns(alone, archive_files([path]), MemberPlaces([members])))
    outline = {"extensions": samples.extensions, "skipped": dict(samples.skipped), "digest": digest}
    return members.to_arrays() | samples.to_arrays(), json.dumps(outline)
