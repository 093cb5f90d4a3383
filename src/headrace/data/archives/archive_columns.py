"""Columns of several archives in the WebDataset layout: one per extension, or members by name.

Lookups use the archives' own arrays, without a joined copy in memory.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace._core import SampleFinder
from headrace.data.archives.archive_members import ArchiveMembers, GroupedMembers, JoinedArray
from headrace.data.columns import ByteColumn, ColumnPart
from headrace.data.location import ABSENT, MISSING, ColumnFiles, ListedObjects, Location, ZipLocation
from headrace.data.sources.file_kind import IMAGE_EXTENSIONS
from headrace.data.storage.open_file import FilePath
from headrace.data.storage.strings import Ints, StringColumn, Strings

_MAX_EXTENSIONS = 256  # per archive (core/samples/grouping.hpp)
_NOT_IN_COLUMN = 255
_SAMPLES_AT_ONCE = 1 << 16
_USUAL = {"image": IMAGE_EXTENSIONS, "label": ("cls",), "text": ("txt",)}
"""Columns and their extensions, in order of preference."""


class MemberPlaces:
    """Locations of the members of several archives of one kind."""

    def __init__(self, archives: Sequence[ArchiveMembers]) -> None:
        """Take the members of each archive; at least one archive."""
        self.joined = {name: JoinedArray(getattr(one, name) for one in archives) for name in archives[0].located}
        self._proof = archives[0].proof

    def locate(self, archive: Ints, member: Ints) -> Location:
        """Return the location of members by archive number and index in the archive; -1: `ABSENT`."""
        at = {name: joined.take(archive, member) for name, joined in self.joined.items()}
        at["size"][member < 0] = ABSENT
        zipped = None
        if "packed" in at:
            zipped = ZipLocation(at["packed"], at["end"] - at["offset"], at["method"], at["crc"], at["flags"])
        return Location(archive, at["offset"], at["size"], at["check"], zipped)

    def parts(self, archive: Ints, member: Ints) -> Iterator[ColumnPart]:
        """Yield the arrays that identify the members' data, as `ByteColumn.parts` does.

        Packing a zip again at another compression level does not change the dataset.
        """
        size = self.joined["size"].take(archive, member)
        size[member < 0] = ABSENT
        yield size, "<i8"
        yield self.joined[self._proof].take(archive, member), "<u4"


@dataclass(frozen=True, eq=False)
class ArchiveSamples:
    """Samples of several archives as one sequence. Picklable; mapped arrays stay mapped."""

    names: tuple[StringColumn, ...]
    """Member names of each archive."""
    samples: tuple[GroupedMembers, ...]
    kept: npt.NDArray[np.int32] | None = None
    """Numbers of the selected samples, ascending; None: all."""

    @cached_property
    def total(self) -> int:
        """Number of samples in all archives, selected or not."""
        return sum(map(len, self.samples))

    def __len__(self) -> int:
        return self.total if self.kept is None else len(self.kept)

    def keep(self, numbers: Ints) -> ArchiveSamples:
        """Return only the samples with these numbers."""
        if len(numbers) == self.total:
            return self
        return ArchiveSamples(self.names, self.samples, numbers.astype(np.int32))

    @property
    def extensions(self) -> list[str]:
        """Extensions in any of the archives, sorted."""
        return sorted({name for samples in self.samples for name in samples.extensions})

    def ranks(self, extensions: Sequence[str]) -> npt.NDArray[np.uint8]:
        """Return ranks for `find` to choose each sample's member with the first available of `extensions`."""
        ranks = np.full((len(self.samples), _MAX_EXTENSIONS), _NOT_IN_COLUMN, np.uint8)
        for archive, samples in enumerate(self.samples):
            for number, name in enumerate(samples.extensions):
                if name in extensions:
                    ranks[archive, number] = extensions.index(name)
        return ranks.reshape(-1)

    def find(self, ids: Ints, ranks: npt.NDArray[np.uint8]) -> tuple[Ints, Ints]:
        """Return each sample's archive, and the index there of the column's member, or -1."""
        return self._finder.find(self._numbers(ids), ranks)

    def keys(self, ids: Ints) -> StringColumn:
        return StringColumn(*self._finder.keys(self._numbers(ids)))

    def _numbers(self, ids: Ints) -> Ints:
        return np.ascontiguousarray(ids if self.kept is None else self.kept[ids], np.int64)

    @cached_property
    def _finder(self) -> SampleFinder:
        finder = SampleFinder()
        for names, samples in zip(self.names, self.samples, strict=True):
            finder.add(names.blob, names.offsets, samples.first, samples.member, samples.extension, samples.last_dot)
        return finder

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_finder"}


