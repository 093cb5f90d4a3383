"""Whatever a manifest holds, opening gives a dataset of just that, or a named error."""

from __future__ import annotations

import csv
import io
import json
import math
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fuzzed_files import edited_bytes, fuzzed
from fuzzed_manifests import NAMES, columns, delimited, json_rows, json_text, odd_bytes, odd_texts, tables
from fuzzed_sidecars import edited_sidecars
from hypothesis import assume, given
from hypothesis import strategies as st

import headrace as hr
from headrace.data.manifest import manifest_table
from headrace.errors import HeadraceError


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("manifest")


def opened(folder: Path, name: str, content: bytes, **options: Any) -> hr.Dataset:
    (folder / name).write_bytes(content)
    return hr.open(folder / name, **options)


def samples(dataset: hr.Dataset) -> list[dict[str, Any]]:
    return [dataset[number] for number in range(len(dataset))]


@fuzzed
@given(name=st.sampled_from(NAMES), content=st.one_of(odd_bytes, odd_texts), columns=columns)
def test_any_bytes(folder: Path, name: str, content: bytes, columns: list[str] | None) -> None:
    with suppress(HeadraceError):
        samples(opened(folder, name, content, columns=columns))


@fuzzed
@given(content=odd_texts, delimiter=st.sampled_from(",\t"))
def test_odd_fields_are_those_that_python_finds(folder: Path, content: bytes, delimiter: str) -> None:
    """Python's own parser does not mind a quote that never closes, nor rows of unequal length: we do."""
    name = "list.csv" if delimiter == "," else "list.tsv"
    with suppress(HeadraceError):
        dataset = opened(folder, name, content)
        text = content.decode().removeprefix("\ufeff")
        rows = [row for row in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter) if row]
        assert_holds(dataset, rows)


@fuzzed
@given(
    rows=tables(),
    delimiter=st.sampled_from(",\t"),
    line_end=st.sampled_from(["\n", "\r\n"]),
    mark=st.sampled_from(["", "\ufeff"]),
)
@pytest.mark.long
def test_tables_come_back(folder: Path, rows: list[list[str]], delimiter: str, line_end: str, mark: str) -> None:
    names = [f"c{number}" for number in range(len(rows[0]))]
    content = mark.encode() + delimited([names, *rows], delimiter, line_end)
    dataset = opened(folder, "list.csv" if delimiter == "," else "list.tsv", content)
    assert_holds(dataset, [names, *rows])


def assert_holds(dataset: hr.Dataset, rows: list[list[str]]) -> None:
    """Each column has the texts of the rows, or what Python reads them as if all are numbers."""
    names = [name or f"column {number}" for number, name in enumerate(rows[0], 1)]
    assert list(dataset.columns) == names
    assert len(dataset) == len(rows) - 1
    for number, name in enumerate(names):
        texts = [row[number] for row in rows[1:]]
        got = [sample[name] for sample in samples(dataset)]
        if dataset.fields[name] == "text":
            assert got == texts
        else:
            np.testing.assert_array_equal(np.array(got, float), [_number(text) for text in texts])


def _number(text: str) -> float:
    word = text.strip().lower()
    if word in ("true", "false"):
        return float(word == "true")
    with suppress(ValueError):
        return float(word)
    return math.nan


@fuzzed
@given(rows=json_rows())
def test_objects_come_back(folder: Path, rows: list[dict[str, Any]]) -> None:
    assume(any(rows))
    dataset = opened(folder, "list.jsonl", json_text(rows))
    assert set(dataset.columns) == {name for row in rows for name in row}
    for name, kind in dataset.fields.items():
        for row, sample in zip(rows, samples(dataset), strict=True):
            value, got = row.get(name), sample[name]
            if kind == "text":
                assert got == value or (value is None and got == "") or _same(json.loads(got), value)
            elif kind == "list":
                assert list(got) == (value or [])
            else:
                assert math.isnan(got) if value is None else got == value


def _same(got: Any, value: Any) -> bool:
    return json.dumps(got, sort_keys=True) == json.dumps(value, sort_keys=True)


@fuzzed
@given(data=st.data())
def test_damaged_parquet(folder: Path, data: st.DataObject) -> None:
    buffer = io.BytesIO()
    compression = data.draw(st.sampled_from(["none", "snappy", "zstd"]))
    table = pa.table({"image": ["a.jpg", "é", None] * 9, "n": [1, None, 3] * 9, "boxes": [[1.5], [], None] * 9})
    pq.write_table(table, buffer, compression=compression, row_group_size=10)
    with suppress(HeadraceError):
        samples(opened(folder, "list.parquet", data.draw(edited_bytes(buffer.getvalue()))))


@pytest.fixture(scope="module")
def kept(folder: Path) -> tuple[Path, bytes]:
    """A manifest that is kept although it is small, and what is kept of it."""
    rows = [
        {"image": f"{i}.jpg", "label": "ab"[i % 2], "n": i, "tags": ["x"] * (i % 3), "boxes": [i / 2]} for i in range(9)
    ]
    path = folder / "kept.jsonl"
    path.write_bytes(json_text(rows))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(manifest_table, "_KEPT_FROM_BYTES", 0)
        hr.open(path)
    return path, Path(f"{path}.headrace").read_bytes()


@pytest.mark.filterwarnings("ignore:.*got a damaged file:UserWarning")
@fuzzed
@given(data=st.data())
@pytest.mark.long
def test_damaged_sidecars(kept: tuple[Path, bytes], data: st.DataObject) -> None:
    path, sound = kept
    Path(f"{path}.headrace").write_bytes(data.draw(edited_sidecars(sound)))
    with pytest.MonkeyPatch.context() as patch, suppress(HeadraceError):
        patch.setattr(manifest_table, "_KEPT_FROM_BYTES", 0)
        dataset = hr.open(path)
        for number in range(len(dataset)):
            with suppress(HeadraceError):
                dataset[number]
