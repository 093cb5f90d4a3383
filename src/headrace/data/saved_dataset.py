"""Hugging Face datasets as `save_to_disk` leaves them: a folder of Arrow files, whose images are read in place."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.data.columns import ABSENT, Column, HeldColumn, ListColumn, RangeColumn, ValueColumn
from headrace.data.files import Files
from headrace.data.keys import NumberKeys
from headrace.data.strings import StringColumn
from headrace.data.table import Table
from headrace.errors import DatasetError, EmptyDatasetError, ReadError

if TYPE_CHECKING:
    from headrace.data.manifest.arrow_files import ArrowFile
    from headrace.data.manifest.typed_rows import TypedRows

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
    folder = _only_split(folder)
    names = _data_files(folder)
    # Only here, since they import pyarrow.
    from headrace.data.manifest.arrow_files import ArrowFile, common_schema
    from headrace.data.manifest.typed_rows import TypedRows, feature_classes

    arrow = [ArrowFile(os.path.join(folder, name)) for name in names]
    count = sum(len(file) for file in arrow)
    if not count:
        raise EmptyDatasetError(f"{folder}: expected rows, got a dataset of none. Check what was saved")
    files = Files(folder, StringColumn.from_list(names), archives=True)
    common_schema(arrow)
    classes = feature_classes(_json(folder, _INFO).get("features")) if _has(folder, _INFO) else {}
    rows = TypedRows(arrow, columns=None)
    held = list(held_columns(rows).items())
    columns = [(name, _labelled(column, classes.get(name))) for name, column in held]
    for at, name in rows.byte_columns:
        columns.insert(at, (name, _byte_column(arrow, files, name)))
    return Table(f"dataset {os.path.basename(folder)}/", NumberKeys(range(count)), dict(columns), rows.skipped)


def _data_files(folder: str) -> list[str]:
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


def _only_split(folder: str) -> str:
    """The folder of the only one, where several could be. Raises DatasetError."""
    if _has(folder, _STATE):
        return folder
    match _json(folder, _SPLITS):
        case {"splits": [str(only)]} if _is_name(only) and _has(os.path.join(folder, only), _STATE):
            return os.path.join(folder, only)
        case {"splits": [first, *others]}:
            raise DatasetError(
                f"{folder}: expected one dataset, got the splits {', '.join(map(str, [first, *others]))}. Open one of "
                f"them, such as {os.path.join(folder, str(first))}"
            )
    raise DatasetError(f"{folder}: expected a list of splits in {_SPLITS}, got none. Save the dataset again")


def _names_a_file(entry: object) -> bool:
    """Of this very folder: a state that anyone may have written leads nowhere else."""
    match entry:
        case {"filename": str(name)}:
            return _is_name(name)
    return False


def _is_name(name: str) -> bool:
    return bool(name) and name == os.path.basename(name) and name not in (".", "..") and _is_file_name(name)


def _is_file_name(name: str) -> bool:
    """JSON's strings hold more than names can."""
    try:
        return b"\0" not in os.fsencode(name)
    except UnicodeEncodeError:
        return False


def _has(folder: str, name: str) -> bool:
    return os.path.isfile(os.path.join(folder, name))


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
    for file in arrow:
        if not file.holds_in_place(name):
            raise DatasetError(
                f"{file.path}: expected plain columns of bytes, got compressed ones, which cannot be read in place. "
                f"Save the dataset without compression (datasets' save_to_disk does)"
            )
    values = [file.values(name) for file in arrow]
    length = np.concatenate([part.length for part in values])
    if (length == ABSENT).all() and any(part.paths is not None for part in values):
        raise DatasetError(
            f"{files.root}: expected images as bytes in {name!r}, got the paths of their files alone, as old versions "
            f"of datasets saved them. Save it again: datasets.load_from_disk(…).save_to_disk(…)"
        )
    path_id = np.repeat(np.arange(len(arrow), dtype=np.int32), [len(file) for file in arrow])
    return RangeColumn(files, path_id, np.concatenate([part.offset for part in values]), length, None)


def held_columns(rows: TypedRows) -> Mapping[str, HeldColumn]:
    """Return what is no bytes, in the form that a manifest's columns are kept in."""
    from headrace.data.manifest.building import build_columns
    from headrace.data.manifest.manifest_columns import load_kept
    from headrace.data.storage import safetensors

    contents, outline = build_columns(rows, scratch_in=None)
    return load_kept(safetensors.mapped(contents), outline).columns


def _labelled(column: Column, classes: tuple[str, ...] | None) -> Column:
    if classes is None or not isinstance(column, ValueColumn | ListColumn):
        return column
    return replace(column, classes=classes)
