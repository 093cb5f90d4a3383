"""The columns of tars in the WebDataset layout: one an extension, and the usual ones under their usual names."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .archive_samples import ArchiveSamples
from .columns import ABSENT, ByteColumn, Location, Part
from .files import Files
from .formats import IMAGE_EXTENSIONS
from .index import TarIndex
from .joined import JoinedArray
from .strings import StringColumn

Ints = npt.NDArray[np.int64]

_SAMPLES_AT_ONCE = 1 << 16
_USUAL = ("image", "label", "text")


@dataclass(frozen=True, eq=False)
class TarMemberData:
    """Where the data of each member of each tar lies."""

    offset: JoinedArray[np.int64]
    size: JoinedArray[np.int64]
    check: JoinedArray[np.uint32]


@dataclass(frozen=True, eq=False)
class TarColumn(ByteColumn):
    """A member a sample, looked up in the indices of the tars when it is asked for."""

    files: Files
    samples: ArchiveSamples
    ranks: npt.NDArray[np.uint8]
    """Which of a sample's members: see `ArchiveSamples.ranks`."""
    data: TarMemberData

    def locate(self, ids: Ints) -> Location:
        tar, member = self.samples.find(ids, self.ranks)
        length = self.data.size.take(tar, member)
        length[member < 0] = ABSENT
        return Location(tar, self.data.offset.take(tar, member), length, self.data.check.take(tar, member))

    def present(self, ids: Ints) -> npt.NDArray[np.bool_]:
        """Which of the samples have such a member."""
        here: npt.NDArray[np.bool_] = self.samples.find(ids, self.ranks)[1] >= 0
        return here

    def parts(self) -> Iterator[Part]:
        length = np.empty(len(self.samples), np.int64)
        check = np.empty(len(self.samples), np.uint32)
        for start in range(0, len(length), _SAMPLES_AT_ONCE):
            ids = np.arange(start, min(start + _SAMPLES_AT_ONCE, len(length)))
            tar, member = self.samples.find(ids, self.ranks)
            length[ids] = np.where(member < 0, ABSENT, self.data.size.take(tar, member))
            check[ids] = self.data.check.take(tar, member)
        yield length, "<i8"
        yield check, "<u4"


def samples_of(indices: Sequence[TarIndex]) -> ArchiveSamples:
    return ArchiveSamples(tuple(index.names for index in indices), tuple(index.samples for index in indices))


def tar_files(paths: Sequence[str]) -> Files:
    """The tars as files of their common folder."""
    root = os.path.commonpath([os.path.dirname(path) for path in paths])
    return Files(root, StringColumn.from_list(os.path.relpath(path, root) for path in paths), archives=True)


def tar_columns(indices: Sequence[TarIndex], files: Files, samples: ArchiveSamples) -> dict[str, TarColumn]:
    """The usual columns first, then extensions by name. `samples` are those of `indices`, or some of them."""
    data = TarMemberData(
        JoinedArray(index.offset for index in indices),
        JoinedArray(index.size for index in indices),
        JoinedArray(index.check for index in indices),
    )
    extensions = samples.extensions
    taken = _aliases(extensions) | {name: [name] for name in extensions}
    usual = [name for name in _USUAL if name in taken]
    names = [*usual, *sorted(taken.keys() - set(usual))]
    return {name: TarColumn(files, samples, samples.ranks(taken[name]), data) for name in names}


def _aliases(extensions: Sequence[str]) -> dict[str, list[str]]:
    """The extensions that `image`, `label` and `text` stand for, best first; one of that very name goes before."""
    candidates = {"image": IMAGE_EXTENSIONS, "label": ("cls",), "text": ("txt",)}
    found = {alias: [name for name in names if name in extensions] for alias, names in candidates.items()}
    return {alias: names for alias, names in found.items() if names}
