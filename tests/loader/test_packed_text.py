"""Rows of packed ids, against loops over tokens; and what attention makes of them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.fields import Sequences
from headrace.loader.decoding.texts import PARTS, RowOverflowError, packed

LENGTH, PAD = 12, 99


def slow_packed(sequences, row_of, rows):
    """Token by token."""
    table = {name: [] for name in PARTS}
    edges = [0]
    for row in range(rows):
        found = {name: [] for name in ("ids", "mask", "positions", "blocks")}
        for number, sequence in enumerate(sequences):
            if row_of[number] != row:
                continue
            for position, token in enumerate(sequence):
                for name, value in zip(found, (token, True, position, number), strict=True):
                    found[name].append(value)
            edges.append(row * LENGTH + len(found["ids"]))
        padding = LENGTH - len(found["ids"])
        for name, fill in zip(found, (PAD, False, 0, -1), strict=True):
            table[name].append(found[name] + [fill] * padding)
        edges.append((row + 1) * LENGTH)
    table["boundaries"] = sorted(set(edges))
    return table


@st.composite
def rows_of_sequences(draw):
    rows = draw(st.integers(0, 4))
    sequences, row_of = [], []
    for row in range(rows):
        room = LENGTH
        for length in draw(st.lists(st.integers(0, LENGTH), max_size=5)):
            if length <= room:
                room -= length
                sequences.append(draw(st.lists(st.integers(0, 50), min_size=length, max_size=length)))
                row_of.append(row)
    return sequences, row_of, rows


@given(rows_of_sequences())
def test_parts_are_those_of_a_loop_over_tokens(drawn):
    sequences, row_of, rows = drawn
    got = packed(Sequences.of(sequences), np.array(row_of, np.int64), rows=rows, length=LENGTH, pad_id=PAD)
    expected = slow_packed(sequences, row_of, rows)
    assert tuple(got) == PARTS
    for name, dtype in zip(PARTS, (np.int64, bool, np.int64, np.int64, np.int32), strict=True):
        assert got[name].dtype == dtype
        assert got[name].tolist() == expected[name]
        assert got[name].shape == ((len(expected[name]),) if name == "boundaries" else (rows, LENGTH))


def test_a_row_that_is_too_short_is_refused():
    with pytest.raises(RowOverflowError, match=r"13 tokens of 2 sequences \(\[6, 7\]\) in a row of 12"):
        packed(Sequences.of([[1] * 12, [1] * 6, [2] * 7]), np.array([0, 1, 1]), rows=2, length=12, pad_id=0)
