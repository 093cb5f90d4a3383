"""StringColumn against a list of strings."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.data import StringColumn

raw = st.binary(max_size=6)


@given(st.lists(raw, max_size=20), st.data())
def test_is_a_list_of_strings(strings, draw):
    column = StringColumn.from_list(strings)
    text = [string.decode("utf-8", "surrogateescape") for string in strings]
    assert list(column) == text
    assert [column.bytes(i) for i in range(-len(strings), len(strings))] == strings * 2
    assert list(StringColumn.from_list(text)) == text
    assert column.lengths().tolist() == [len(string) for string in strings]
    if strings:
        picks = draw.draw(st.lists(st.integers(0, len(strings) - 1)))
        assert list(column.take(np.array(picks, np.int64))) == [text[i] for i in picks]


@given(st.lists(st.lists(raw, max_size=5), max_size=4))
def test_join(parts):
    joined = StringColumn.join(StringColumn.from_list(part) for part in parts)
    assert [joined.bytes(i) for i in range(len(joined))] == [string for part in parts for string in part]


@pytest.mark.parametrize("index", [2, -3])
def test_out_of_range(index):
    with pytest.raises(IndexError, match=f"string {index} of 2"):
        StringColumn.from_list(["a", "b"])[index]


def test_costs_its_bytes_and_one_offset_a_string():
    assert StringColumn.from_list(["abc"] * 1000).nbytes == 3000 + 8 * 1001
