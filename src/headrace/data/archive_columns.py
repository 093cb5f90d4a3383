"""The columns of archives in the WebDataset layout: one an extension, and the usual ones under their usual names."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.data.archives.archive_columns import ArchiveSamples
from headrace.data.columns import ByteColumn, Location, Part
from headrace.data.files import Files
from headrace.data.formats import IMAGE_EXTENSIONS
from headrace.data.strings import StringColumn

Ints = npt.NDArray[np.int64]

_SAMPLES_AT_ONCE = 1 << 16
_USUAL = ("image", "label", "text")


class MemberData(ABC):
    """Where the data of each member of several archives of one kind lies."""

    @abstractmethod
    def locate(self, archive: Ints, member: Ints) -> Location:
        """By number of the archive, and position in it; `ABSENT` bytes where that is -1."""

    @abstractmethod
    def parts(self, archive: Ints, member: Ints) -> Iterator[Part]:
        """What tells the members' data from another's, as `ByteColumn.parts`."""


@dataclass(frozen=True, eq=False)
class ArchiveColumn(ByteColumn):
    """A member a sample, looked up in the indices of the archives when it is asked for."""

    files: Files
    samples: ArchiveSamples
    ranks: npt.NDArray[np.uint8]
    """Which of a sample's members: see `ArchiveSamples.ranks`."""
    data: MemberData

    def locate(self, ids: Ints) -> Location:
        return self.data.locate(*self.samples.find(ids, self.ranks))

    def present(self, ids: Ints) -> npt.NDArray[np.bool_]:
        """Which of the samples have such a member."""
        here: npt.NDArray[np.bool_] = self.samples.find(ids, self.ranks)[1] >= 0
        return here

    def parts(self) -> Iterator[Part]:
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


def archive_files(paths: Sequence[str]) -> Files:
    """The archives (absolute paths) as files of their common folder."""
    root = os.path.commonpath([os.path.dirname(path) for path in paths])
    return Files(root, StringColumn.from_list(os.path.relpath(path, root) for path in paths), archives=True)


def archive_columns(samples: ArchiveSamples, files: Files, data: MemberData) -> dict[str, ArchiveColumn]:
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
