"""Manifests that are nearly right: texts made of what their parsers look for, and what each is meant to hold."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

from hypothesis import strategies as st

PIECES = [
    '"',
    '""',
    ",",
    "\t",
    "\n",
    "\r\n",
    "\r",
    " ",
    "a",
    "x.jpg",
    "7",
    "-0.5",
    "NA",
    "true",
    "é",
    "\ufeff",
    "{",
    "}",
    ":",
]
BYTES = [b"\0", b"\xff", b"\xc3", b"\xef\xbb\xbf", b"\xff\xfe"]
NAMES = ["list.csv", "list.tsv", "list.txt", "list.jsonl", "list.odgt", "list.parquet"]

columns = st.one_of(st.none(), st.lists(st.sampled_from(["image", "a", "7", "é", ""]), max_size=3))
odd_texts = st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=3)), max_size=30).map(
    lambda parts: "".join(parts).encode("utf-8", "surrogatepass")
)
odd_bytes = st.builds(
    lambda parts: b"".join(parts),
    st.lists(st.one_of(odd_texts, st.sampled_from(BYTES), st.binary(max_size=4)), max_size=8),
)

fields = st.one_of(
    st.sampled_from(["", "a", "a,b", 'say "hi"', "two\nlines", " x ", "\r\n", "é", "\t", "b.jpg", "'", '"', "#"]),
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=6),
)
cells = st.one_of(
    fields, st.sampled_from(["1", "-2", "3.5", "007", "1e400", "NA", "nan", "true", "FALSE", "12345678901234567"])
)


@st.composite
def tables(draw: st.DrawFn) -> list[list[str]]:
    """Rows of as many cells each; a column is often one of numbers."""
    width = draw(st.integers(1, 4))
    kinds = [draw(st.sampled_from([fields, cells, st.integers(-9, 9).map(str)])) for _ in range(width)]
    return draw(st.lists(st.tuples(*kinds).map(list), min_size=1, max_size=12))


def delimited(rows: list[list[str]], delimiter: str, line_end: str) -> bytes:
    buffer = io.StringIO()
    bare = any("\r" in cell for row in rows for cell in row)  # before Python 3.13, the writer leaves it without quotes
    quoting = csv.QUOTE_ALL if bare else csv.QUOTE_MINIMAL
    csv.writer(buffer, delimiter=delimiter, lineterminator=line_end, quoting=quoting).writerows(rows)
    return buffer.getvalue().encode()


json_scalars = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
)  # fmt: skip
json_cells = st.one_of(
    st.none(), st.booleans(), st.integers(-5, 5), st.floats(-1, 1), st.sampled_from(["", "x", "é"]),
    st.lists(st.integers(-5, 5), max_size=3), st.lists(st.floats(-1, 1), max_size=3),
    st.lists(st.sampled_from(["", "p"]), max_size=3), st.lists(json_scalars, max_size=3),
    st.dictionaries(st.sampled_from("ab"), json_scalars, max_size=2), json_scalars,
)  # fmt: skip


@st.composite
def json_rows(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Objects of some of three keys, whose values are often all of one kind."""
    kinds = {
        name: draw(st.sampled_from([json_cells, st.integers(-9, 9), st.floats(-1, 1), st.lists(st.integers(-9, 9))]))
        for name in "xyz"
    }
    row = st.fixed_dictionaries({}, optional=kinds)
    return draw(st.lists(row, min_size=1, max_size=8))


def json_text(rows: list[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()
