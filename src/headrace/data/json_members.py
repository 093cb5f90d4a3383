"""Columns of archives, chosen by name: of an extension, or of a key in the JSON members, which are read once for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from headrace._core import Limits
from headrace.cores import default_threads
from headrace.data.class_names import names_text
from headrace.data.columns import ABSENT, Column
from headrace.data.dataset import Dataset
from headrace.data.member_reading import read_members
from headrace.data.sources.memory_samples import columns_of, shown
from headrace.data.table import Table
from headrace.errors import DatasetError, UsageError

_JSON = "json"
_BLOCK = 1024
_KEYS_OF = 100
"""Samples whose keys a message shows."""


def choose_columns(table: Table, names: Sequence[str]) -> Table:
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
        parsed |= _values(table, member, {name: name[len(member) + 1 :].split(".") for name in keys})
    columns = {name: parsed[name] if name in parsed else table.columns[name] for name in names}
    return replace(table, columns=columns, known_digest=None)


def _member_of(table: Table, name: str) -> str:
    """Return the column of JSON that `name` is a key of: the one of the longest name."""
    found = [column for column in table.columns if column.rpartition(".")[2] == _JSON and name.startswith(f"{column}.")]
    if not found:
        raise UsageError(
            f"columns: expected names of columns of {table.source} ({names_text(list(table.columns))}), or of keys in "
            f"JSON members, such as 'json.caption', got {name!r}"
        )
    return max(found, key=len)


def _values(table: Table, member: str, paths: Mapping[str, Sequence[str]]) -> dict[str, Column]:
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
            record = {} if data is None else _object(data, member, dataset, sample)
            if len(keys) < _KEYS_OF:
                keys |= dict.fromkeys(record)
            for name, path in paths.items():
                values[name].append(_at(record, path))
    for name, each in values.items():
        if all(value is None for value in each):
            raise UsageError(
                f"columns: expected keys in the {member} members of {table.source} ({names_text(list(keys))}), "
                f"got {name!r}"
            )
    return columns_of(values)[0]


def _object(data: bytes, member: str, dataset: Dataset, sample: int) -> Mapping[str, Any]:
    try:
        record = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _no_object(member, dataset, sample, str(error)) from error
    if not isinstance(record, dict):
        raise _no_object(member, dataset, sample, shown(record))
    return record


def _no_object(member: str, dataset: Dataset, sample: int, got: str) -> DatasetError:
    shard, offset = dataset.where(member, sample)
    return DatasetError(
        f"{shard} at byte {offset}: expected a JSON object as {member} of sample {dataset.key(sample)!r}, got "
        f"otherwise: {got}. Correct it, or open without this column"
    )


def _at(record: Any, path: Sequence[str]) -> Any:
    """Return the value at a path of keys; None where there is none."""
    for key in path:
        record = record.get(key) if isinstance(record, dict) else None
    return record
