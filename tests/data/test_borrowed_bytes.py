"""Bytes that a caller holds: read in place, and the same samples as from a copy."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import headrace as hr
from headrace.data import borrow_bytes
from headrace.errors import UsageError

VALUES = [b"first", None, b"", b"the fourth"]
ARROW = pa.chunked_array([pa.array(VALUES[:1]), pa.array(VALUES[1:], pa.binary())])
PADDED = pa.array([b"__", *VALUES])[1:]


@pytest.mark.parametrize(
    "values", [VALUES, ARROW, PADDED, pa.array(VALUES, pa.large_binary())], ids=["list", "chunked", "padded", "large"]
)
def test_samples_are_those_of_a_copy(values):
    borrowed = hr.open(borrow_bytes({"image": values, "label": [1, 2, 3, 4]}))
    copied = hr.open({"image": VALUES, "label": [1, 2, 3, 4]})
    assert list(borrowed) == list(copied)
    assert borrowed.column("image") == VALUES
    assert borrowed.select([3, 0]).column("image") == [VALUES[3], VALUES[0]]
    other = borrow_bytes({"image": [b"First", *VALUES[1:]], "label": [1, 2, 3, 4]})
    assert borrowed.fingerprint != hr.open(other).fingerprint


def test_nothing_is_copied():
    held = bytearray(b"abc")
    column = borrow_bytes([held])["image"]
    assert np.shares_memory(column.buffers[0], np.frombuffer(held, np.uint8))
    array = pa.array([b"abc", b"defg"])
    column = borrow_bytes(pa.table({"image": array}))["image"]
    assert len(column.buffers) == 1
    assert np.shares_memory(column.buffers[0], np.frombuffer(array.buffers()[2], np.uint8))


def test_a_strided_view_is_copied():
    assert hr.open(borrow_bytes([memoryview(b"a-b-c-")[::2]])).column("image") == [b"abc"]


@pytest.mark.parametrize("items", [[b"a", "b"], pa.array([{"bytes": b"a", "path": ""}, {"bytes": None, "path": "b"}])])
def test_other_values_are_refused(items):
    with pytest.raises(UsageError, match="column 'image'"):
        borrow_bytes(items)
