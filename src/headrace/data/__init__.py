"""Open a dataset: an index of byte ranges over folders, archives, manifests and samples in memory."""

from __future__ import annotations

from headrace.data.columns import (
    ABSENT,
    KEY,
    ByteColumn,
    ColumnFiles,
    FileColumn,
    HeldColumn,
    KeyColumn,
    ListColumn,
    Location,
    RangeColumn,
    TextColumn,
    ValueColumn,
)
from headrace.data.dataset import Dataset
from headrace.data.opening import Where
from headrace.data.opening import open_dataset as open
from headrace.data.storage.strings import StringColumn

__all__ = [
    "ABSENT",
    "KEY",
    "ByteColumn",
    "ColumnFiles",
    "Dataset",
    "FileColumn",
    "HeldColumn",
    "KeyColumn",
    "ListColumn",
    "Location",
    "RangeColumn",
    "StringColumn",
    "TextColumn",
    "ValueColumn",
    "Where",
    "open",
]
