"""Archives in the WebDataset layout as one table: their indices, one after another."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from headrace.data.archive_columns import ArchiveColumn, MemberData, archive_columns, archive_files
from headrace.data.archives.archive_columns import ArchiveKeys, ArchiveSamples
from headrace.data.archives.archive_members import Samples
from headrace.data.class_names import Classes, names_text, renumbering
from headrace.data.columns import Column, ValueColumn
from headrace.data.strings import StringColumn
from headrace.data.table import Table
from headrace.errors import DatasetError, EmptyDatasetError

_INDEXING_THREADS = 8  # a scan waits for the disk, not for the processor
_NAMES_IN_MESSAGE = 5


class ArchiveIndex(Protocol):
    """What is known of one archive."""

    @property
    def samples(self) -> Samples: ...

    @property
    def names(self) -> StringColumn:
        """Of all its members."""
        ...

    @property
    def digest(self) -> str | None:
        """`digest_of` its samples alone, where that is known."""
        ...


I = TypeVar("I", bound=ArchiveIndex)  # noqa: E741  # an index


@dataclass(frozen=True)
class ArchiveKind(Generic[I]):
    """What tars and zips differ in."""

    word: str
    """What messages call one: "tar"."""
    listed_by: str
    """The command that shows what is in one: "tar -tvf"."""
    open_index: Callable[[str, str | None], I]
    """From an absolute path, and the folder for indices, where one was given."""
    data_of: Callable[[Sequence[I]], MemberData]

    def source(self, paths: Sequence[str]) -> str:
        first, last = os.path.basename(paths[0]), os.path.basename(paths[-1])
        return f"{self.word} {first}" if len(paths) == 1 else f"{len(paths):,} {self.word}s {first} … {last}"


def open_archives(kind: ArchiveKind[I], paths: Sequence[str], *, classes: Classes | None, cache: str | None) -> Table:
    """The samples of archives (absolute paths), in the order given and as they lie in each.

    `classes`: keep only images below a first-level folder, and take its name as the class; an extension `label` or
    `cls` then gives way to it. Of a list of names, only images below those folders, numbered in that order.
    """
    indices = _open_indices(kind, paths, cache)
    skipped = sum((Counter(dict(index.samples.skipped)) for index in indices), Counter[str]())
    samples = ArchiveSamples(tuple(index.names for index in indices), tuple(index.samples for index in indices))
    if not len(samples):
        raise EmptyDatasetError(_nothing_there(kind, paths, skipped))
    files, data = archive_files(paths), kind.data_of(indices)
    columns: Mapping[str, Column] = archive_columns(samples, files, data)
    source = kind.source(paths)
    if classes:
        wanted = None if isinstance(classes, bool) else classes
        kept, label = _classes(source, samples, columns.get("image"), wanted, skipped)
        samples = samples.keep(kept)
        columns = _with_label(archive_columns(samples, files, data), label)
    digest = indices[0].digest if len(indices) == 1 and not classes else None
    return Table(source, ArchiveKeys(samples), columns, dict(sorted((+skipped).items())), known_digest=digest)


def _open_indices(kind: ArchiveKind[I], paths: Sequence[str], cache: str | None) -> list[I]:
    if len(paths) == 1:
        return [kind.open_index(paths[0], cache)]
    with ThreadPoolExecutor(_INDEXING_THREADS, thread_name_prefix="headrace-index") as pool:
        try:
            return list(pool.map(lambda path: kind.open_index(path, cache), paths))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def _classes(
    source: str,
    samples: ArchiveSamples,
    image: Column | None,
    wanted: Sequence[str] | None,
    skipped: Counter[str],
) -> tuple[npt.NDArray[np.int64], ValueColumn]:
    """The samples that have a folder and an image, and their classes: their folders' indices by sorted name, or in
    `wanted`, of which no others are kept."""
    names = sorted({name for part in samples.samples for name in part.folders})
    if not isinstance(image, ArchiveColumn) or not names:
        keys = ArchiveKeys(samples)
        some = ", ".join(repr(keys[i]) for i in range(min(len(keys), _NAMES_IN_MESSAGE)))
        raise DatasetError(
            f"{source}: expected images in class folders (classes=True), got samples such as {some}. Pass classes=False"
        )
    folder = _folders(samples, names)
    has_image = image.present(np.arange(len(samples)))
    skipped["samples outside class folders"] = int(np.count_nonzero(folder < 0))
    skipped["samples without an image"] = int(np.count_nonzero((folder >= 0) & ~has_image))
    kept = np.flatnonzero((folder >= 0) & has_image)
    if not len(kept):
        raise EmptyDatasetError(
            f"{source}: expected images in class folders (classes=True), got none in any folder. Pass classes=False"
        )
    if wanted is not None:
        number_of = renumbering(names, wanted, where=source)
        others = number_of[folder[kept]] < 0
        skipped["samples of other classes"] = int(np.count_nonzero(others))
        kept = kept[~others]
        if not len(kept):
            raise EmptyDatasetError(f"{source}: expected images of the classes {names_text(wanted)}, got none")
        return kept, ValueColumn(number_of[folder[kept]], tuple(wanted))
    used, labels = np.unique(folder[kept], return_inverse=True)
    return kept, ValueColumn(labels.astype(np.int64), tuple(names[rank] for rank in used))


def _folders(samples: ArchiveSamples, names: Sequence[str]) -> npt.NDArray[np.int64]:
    """For each sample the position of its folder in `names`, or -1."""
    ranks = {name: rank for rank, name in enumerate(names)}
    # The last entry serves folder_of's -1: no folder.
    rank_of = [np.array([*(ranks[name] for name in part.folders), -1]) for part in samples.samples]
    return np.concatenate([ranks[part.folder_of] for ranks, part in zip(rank_of, samples.samples, strict=True)])


def _with_label(columns: Mapping[str, Column], label: ValueColumn) -> dict[str, Column]:
    """The class takes the place of a column `label`, after the image."""
    return {"image": columns["image"], "label": label} | {
        name: column for name, column in columns.items() if name != "label"
    }


def _nothing_there(kind: ArchiveKind[I], paths: Sequence[str], skipped: Mapping[str, int]) -> str:
    got = ", ".join(f"{count:,} {what}" for what, count in skipped.items()) or "nothing"
    where = paths[0] if len(paths) == 1 else kind.source(paths)
    return f"{where}: expected regular files with an extension, got {got}. Look at it with `{kind.listed_by}`"
