"""The samples of several archives as one row, found in the archives' own arrays: nothing is joined in memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace._core import SampleFinder
from headrace.data.archives.archive_members import Samples
from headrace.data.strings import StringColumn, Strings

Ints = npt.NDArray[np.int64]

_MAX_EXTENSIONS = 256  # of an archive (core/samples/grouping.hpp)
_NOT_IN_COLUMN = 255
_KEYS_AT_ONCE = 1 << 16


@dataclass(frozen=True, eq=False)
class ArchiveSamples:
    """Sample `i` of the whole; picklable, and mapped arrays stay mapped."""

    names: tuple[StringColumn, ...]
    """Names of the members of each archive."""
    samples: tuple[Samples, ...]
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
