"""Tars or zips as one table of samples, and columns chosen from it or from its JSON members."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from headrace._core import Limits
from headrace.data.archives.archive_columns import (
    ArchiveColumn,
    ArchiveKeys,
    ArchiveSamples,
    MemberData,
    archive_columns,
    archive_files,
)
from headrace.data.archives.archive_members import GroupedMembers
from headrace.data.archives.tar_index import TarData, TarIndex, open_tar_index
from headrace.data.archives.zip_index import ZipData, ZipIndex, open_zip_index
from headrace.data.class_names import Classes, names_text, renumbering
from headrace.data.columns import ABSENT, Column, ValueColumn
from headrace.data.dataset import Dataset
from headrace.data.native_reading import read_members
from headrace.data.sources.file_kind import refuse_compressed
from headrace.data.sources.memory_samples import columns_of, shown
from headrace.data.storage.strings import StringColumn
from headrace.data.table import SampleTable
from headrace.errors import DatasetError, EmptyDatasetError, UsageError
from headrace.system import default_threads

# -- from data/archive_table.py: Archives in the WebDataset layout as one table: their indices, one after another.


_INDEXING_THREADS = 8  # a scan waits for the disk, not for the processor
_NAMES_IN_MESSAGE = 5


class SampleIndex(Protocol):
    """What is known of one archive."""

    @property
    def samples(self) -> GroupedMembers: ...

    @property
    def names(self) -> StringColumn:
        """Of all its members."""
        ...

    @property
    def digest(self) -> str | None:
        """`digest_of` its samples alone, where that is known."""
        ...


I = TypeVar("I", bound=SampleIndex)  # noqa: E741  # an index


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


def open_archives(
    kind: ArchiveKind[I], paths: Sequence[str], *, classes: Classes | None, cache: str | None
) -> SampleTable:
    """The samples of archives (absolute paths), in the order given and as they lie in each.

    `classes`: keep only images below a first-level folder, and take its name as the class; an extension `label` or
    `cls` then gives way to it. Of a list of names, only images below those folders, numbered in that order.
    """
    indices = _open_indices(kind, paths, cache)
    skipped = sum((Counter(dict(index.samples.skipped)) for index in indices), Counter[str]())
    samples = ArchiveSamples(tuple(index.names for index in indices), tuple(index.samples for index in indices))
    if not len(samples):
        raise EmptyDatasetError(_no_samples_text(kind, paths, skipped))
    files, data = archive_files(paths), kind.data_of(indices)
    columns: Mapping[str, Column] = archive_columns(samples, files, data)
    source = kind.source(paths)
    if classes:
        wanted = None if isinstance(classes, bool) else classes
        kept, label = _classes(source, samples, columns.get("image"), wanted, skipped)
        samples = samples.keep(kept)
        columns = _with_label(archive_columns(samples, files, data), label)
    digest = indices[0].digest if len(indices) == 1 and not classes else None
    return SampleTable(source, ArchiveKeys(samples), columns, dict(sorted((+skipped).items())), known_digest=digest)


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


def _no_samples_text(kind: ArchiveKind[I], paths: Sequence[str], skipped: Mapping[str, int]) -> str:
    got = ", ".join(f"{count:,} {what}" for what, count in skipped.items()) or "nothing"
    where = paths[0] if len(paths) == 1 else kind.source(paths)
    return f"{where}: expected regular files with an extension, got {got}. Look at it with `{kind.listed_by}`"


# -- from data/json_members.py: Columns of archives, chosen by name: of an extension, or of a key in the JSON members,
# which are read once for it.


_JSON = "json"
_BLOCK = 1024
_KEYS_OF = 100
"""Samples whose keys a message shows."""


def choose_columns(table: SampleTable, names: Sequence[str]) -> SampleTable:
    """Return the table of archives with these columns alone.

    A name such as `json.caption` or `meta.json.size.width` is a key in the objects that the samples' `.json` (or
    `.meta.json`) members hold, further keys after dots. These members are read here, and what they hold becomes what it
    becomes in a list of dicts; a sample without the member or the key has no value.

    Raises UsageError for a column that there is none of, DatasetError for a member that is no JSON object, ReadError,
    and what reading a member of a zip raises.
    """
    wanted: dict[str, list[str]] = {}
    for name in names:
        if name not in table.columns:
            wanted.setdefault(_member_of(table, name), []).append(name)
    parsed: dict[str, Column] = {}
    for member, keys in wanted.items():
        parsed |= _json_values(table, member, {name: name[len(member) + 1 :].split(".") for name in keys})
    columns = {name: parsed[name] if name in parsed else table.columns[name] for name in names}
    return replace(table, columns=columns, known_digest=None)


def _member_of(table: SampleTable, name: str) -> str:
    """Return the column of JSON that `name` is a key of: the one of the longest name."""
    found = [column for column in table.columns if column.rpartition(".")[2] == _JSON and name.startswith(f"{column}.")]
    if not found:
        raise UsageError(
            f"columns: expected names of columns of {table.source} ({names_text(list(table.columns))}), or of keys in "
            f"JSON members, such as 'json.caption', got {name!r}"
        )
    return max(found, key=len)


def _json_values(table: SampleTable, member: str, paths: Mapping[str, Sequence[str]]) -> dict[str, Column]:
    dataset = Dataset(table)
    values: dict[str, list[Any]] = {name: [] for name in paths}
    keys: dict[str, None] = {}
    most = Limits().max_file_bytes
    for positions, found in read_members(dataset, member, block=_BLOCK, threads=default_threads(), most_bytes=most):
        lengths = dataset.locate(member, positions).length
        for place, data in enumerate(found):
            sample = int(positions[place])
            if data is None and lengths is not None and lengths[place] != ABSENT:
                data = dataset.read(member, sample)  # raises what is wrong with it
            record = {} if data is None else _parse_object(data, member, dataset, sample)
            if len(keys) < _KEYS_OF:
                keys |= dict.fromkeys(record)
            for name, path in paths.items():
                values[name].append(_value_at(record, path))
    for name, each in values.items():
        if all(value is None for value in each):
            raise UsageError(
                f"columns: expected keys in the {member} members of {table.source} ({names_text(list(keys))}), "
                f"got {name!r}"
            )
    return columns_of(values)[0]


def _parse_object(data: bytes, member: str, dataset: Dataset, sample: int) -> Mapping[str, Any]:
    try:
        record = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _not_an_object(member, dataset, sample, str(error)) from error
    if not isinstance(record, dict):
        raise _not_an_object(member, dataset, sample, shown(record))
    return record


def _not_an_object(member: str, dataset: Dataset, sample: int, got: str) -> DatasetError:
    shard, offset = dataset.where(member, sample)
    return DatasetError(
        f"{shard} at byte {offset}: expected a JSON object as {member} of sample {dataset.key(sample)!r}, got "
        f"otherwise: {got}. Correct it, or open without this column"
    )


def _value_at(record: Any, path: Sequence[str]) -> Any:
    """Return the value at a path of keys; None where there is none."""
    for key in path:
        record = record.get(key) if isinstance(record, dict) else None
    return record


# -- from data/tar.py: Tars in the WebDataset layout as one table.


def open_tars(paths: Sequence[str], *, classes: Classes | None, cache: str | None) -> SampleTable:
    """As `open_archives`. Raises ReadError, EmptyDatasetError, or DatasetError (compressed, damaged, not a tar)."""
    for path in paths:
        refuse_compressed(path)
    return open_archives(_TAR, paths, classes=classes, cache=cache)


def _tar_index(path: str, cache: str | None) -> TarIndex:
    return open_tar_index(path, cache=cache)


_TAR: ArchiveKind[TarIndex] = ArchiveKind(word="tar", listed_by="tar -tvf", open_index=_tar_index, data_of=TarData.of)


# -- from data/zip.py: Zips in the WebDataset layout as one table.


def open_zips(paths: Sequence[str], *, classes: Classes | None, cache: str | None) -> SampleTable:
    """As `open_archives`. Raises ReadError, EmptyDatasetError, or DatasetError (damaged, split, not a zip)."""
    return open_archives(_ZIP, paths, classes=classes, cache=cache)


def _zip_index(path: str, cache: str | None) -> ZipIndex:
    return open_zip_index(path, cache=cache)


_ZIP: ArchiveKind[ZipIndex] = ArchiveKind(word="zip", listed_by="unzip -l", open_index=_zip_index, data_of=ZipData.of)
