"""Columns of several archives in the WebDataset layout: one an extension, or members by name."""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from headrace._core import SampleFinder
from headrace.data.archives.archive_members import GroupedMembers
from headrace.data.columns import ABSENT, MISSING, ByteColumn, ColumnFiles, ColumnPart, Location
from headrace.data.sources.file_kind import IMAGE_EXTENSIONS
from headrace.data.storage.safetensors import Arrays, InvalidFileError
from headrace.data.storage.strings import StringColumn, Strings
from headrace.data.table import table_digest
from headrace.errors import DatasetError

# -- from data/archive_samples.py: The samples of several archives as one row, found in the archives' own arrays:
# nothing is joined in memory.


Ints = npt.NDArray[np.int64]

_MAX_EXTENSIONS = 256  # of an archive (core/samples/grouping.hpp)
_NOT_IN_COLUMN = 255
_KEYS_AT_ONCE = 1 << 16


@dataclass(frozen=True, eq=False)
class ArchiveSamples:
    """Sample `i` of the whole; picklable, and mapped arrays stay mapped."""

    names: tuple[StringColumn, ...]
    """Names of the members of each archive."""
    samples: tuple[GroupedMembers, ...]
    kept: npt.NDArray[np.int32] | None = None
    """The numbers of those samples that count, rising; None: all do."""

    @cached_property
    def total(self) -> int:
        """Samples of all archives, kept or not."""
        return sum(map(len, self.samples))

    def __len__(self) -> int:
        return self.total if self.kept is None else len(self.kept)

    def keep(self, numbers: Ints) -> ArchiveSamples:
        """Those samples alone, of all."""
        return (
            self if len(numbers) == self.total else ArchiveSamples(self.names, self.samples, numbers.astype(np.int32))
        )

    @property
    def extensions(self) -> list[str]:
        """Those of any archive, sorted."""
        return sorted({name for samples in self.samples for name in samples.extensions})

    def ranks(self, extensions: Sequence[str]) -> npt.NDArray[np.uint8]:
        """What `find` needs to know of a column that takes, of a sample's members, the one whose extension comes first
        in `extensions`."""
        ranks = np.full((len(self.samples), _MAX_EXTENSIONS), _NOT_IN_COLUMN, np.uint8)
        for archive, samples in enumerate(self.samples):
            for number, name in enumerate(samples.extensions):
                if name in extensions:
                    ranks[archive, number] = extensions.index(name)
        return ranks.reshape(-1)

    def find(self, ids: Ints, ranks: npt.NDArray[np.uint8]) -> tuple[Ints, Ints]:
        """For each sample its archive, and the member that a column takes: its position there, or -1."""
        return self._finder.find(self._numbers(ids), ranks)

    def keys(self, ids: Ints) -> StringColumn:
        return StringColumn(*self._finder.keys(self._numbers(ids)))

    def _numbers(self, ids: Ints) -> Ints:
        return np.ascontiguousarray(ids if self.kept is None else self.kept[ids], np.int64)

    @cached_property
    def _finder(self) -> SampleFinder:
        finder = SampleFinder()
        for names, samples in zip(self.names, self.samples, strict=True):
            finder.add(names.blob, names.offsets, samples.first, samples.member, samples.extension)
        return finder

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_finder"}


@dataclass(frozen=True, eq=False, repr=False)
class ArchiveKeys(Strings):
    """The samples' keys, which are beginnings of their members' names and stored only there."""

    samples: ArchiveSamples

    def __len__(self) -> int:
        return len(self.samples)

    def take(self, indices: Ints) -> StringColumn:
        return self.samples.keys(indices)

    def pieces(self) -> Iterator[StringColumn]:
        for start in range(0, len(self), _KEYS_AT_ONCE):
            yield self.take(np.arange(start, min(start + _KEYS_AT_ONCE, len(self))))


# -- from data/archive_columns.py: The columns of archives in the WebDataset layout: one an extension, and the usual
# ones under their usual names.


ColumnInts = npt.NDArray[np.int64]

_SAMPLES_AT_ONCE = 1 << 16
_USUAL = ("image", "label", "text")


class MemberData(ABC):
    """Where the data of each member of several archives of one kind lies."""

    @abstractmethod
    def locate(self, archive: ColumnInts, member: ColumnInts) -> Location:
        """By number of the archive, and position in it; `ABSENT` bytes where that is -1."""

    @abstractmethod
    def parts(self, archive: ColumnInts, member: ColumnInts) -> Iterator[ColumnPart]:
        """What tells the members' data from another's, as `ByteColumn.parts`."""