@dataclass(frozen=True, eq=False, repr=False)
class ArchiveKeys(Strings):
    """Sample keys, stored only as prefixes of member names."""

    samples: ArchiveSamples

    def __len__(self) -> int:
        return len(self.samples)

    def take(self, indices: Ints) -> StringColumn:
        return self.samples.keys(indices)


@dataclass(frozen=True, eq=False, repr=False)
class ArchiveColumn(ByteColumn):
    """Column of one member per sample, looked up in the archives' indices on access."""

    files: ColumnFiles
    samples: ArchiveSamples
    ranks: npt.NDArray[np.uint8]
    """Output of `ArchiveSamples.ranks` for the column's extensions."""
    places: MemberPlaces

    def locate(self, ids: Ints) -> Location:
        return self.places.locate(*self.samples.find(ids, self.ranks))

    @property
    def extensions(self) -> list[str]:
        """Extensions of the column's members, in order of preference."""
        found: dict[str, int] = {}
        for samples, ranks in zip(self.samples.samples, self.ranks.reshape(-1, _MAX_EXTENSIONS).tolist(), strict=True):
            found |= zip(samples.extensions, ranks, strict=False)
        return sorted((name for name, rank in found.items() if rank != _NOT_IN_COLUMN), key=found.__getitem__)

    def present(self, ids: Ints) -> npt.NDArray[np.bool_]:
        """Return a mask of the samples that have the member."""
        here: npt.NDArray[np.bool_] = self.samples.find(ids, self.ranks)[1] >= 0
        return here

    def parts(self) -> Iterator[ColumnPart]:
        nobody = np.empty(0, np.int64)
        for number, (like, dtype) in enumerate(self.places.parts(nobody, nobody)):
            yield None if like is None else self._part(number, like.dtype), dtype

    def _part(self, number: int, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
        """Return one part for all samples, block by block; recomputing each part saves memory."""
        whole = np.empty(len(self.samples), dtype)
        for start in range(0, len(whole), _SAMPLES_AT_ONCE):
            ids = np.arange(start, min(start + _SAMPLES_AT_ONCE, len(whole)))
            part, _ = next(islice(self.places.parts(*self.samples.find(ids, self.ranks)), number, None))
            whole[ids] = part
        return whole


@dataclass(frozen=True, eq=False, repr=False)
class NamedMemberColumn(ByteColumn):
    """Column of one member per sample, found by name on access in the first archive that has it."""

    files: ColumnFiles
    paths: Strings
    """Path of each sample's member; empty: no member."""
    members: Sequence[ArchiveMembers]
    """Members of each archive."""
    places: MemberPlaces

    def locate(self, ids: Ints) -> Location:
        paths = self.paths.take(ids)
        archive, member = self._find(paths)
        at = self.places.locate(archive, member)
        assert at.length is not None
        at.length[member < 0] = np.where(paths.lengths() > 0, MISSING, ABSENT)[member < 0]
        return at

    def parts(self) -> Iterator[ColumnPart]:
        return self.places.parts(*self._find(StringColumn.join(self.paths.pieces())))

    def _find(self, paths: StringColumn) -> tuple[Ints, Ints]:
        archive, member = np.zeros(len(paths), np.int64), np.full(len(paths), -1)
        for number, members in enumerate(self.members):
            left = np.flatnonzero(member < 0)
            found = members.find_files(paths, left)
            archive[left[found >= 0]] = number
            member[left] = found
        return archive, member


def archive_files(given: Sequence[FilePath]) -> ColumnFiles:
    """Return archives, given as absolute paths or objects, as files in their common folder or prefix."""
    stored = [path for path in given if not isinstance(path, str)]
    if stored:
        texts = [str(path) for path in stored]
        # Not `commonpath`, which would collapse the // of addresses.
        root = os.path.commonprefix([path.folder + "/" for path in stored]).rpartition("/")[0]  # noqa: RUF071
        names = StringColumn.from_list(text[len(root) + 1 :] if root else text for text in texts)
        return ColumnFiles(root, names, archives=True, objects=ListedObjects(stored))
    paths = [path for path in given if isinstance(path, str)]
    root = os.path.commonpath([os.path.dirname(path) for path in paths])
    return ColumnFiles(root, StringColumn.from_list(os.path.relpath(path, root) for path in paths), archives=True)


def archive_columns(samples: ArchiveSamples, files: ColumnFiles, places: MemberPlaces) -> dict[str, ArchiveColumn]:
    """Return a column for each usual name that has members, then one per extension, sorted."""
    extensions = samples.extensions
    taken = {name: [each for each in usual if each in extensions] for name, usual in _USUAL.items()}
    taken = {name: found for name, found in taken.items() if found} | {name: [name] for name in extensions}
    names = [name for name in _USUAL if name in taken]
    names += sorted(taken.keys() - set(names))
    return {name: ArchiveColumn(files, samples, samples.ranks(taken[name]), places) for name in names}
