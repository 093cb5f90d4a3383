"""Tars or zips as one table of samples, and columns selected from it or from its JSON members."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec
import numpy as np

from headrace._core import Limits
from headrace.data.archives.archive_columns import (
    ArchiveColumn,
    ArchiveKeys,
    ArchiveSamples,
    MemberPlaces,
    archive_columns,
    archive_files,
)
from headrace.data.archives.archive_index import ArchiveKind, SampleIndex
from headrace.data.archives.archive_members import GroupedMembers
from headrace.data.archives.archive_scans import open_each
from headrace.data.archives.merged_index import MergedIndex
from headrace.data.class_names import Classes, names_text, renumbering
from headrace.data.columns import Column, ValueColumn
from headrace.data.dataset import Dataset
from headrace.data.location import ABSENT
from headrace.data.native_reading import read_members
from headrace.data.sources.memory_samples import columns_of, shown
from headrace.data.storage.open_file import FilePath, file_name
from headrace.data.storage.strings import Ints
from headrace.data.table import SampleTable
from headrace.errors import DatasetError, EmptyDatasetError, UsageError, warn_caller
from headrace.system import default_threads

_KEYS_IN_MESSAGE = 5
_JSON = "json"
_JSON_BLOCK = 1024
_FEW = 2
_KEYS_OF = 100
"""Samples that contribute JSON keys to a message."""


def open_archives(
    kind: ArchiveKind[Any],
    paths: Sequence[FilePath],
    *,
    classes: Classes | None,
    cache: str | None,
    merged: MergedIndex | None = None,
    last_dot: bool = False,
    are_pack: bool = False,
) -> SampleTable:
    """Return the samples of archives (absolute paths) in the given order, and within each archive in its order.

    `merged`: their merged index; otherwise indices are next to the archives or in the cache folder. `last_dot`: names
    are split at their last dot. `are_pack`: they are shards of a pack, whose schema says what dots in names mean.

    `classes`: select only images in a first-level folder, which names the class; it replaces a column `label`. A list
    of names selects only images in these folders, and numbers classes in its order.

    Raises ReadError, EmptyDatasetError, or DatasetError (damaged, of another kind).
    """
    indices = _open_indices(kind, paths, cache, merged, last_dot)
    skipped = sum((Counter(dict(index.samples.skipped)) for index in indices), Counter[str]())
    samples = ArchiveSamples(
        tuple(index.members.names.strings for index in indices), tuple(index.samples for index in indices)
    )
    if not len(samples):
        got = ", ".join(f"{count:,} {what}" for what, count in skipped.items()) or "nothing"
        where = str(paths[0]) if len(paths) == 1 else _source(kind, paths)
        raise EmptyDatasetError(
            f"{where}: expected regular files with an extension, got {got}. Look at it with `{kind.listed_by}`"
        )
    if not are_pack:
        _warn_of_dots(_source(kind, paths), samples.samples)
    files, places = archive_files(paths), MemberPlaces([index.members for index in indices])
    columns: Mapping[str, Column] = archive_columns(samples, files, places)
    source = _source(kind, paths)
    if classes:
        wanted = None if isinstance(classes, bool) else classes
        kept, label = _classes(source, samples, columns.get("image"), wanted, skipped)
        samples = samples.keep(kept)
        others: dict[str, Column] = {**archive_columns(samples, files, places)}
        others["label"] = label
        columns = {name: others[name] for name in ("image", "label")} | others
    digest = indices[0].digest if len(indices) == 1 and not classes else None
    return SampleTable(source, ArchiveKeys(samples), columns, dict(sorted((+skipped).items())), known_digest=digest)


def _open_indices(
    kind: ArchiveKind[Any],
    paths: Sequence[FilePath],
    cache: str | None,
    merged: MergedIndex | None,
    last_dot: bool,
) -> list[SampleIndex[Any]]:
    opened = partial(kind.open_index, cache=cache, merged=merged, last_dot=last_dot)
    return [*map(opened, paths)] if merged is not None else open_each(paths, opened, cache=cache)


def _warn_of_dots(source: str, parts: Sequence[GroupedMembers]) -> None:
    """Warn if dots in names, as in `shot 2.0.jpg`, make columns of one or two samples each."""
    first = parts[0]
    occurrences = np.bincount(first.extension, minlength=len(first.extensions)).tolist()
    counts = dict(zip(first.extensions, occurrences, strict=True))
    rare = [
        name
        for name, count in counts.items()
        if "." in name
        and count <= _FEW
        and (count < len(first) or name[0].isdigit())  # 2.0.jpg, not left.jpg
        and not _is_numbered(name, counts)
    ]
    ends = Counter(name.rpartition(".")[2] for name in rare)
    if not first.last_dot and ends and ends.most_common(1)[0][1] >= _FEW:
        warn_caller(
            f"{source}: expected columns that many samples have, got {len(rare):,} of one or two samples each, such as "
            f"{rare[0]!r}: a sample's name ends at its first dot, as in WebDataset. If these dots belong to the names, "
            'pass stem="last-dot"'
        )


def _is_numbered(name: str, counts: Mapping[str, int]) -> bool:
    """Return True if a column continues a list of many samples: 3.jpg beside 0.jpg, 1.jpg and 2.jpg."""
    number, _, rest = name.partition(".")
    if not number.isdecimal() or len(number) > 3 or number == "0":
        return False
    zero, *others = (f"{place}.{rest}" for place in range(int(number) + 1))
    return counts.get(zero, counts.get(others[0], 0)) > _FEW and all(each in counts for each in others)


def _source(kind: ArchiveKind[Any], paths: Sequence[FilePath]) -> str:
    first, last = file_name(paths[0]), file_name(paths[-1])
    return f"{kind.word} {first}" if len(paths) == 1 else f"{len(paths):,} {kind.word}s {first} … {last}"


def _classes(
    source: str, samples: ArchiveSamples, image: Column | None, wanted: Sequence[str] | None, skipped: Counter[str]
) -> tuple[Ints, ValueColumn]:
    """Return the samples with a folder and an image, and their classes.

    A class is the folder's index by sorted name, or its index in `wanted`, which excludes all other folders.
    """
    names = sorted({name for part in samples.samples for name in part.folders})
    if not isinstance(image, ArchiveColumn) or not names:
        some = ", ".join(map(repr, ArchiveKeys(samples)[:_KEYS_IN_MESSAGE]))
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
    if wanted is None:
        used, labels = np.unique(folder[kept], return_inverse=True)
        return kept, ValueColumn(labels.astype(np.int64), tuple(names[rank] for rank in used))
    labels = renumbering(names, wanted, where=source)[folder[kept]]
    skipped["samples of other classes"] = int(np.count_nonzero(labels < 0))
    kept, labels = kept[labels >= 0], labels[labels >= 0]
    if not len(kept):
        raise EmptyDatasetError(f"{source}: expected images of the classes {names_text(wanted)}, got none")
    return kept, ValueColumn(labels, tuple(wanted))


def _folders(samples: ArchiveSamples, names: Sequence[str]) -> Ints:
    """Return for each sample the index of its folder in `names`, or -1."""
    ranks = {name: rank for rank, name in enumerate(names)}
    # The last entry maps folder_of's -1: no folder.
    rank_of = [np.array([*(ranks[name] for name in part.folders), -1]) for part in samples.samples]
    return np.concatenate([ranks[part.folder_of] for ranks, part in zip(rank_of, samples.samples, strict=True)])


def choose_columns(table: SampleTable, names: Sequence[str]) -> SampleTable:
    """Return the table of archives with these columns only.

    A name such as `json.caption` or `meta.json.size.width` is a key in the samples' `.json` (or `.meta.json`) members,
    with nested keys after dots. Those members are read here, and their values become columns as in a list of dicts. A
    sample without the member or the key has no value.

    Raises UsageError for an unknown column, DatasetError for a member that is not a JSON object, ReadError, and the
    errors of reading a zip member.
    """
    wanted: dict[str, list[str]] = {}
    for name in names:
        if name in table.columns:
            continue
        found = [each for each in table.columns if each.rpartition(".")[2] == _JSON and name.startswith(f"{each}.")]
        if not found:
            raise UsageError(
                f"columns: expected names of columns of {table.source} ({names_text(list(table.columns))}), or of keys "
                f"in JSON members, such as 'json.caption', got {name!r}"
            )
        wanted.setdefault(max(found, key=len), []).append(name)
    parsed: dict[str, Column] = {}
    for member, keys in wanted.items():
        parsed |= _json_values(table, member, {name: name[len(member) + 1 :].split(".") for name in keys})
    columns = {name: parsed[name] if name in parsed else table.columns[name] for name in names}
    return replace(table, columns=columns, known_digest=None)


def _json_values(table: SampleTable, member: str, paths: Mapping[str, Sequence[str]]) -> dict[str, Column]:
    dataset = Dataset(table)
    values: dict[str, list[Any]] = {name: [] for name in paths}
    keys: dict[str, None] = {}
    most = Limits().max_file_bytes
    for positions, found in read_members(
        dataset, member, block=_JSON_BLOCK, threads=default_threads(), most_bytes=most
    ):
        lengths = dataset.locate(member, positions).length
        for place, data in enumerate(found):
            sample = int(positions[place])
            if data is None and lengths is not None and lengths[place] != ABSENT:
                data = dataset.read(member, sample)  # raises the member's error
            try:
                record = {} if data is None else msgspec.json.decode(data)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                raise _not_an_object(member, dataset, sample, str(error)) from error
            if not isinstance(record, dict):
                raise _not_an_object(member, dataset, sample, shown(record))
            if len(keys) < _KEYS_OF:
                keys |= dict.fromkeys(record)
            for name, path in paths.items():
                value: Any = record
                for key in path:
                    value = value.get(key) if isinstance(value, dict) else None
                values[name].append(value)
    for name, each in values.items():
        if all(value is None for value in each):
            raise UsageError(
                f"columns: expected keys in the {member} members of {table.source} ({names_text(list(keys))}), "
                f"got {name!r}"
            )
    return columns_of(values)[0]


def _not_an_object(member: str, dataset: Dataset, sample: int, got: str) -> DatasetError:
    shard, offset = dataset.where(member, sample)
    return DatasetError(
        f"{shard} at byte {offset}: expected a JSON object as {member} of sample {dataset.key(sample)!r}, got "
        f"otherwise: {got}. Correct it, or open without this column"
    )
