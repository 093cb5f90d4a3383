"""Values found in the pages of parquet files as each writer makes them, against pyarrow's own reading."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.data.manifest.packed_column import PageUnits
from headrace.data.manifest.parquet_files import ParquetRows
from headrace.data.manifest.parquet_pages import (
    CODECS,
    Cursor,
    InvalidPageError,
    hybrid_numbers,
    offset_index_spans,
    read_offset_index,
    unpack_pages,
)
from headrace.errors import DatasetError

ROWS = 300
_RNG = np.random.default_rng(5)
VALUES = [_RNG.bytes(int(size)) for size in _RNG.integers(0, 9000, ROWS)]
WITH_NULLS = [None if row % 7 == 3 else value for row, value in enumerate(VALUES)]
FEW = [VALUES[row % 5] for row in range(ROWS)]

Write = Callable[[io.BytesIO], None]


def by_pyarrow(values: list[Any], **options: Any) -> Write:
    return lambda target: pq.write_table(pa.table({"image": values}), target, **options)


def by_datasets(target: io.BytesIO) -> None:
    datasets = pytest.importorskip("datasets")
    image = datasets.Features({"image": datasets.Image()})
    rows = datasets.Dataset.from_dict({"image": [{"bytes": v, "path": "x.jpg"} for v in VALUES]}, features=image)
    rows.to_parquet(target)


def by_polars(target: io.BytesIO) -> None:
    pytest.importorskip("polars").DataFrame({"image": WITH_NULLS}).write_parquet(target, row_group_size=120)


def by_pandas(target: io.BytesIO) -> None:
    pytest.importorskip("pandas").DataFrame({"image": VALUES}).to_parquet(target)


STRUCTS = [{"bytes": value, "path": "x.jpg"} for value in VALUES]
REQUIRED = pa.schema([pa.field("image", pa.binary(), nullable=False)])
WRITERS: dict[str, Write] = {
    "datasets": by_datasets,
    "polars": by_polars,
    "pandas": by_pandas,
    "defaults": by_pyarrow(STRUCTS),
    "dictionary": by_pyarrow(FEW, row_group_size=90),
    "dictionary that ends": by_pyarrow(VALUES, dictionary_pagesize_limit=100_000, write_batch_size=20),
    "plain": by_pyarrow(WITH_NULLS, compression="none", use_dictionary=False, row_group_size=100),
    "indexed": by_pyarrow(
        WITH_NULLS, compression="none", use_dictionary=False, write_page_index=True, data_page_size=20_000,
        write_batch_size=3,
    ),
    "second version": by_pyarrow(
        WITH_NULLS, compression="zstd", use_dictionary=False, write_page_index=True, data_page_size=30_000,
        write_batch_size=8, data_page_version="2.0",
    ),
    "second version, dictionary": by_pyarrow(FEW, compression="snappy", data_page_version="2.0"),
    "checksums": by_pyarrow(STRUCTS, compression="gzip", write_page_checksum=True),
    "required": lambda target: pq.write_table(pa.table({"image": VALUES}, schema=REQUIRED), target),
    "large": by_pyarrow(pa.array(WITH_NULLS, pa.large_binary()), compression="brotli", write_page_index=True),
    "all null": by_pyarrow(pa.array([None] * ROWS, pa.binary())),
}  # fmt: skip


def values_in(data: bytes, units: PageUnits) -> list[bytes | None]:
    found: list[bytes | None] = []
    for start, stop, rows, codec, level, _ in zip(*units, strict=True):
        pages = data[start:stop]
        values = unpack_pages(memoryview(pages), rows=int(rows), codec=CODECS[codec], most_level=int(level))
        memory = memoryview(pages) if values.data is None else values.data
        for offset, length in zip(values.offset.tolist(), values.length.tolist(), strict=True):
            found.append(None if length < 0 else bytes(memory[offset : offset + length]))
    return found


def written(name: str, folder: Path) -> Path:
    target = io.BytesIO()
    WRITERS[name](target)
    (folder / "a.parquet").write_bytes(target.getvalue())
    return folder / "a.parquet"


_THREADS = {"polars": pytest.mark.leaks(reason="polars' threads live as long as the process")}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", [pytest.param(name, marks=_THREADS.get(name, ())) for name in WRITERS])
def test_pages_hold_what_pyarrow_reads(name: str, tmp_path: Path) -> None:
    path = written(name, tmp_path)
    units = ParquetRows(str(path), "a.parquet").page_units("image")
    assert units is not None
    expected = pq.read_table(path).column("image").to_pylist()
    expected = [each["bytes"] if isinstance(each, dict) else each for each in expected]
    assert values_in(path.read_bytes(), units) == expected


@pytest.mark.parametrize(("name", "fewest"), [("datasets", 2), ("indexed", 20), ("second version", 20), ("plain", 3)])
def test_pages_are_read_by_themselves_where_their_index_tells_them(name: str, fewest: int, tmp_path: Path) -> None:
    path = written(name, tmp_path)
    units = ParquetRows(str(path), "a.parquet").page_units("image")
    assert units is not None
    assert len(units.start) >= fewest
    assert int(units.rows.sum()) == ROWS
    assert (units.start[1:] >= units.stop[:-1]).all()
    assert units.mean_bytes < path.stat().st_size / 2


@pytest.mark.parametrize(
    "write",
    [
        by_pyarrow([{"bytes": value, "path": "x.jpg"} for value in WITH_NULLS]),  # a null may stand for a file
        by_pyarrow(STRUCTS, write_statistics=False),
        by_pyarrow(VALUES, use_dictionary=False, column_encoding="DELTA_LENGTH_BYTE_ARRAY"),
        by_pyarrow([[value] for value in VALUES]),
        by_pyarrow(VALUES, compression="lz4"),  # pyarrow calls two compressions so
    ],
    ids=["nulls beside paths", "no statistics", "deltas", "lists", "lz4"],
)
def test_other_columns_are_left_to_pyarrow(write: Write, tmp_path: Path) -> None:
    with open(tmp_path / "a.parquet", "wb") as file:
        write(file)  # type: ignore[arg-type]
    assert ParquetRows(str(tmp_path / "a.parquet"), "a.parquet").page_units("image") is None


@pytest.mark.parametrize("name", ["defaults", "indexed", "second version", "dictionary that ends"])
def test_damaged_pages_are_named_or_give_values(name: str, tmp_path: Path) -> None:
    """Bytes that are changed at random, or cut off, never raise anything but the one error."""
    path = written(name, tmp_path)
    data = path.read_bytes()
    units = ParquetRows(str(path), "a.parquet").page_units("image")
    assert units is not None
    start, stop, rows, codec, level, _ = next(zip(*units, strict=True))
    pages, refused = data[start:stop], 0
    rng = np.random.default_rng(1)
    for trial in range(200):
        damaged = bytearray(pages[: rng.integers(len(pages))] if trial % 4 == 0 else pages)
        for at in rng.integers(0, min(len(damaged), 64), 3) if damaged else ():
            damaged[at] = rng.integers(256)
        try:
            unpack_pages(memoryview(damaged), rows=int(rows), codec=CODECS[codec], most_level=int(level))
        except InvalidPageError:
            refused += 1
    assert refused > 50


@pytest.mark.parametrize(
    "data",
    [b"", b"\x15", b"\x15" + b"\xff" * 11, b"\x18\xff\xff\xff\xff\x07", b"\x19\xfc\xff\xff\xff\xff\x07", b"\x1c" * 99,
     b"\x1f", b"\x17\0", b"\x19" * 5000],
)  # fmt: skip
def test_headers_without_an_end_are_refused(data: bytes) -> None:
    with pytest.raises(InvalidPageError):
        Cursor(memoryview(data)).thrift_struct()


@pytest.mark.parametrize("data", [b"\0", b"\x19\x15\2\0", b"\x19\x1c\x16\1\x15\2\x16\0\0\0"])
def test_indices_of_pages_that_are_none_are_refused(data: bytes) -> None:
    with pytest.raises(InvalidPageError):
        read_offset_index(memoryview(data), (4, 1000, ROWS))
    with pytest.raises(InvalidPageError):
        offset_index_spans(memoryview(data), 0)


def test_numbers_in_runs_and_packed() -> None:
    assert hybrid_numbers(memoryview(b"\x08\x02"), 2, 4).tolist() == [2, 2, 2, 2]
    assert hybrid_numbers(memoryview(b"\x03\x88\xc6\xfa"), 3, 8).tolist() == [*range(8)]
    for data, width in ((b"\x00\x02", 2), (b"\x03\x88", 3), (b"\x08", 9), (b"\x08\x02", 40)):
        with pytest.raises(InvalidPageError):
            hybrid_numbers(memoryview(data), width, 4)


def test_an_index_of_pages_outside_the_file_is_named(tmp_path: Path) -> None:
    path = written("indexed", tmp_path)
    data = bytearray(path.read_bytes())
    size = int.from_bytes(data[-8:-4], "little")
    span = offset_index_spans(memoryview(data)[-8 - size : -8], 0)[0]
    assert span is not None
    at, length = span[0], span[1] - span[0]
    data[at : at + length] = b"\x19\x1c" + b"\x16\xfe\xff\xff\xff\x7f\x15\x02\x16\0\0\0" + bytes(length - 14)
    path.write_bytes(data)
    with pytest.raises(DatasetError, match=r"^a\.parquet: expected a parquet file, .*pages lie outside"):
        ParquetRows(str(path), "a.parquet").page_units("image")