@dataclass(frozen=True, eq=False)
class ArchiveColumn(ByteColumn):
    """A member a sample, looked up in the indices of the archives when it is asked for."""

    files: ColumnFiles
    samples: ArchiveSamples
    ranks: npt.NDArray[np.uint8]
    """Which of a sample's members: see `ArchiveSamples.ranks`."""
    data: MemberData

    def locate(self, ids: ColumnInts) -> Location:
        return self.data.locate(*self.samples.find(ids, self.ranks))

    def present(self, ids: ColumnInts) -> npt.NDArray[np.bool_]:
        """Which of the samples have such a member."""
        here: npt.NDArray[np.bool_] = self.samples.find(ids, self.ranks)[1] >= 0
        return here

    def parts(self) -> Iterator[ColumnPart]:
        nobody = np.empty(0, np.int64)
        for number, (like, dtype) in enumerate(self.data.parts(nobody, nobody)):
            yield None if like is None else self._part(number, like.dtype), dtype

    def _part(self, number: int, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
        """One of the data's parts, of all samples: looked up piece by piece, each part anew, to take little memory."""
        whole = np.empty(len(self.samples), dtype)
        for start in range(0, len(whole), _SAMPLES_AT_ONCE):
            ids = np.arange(start, min(start + _SAMPLES_AT_ONCE, len(whole)))
            part, _ = next(islice(self.data.parts(*self.samples.find(ids, self.ranks)), number, None))
            whole[ids] = part
        return whole


def archive_files(paths: Sequence[str]) -> ColumnFiles:
    """The archives (absolute paths) as files of their common folder."""
    root = os.path.commonpath([os.path.dirname(path) for path in paths])
    return ColumnFiles(root, StringColumn.from_list(os.path.relpath(path, root) for path in paths), archives=True)


def archive_columns(samples: ArchiveSamples, files: ColumnFiles, data: MemberData) -> dict[str, ArchiveColumn]:
    """The usual columns first, then extensions by name. `files` and `data` are of the archives of `samples`."""
    extensions = samples.extensions
    taken = _aliases(extensions) | {name: [name] for name in extensions}
    usual = [name for name in _USUAL if name in taken]
    names = [*usual, *sorted(taken.keys() - set(usual))]
    return {name: ArchiveColumn(files, samples, samples.ranks(taken[name]), data) for name in names}


def _aliases(extensions: Sequence[str]) -> dict[str, list[str]]:
    """The extensions that `image`, `label` and `text` stand for, best first; one of that very name goes before."""
    candidates = {"image": IMAGE_EXTENSIONS, "label": ("cls",), "text": ("txt",)}
    found = {alias: [name for name in names if name in extensions] for alias, names in candidates.items()}
    return {alias: names for alias, names in found.items() if names}


# -- from data/kept_samples.py: An archive's samples as its sidecar keeps them: arrays, and an outline in JSON, or why
# its members make none.


_UNGROUPED = "ungrouped"
"""In place of the samples' outline: why the members make none."""


def index_samples(
    path: str, names: StringColumn, types: npt.NDArray[np.uint8], skipped: Mapping[str, int], data: MemberData
) -> tuple[Arrays, str]:
    """The samples of the archive at `path`, whose members have tar's `types` and this `data`: arrays and outline."""
    try:
        samples = GroupedMembers.group(names, types, skipped)
    except ValueError as error:
        return {}, json.dumps({_UNGROUPED: str(error)})
    alone = ArchiveSamples((names,), (samples,))
    # Kept, so that a state can name its dataset without a look at every sample.
    digest = table_digest(ArchiveKeys(alone), archive_columns(alone, archive_files([path]), data))
    return samples.to_arrays(), json.dumps({**samples.outline(), "digest": digest})


def load_samples(path: str, arrays: Arrays, outline: str, *, members: int) -> tuple[GroupedMembers, str]:
    """What `keep_samples` made, and the digest of these samples alone, from untrusted input.

    Raises InvalidFileError unless all fits an archive of that many members, and DatasetError where its members make no
    samples.
    """
    known = _parse_outline(outline)
    if _UNGROUPED in known:
        raise DatasetError(
            f"{path}: {known[_UNGROUPED]}. An extension is what follows the first dot of a file name: rename members "
            f"so that their stems hold no dot"
        )
    digest = known.get("digest")
    if not isinstance(digest, str):
        raise InvalidFileError("the outline has no digest")
    return GroupedMembers.from_arrays(arrays, known, members), digest


def _parse_outline(outline: str) -> dict[str, Any]:
    try:
        known = json.loads(outline)
    except (ValueError, RecursionError) as error:
        raise InvalidFileError("the outline is not JSON") from error
    if not isinstance(known, dict):
        raise InvalidFileError("the outline is not a JSON object")
    return known


# -- from data/named_members.py: The members of archives that a column of paths names.


NamedInts = npt.NDArray[np.int64]


class MemberNames(Protocol):
    """What one archive holds."""

    @property
    def first_name(self) -> str | None:
        """Of any member; None: it is empty."""
        ...

    def find_files(self, paths: StringColumn, which: NamedInts) -> NamedInts:
        """The position of the file that each of the paths numbered `which` names; -1 where there is none. A leading
        "./" makes no difference."""
        ...


@dataclass(frozen=True, eq=False)
class NamedMemberColumn(ByteColumn):
    """A member a sample, found by name when it is asked for, in the first archive that has it."""

    files: ColumnFiles
    """The archives."""
    paths: Strings
    """Each sample's; an empty one means that it has none."""
    names: Sequence[MemberNames]
    """Of each archive."""
    data: MemberData

    def locate(self, ids: NamedInts) -> Location:
        paths = self.paths.take(ids)
        archive, member = self._find(paths)
        at = self.data.locate(archive, member)
        assert at.length is not None
        at.length[member < 0] = np.where(paths.lengths() > 0, MISSING, ABSENT)[member < 0]
        return at

    def parts(self) -> Iterator[ColumnPart]:
        return self.data.parts(*self._find(StringColumn.join(self.paths.pieces())))

    def _find(self, paths: StringColumn) -> tuple[NamedInts, NamedInts]:
        archive, member = np.zeros(len(paths), np.int64), np.full(len(paths), -1)
        for number, names in enumerate(self.names):
            left = np.flatnonzero(member < 0)
            found = names.find_files(paths, left)
            archive[left[found >= 0]] = number
            member[left] = found
        return archive, member
