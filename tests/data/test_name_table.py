"""The name table against a dict, and over arrays that are damaged."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.data.archives.archive_members import NameTable
from headrace.data.storage.strings import StringColumn


@given(
    st.lists(st.text(st.sampled_from("ab/."), max_size=3), max_size=40), st.text(st.sampled_from("ab/."), max_size=3)
)
def test_name_table_is_a_dict(names, wanted):
    table = NameTable.build(StringColumn.from_list(names))
    assert table.find(wanted) == ({name: at for at, name in enumerate(names)}).get(wanted)
    for before in range(len(names) + 1):
        expected = {name: at for at, name in enumerate(names[:before])}.get(wanted)
        assert table.find(wanted, before) == expected
    assert [table[at] for at in range(len(names))] == names


@pytest.mark.parametrize(
    ("starts", "order"),
    [([0, 2], [7, 7]), ([0, 2], [-1, -1]), ([0, 9], [0, 1]), ([2, 0], [0, 1]), ([0, 0, 2, 2], [0, 1])],
)
def test_a_damaged_table_never_points_outside(starts, order):
    names = StringColumn.from_list(["a", "b"])
    table = NameTable(names, np.array(starts, np.uint32), np.array(order, np.int32))
    with pytest.raises(ValueError, match=r"bucket|not there"):
        table.find("a")


@given(
    starts=st.lists(st.integers(0, 9), max_size=9),
    order=st.lists(st.integers(-9, 9), max_size=9),
    offsets=st.lists(st.integers(0, 9), max_size=9),
)
def test_any_arrays_give_an_answer_or_an_error(starts, order, offsets):
    names = StringColumn(np.frombuffer(b"abcabc", np.uint8), np.array(offsets, np.uint64))
    table = NameTable(names, np.array(starts, np.uint32), np.array(order, np.int32))
    for wanted in ("", "a", "abc", "abcabc"):
        try:
            at = table.find(wanted)
        except ValueError:
            continue
        assert at is None or "abcabc"[offsets[at] : offsets[at + 1]] == wanted
