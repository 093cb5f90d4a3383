"""Hugging Face datasets as `save_to_disk` leaves them: a folder of Arrow files, whose images are read in place."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import DatasetError, EmptyDatasetError, ReadError
from .columns import ABSENT, Column, HeldColumn, ListColumn, RangeColumn, ValueColumn
from .files import Files
from .keys import NumberKeys
from .strings import StringColumn
from .table import Table

if TYPE_CHECKING:
    from .arrow_file import ArrowFile

_STATE, _INFO, _SPLITS = "state.json", "dataset_info.json", "dataset_dict.json"


def is_saved_dataset(folder: str) -> bool:
    """Whether `save_to_disk` wrote it: one dataset, or several by the name of their split."""
    return any(os.path.isfile(os.path.join(folder, name)) for name in (_STATE, _SPLITS))


def open_saved_dataset(folder: str) -> Table:
    """The samples of the dataset in `folder` (absolute), in its order; a sample's key is its row.

    A feature of images or of bytes is a column of bytes; a ClassLabel, or a list of them, has its names as classes;
    numbers, texts and lists of these are what they are, and all else is a text of JSON.

    Raises DatasetError (several splits, an index beside the files, compressed, paths instead of bytes, damaged),
    EmptyDatasetError or ReadError.
    """
    names = _data_files(folder)
    # Only here, since they import pyarrow.
    from .arrow_file import ArrowFile, common_schema, is_bytes
    from .manifest.arrow_columns import holds_bytes

    arrow = [ArrowFile(os.path.join(folder, name)) for name in names]
    count = sum(len(file) for file in arrow)
    if not count:
        raise EmptyDatasetError(f"{folder}: expected rows, got a dataset of none. Check what was saved")
    files = Files(folder, StringColumn.from_list(names), archives=True)
    schema, classes = common_schema(arrow), _class_names(folder)
    of_bytes = [field.name for field in schema if is_bytes(field.type)]
    inside = [field.name for field in schema if holds_bytes(field.type) and field.name not in of_bytes]
    taken = [name for name in arrow[0].names if name not in inside]
    held = _held_columns(arrow, [name for name in taken if name not in of_bytes])
    columns: dict[str, Column] = {
        name: _byte_column(arrow, files, name) if name in of_bytes else _labelled(held[name], classes.get(name))
        for name in taken
    }
    skipped = {"columns with bytes inside lists": len(inside)} if inside else {}
    return Table(f"dataset {os.path.basename(folder)}/", NumberKeys(range(count)), columns, skipped)


def _data_files(folder: str) -> list[str]:
    if not os.path.isfile(os.path.join(folder, _STATE)):
        raise _several_splits(folder)
    state = _json(folder, _STATE)
    if state.get("_indices_data_files") or state.get("_indices_files"):
        raise DatasetError(
            f"{folder}: expected the rows themselves, got an index into them beside the files, as old versions of "
            f"datasets saved what was selected. Save it again: datasets.load_from_disk(…).save_to_disk(…)"
        )
    match state:
        case {"_data_files": [*files]} if all(_names_a_file(file) for file in files):
            return [file["filename"] for file in files]
    raise DatasetError(f"{folder}: expected names of Arrow files in {_STATE}, got none. Save the dataset again")


def _several_splits(folder: str) -> DatasetError:
    match _json(folder, _SPLITS):
        case {"splits": [first, *others]}:
            return DatasetError(
                f"{folder}: expected one dataset, got the splits {', '.join(map(str, [first, *others]))}. Open one of "
                f"them, such as {os.path.join(folder, str(first))}"
            )
    return DatasetError(f"{folder}: expected a list of splits in {_SPLITS}, got none. Save the dataset again")


def _names_a_file(entry: object) -> bool:
    """Of this very folder: a state that anyone may have written leads nowhere else."""
    match entry:
        case {"filename": str(name)}:
            return bool(name) and name == os.path.basename(name) and name not in (".", "..") and _is_file_name(name)
    return False


def _is_file_name(name: str) -> bool:
    """JSON's strings hold more than names can."""
    try:
        return b"\0" not in os.fsencode(name)
    except UnicodeEncodeError:
        return False


def _class_names(folder: str) -> dict[str, tuple[str, ...]]:
    """The names of each ClassLabel, or list of them, by feature."""
    if not os.path.isfile(os.path.join(folder, _INFO)):
        return {}
    features = _json(folder, _INFO).get("features")
    found = {}
    for name, feature in features.items() if isinstance(features, dict) else ():
        match feature:
            case (
                {"_type": "ClassLabel", "names": [*names]}
                | {"feature": {"_type": "ClassLabel", "names": [*names]}}
                | [{"_type": "ClassLabel", "names": [*names]}]  # a list, as old versions of datasets wrote it
            ):
                found[name] = tuple(map(str, names))
    return found


def _json(folder: str, name: str) -> dict[str, Any]:
    path = os.path.join(folder, name)
    try:
        with open(path, "rb") as file:
            found = json.load(file)
    except OSError as error:
        raise ReadError(f"{path}: could not be read: {error.strerror}. Check its permissions and the disk") from error
    except (ValueError, RecursionError) as error:
        raise DatasetError(f"{path}: expected JSON, got otherwise: {error}. Save the dataset again") from error
    if not isinstance(found, dict):
        raise DatasetError(f"{path}: expected a JSON object, got a {type(found).__name__}. Save the dataset again")
    return found


def _byte_column(arrow: Sequence[ArrowFile], files: Files, name: str) -> RangeColumn:
    ranges = [file.ranges(name) for file in arrow]
    length = np.concatenate([part.length for part in ranges])
    if (length == ABSENT).all() and any(file.names_files(name) for file in arrow):
        raise DatasetError(
            f"{files.root}: expected images as bytes in {name!r}, got the paths of their files alone, as old versions "
            f"of datasets saved them. Save it again: datasets.load_from_disk(…).save_to_disk(…)"
        )
    path_id = np.repeat(np.arange(len(arrow), dtype=np.int32), [len(file) for file in arrow])
    return RangeColumn(files, path_id, np.concatenate([part.offset for part in ranges]), length, None)


def _held_columns(arrow: Sequence[ArrowFile], names: list[str]) -> Mapping[str, HeldColumn]:
    """What is no bytes, in the form that a manifest's columns are kept in."""
    if not names:
        return {}
    import pyarrow as pa

    from . import safetensors
    from .arrow_rows import ArrowRows
    from .manifest.building import build_columns
    from .manifest.kept import load_kept

    schema = pa.schema([arrow[0].schema.field(name) for name in names])
    rows = ArrowRows(schema, lambda: (batch for file in arrow for batch in file.batches))
    contents, outline = build_columns(rows, scratch_in=None)
    return load_kept(safetensors.mapped(contents), outline).columns


def _labelled(column: HeldColumn, classes: tuple[str, ...] | None) -> HeldColumn:
    if classes is None or not isinstance(column, ValueColumn | ListColumn):
        return column
    return replace(column, classes=classes)
