"""A dataset is an index of byte ranges: columns that say where each sample's bytes lie.

`open` takes a folder or tars; a `Dataset` tells what is there and where, reads single samples, and is cut by
`select` and `split`.
"""

from headrace.data.columns import (
    ABSENT,
    KEY,
    ByteColumn,
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
from headrace.data.files import Files
from headrace.data.opening import Where
from headrace.data.opening import open_dataset as open
from headrace.data.strings import StringColumn

__all__ = [
    "ABSENT",
    "KEY",
    "ByteColumn",
    "Dataset",
    "FileColumn",
    "Files",
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
