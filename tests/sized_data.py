"""Datasets of images that are not there, of which sizes and other numbers are known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import headrace as hr
from headrace.data.columns import Column, FileColumn, ListColumn, TextColumn, ValueColumn
from headrace.data.location import ColumnFiles
from headrace.data.storage.strings import StringColumn
from headrace.data.table import SampleTable


def sized(sizes: Sequence[tuple[int, int]], **columns: Sequence[Any]) -> hr.Dataset:
    """Images of these (height, width), with further columns of numbers, texts or lists of numbers."""
    keys = StringColumn.from_list(f"s{number}" for number in range(len(sizes)))
    height, width = np.array(sizes, np.int32).reshape(-1, 2).T
    held = {"image": FileColumn(ColumnFiles("/nowhere", keys, archives=False))}
    held |= {"height": ValueColumn(height), "width": ValueColumn(width)}
    held |= {name: _column(values) for name, values in columns.items()}
    return hr.Dataset(SampleTable("made up", keys, held, {}))


def _column(values: Sequence[Any]) -> Column:
    if isinstance(values[0], str):
        return TextColumn(StringColumn.from_list(values))
    if isinstance(values[0], list):
        ends = np.cumsum([0, *map(len, values)]).astype(np.uint64)
        return ListColumn(ends, np.array([item for items in values for item in items]))
    return ValueColumn(np.array(values))
