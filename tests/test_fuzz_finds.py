"""What fuzzers and the corpus of damaged files found (docs/trust.md), each told again without them."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from core_images import jpeg, photograph, run, view_row
from fuzz_finds import (
    HUFFMAN_TABLES,
    QUANTISATION_TABLES,
    jpeg_that_claims,
    jpeg_without,
    jpegs_cut_between_scans,
    png_that_claims,
)

import headrace as hr
from headrace.data.manifest import manifest_table
from headrace.errors import DatasetError, DecodeError


@pytest.mark.parametrize(
    ("marker", "message"),
    [
        (HUFFMAN_TABLES, "Huffman table 0x00 was not defined"),
        (QUANTISATION_TABLES, "Quantization table 0x00 was not defined"),
    ],
    ids=["Huffman", "quantisation"],
)
def test_a_jpeg_without_tables_is_bad_whatever_came_before(marker: int, message: str) -> None:
    """libjpeg keeps tables from file to file, so what such a file looked like depended on the thread that got it."""
    hr.decode_image(jpeg(photograph(40, 50), progressive=True))
    with pytest.raises(DecodeError, match=message):
        hr.decode_image(jpeg_without({marker}, progressive=True))


def test_motion_jpeg_has_the_tables_of_the_standard() -> None:
    """Frames of a film leave the standard's tables out; they are taken, not those of the file before."""
    pixels = photograph(40, 50)
    hr.decode_image(jpeg(pixels, optimize=True))
    np.testing.assert_array_equal(hr.decode_image(jpeg_without({HUFFMAN_TABLES})), hr.decode_image(jpeg(pixels)))


def test_a_progressive_jpeg_that_ends_between_scans_is_cut_short() -> None:
    """Each scan that came is whole, so the decoder itself has nothing to say."""
    for file in jpegs_cut_between_scans():
        with pytest.raises(DecodeError, match="cut short"):
            hr.decode_image(file)


def test_a_jpeg_without_its_end_marker_alone_is_whole() -> None:
    for progressive in (False, True):
        whole = jpeg(photograph(40, 50), progressive=progressive)
        np.testing.assert_array_equal(hr.decode_image(whole[:-2]), hr.decode_image(whole))


PROBE = 1
"""The stage in which a file's header is read, and nothing yet made of its size."""


@pytest.mark.parametrize("size", [(1, 1 << 24), (1 << 24, 1), (10_000, 10_000)], ids=["tall", "wide", "large"])
def test_a_small_png_cannot_ask_for_a_large_images_memory(size: tuple[int, int]) -> None:
    """Weights of a tall one's rows took more than its pixels would have."""
    with pytest.raises(ValueError, match="more than they can hold") as caught:
        run(png_that_claims(*size), view_row((0, 0, 1, 1), (0, 0, 1, 1), (1, 1)))
    assert caught.value.args[1] == PROBE


@pytest.mark.parametrize("progressive", [False, True], ids=["baseline", "progressive"])
def test_a_small_jpeg_cannot_ask_for_a_large_images_memory(progressive: bool) -> None:
    """A progressive one would take 6 bytes a pixel for its coefficients."""
    file = jpeg_that_claims(60_000, 2_000, progressive=progressive)
    with pytest.raises(ValueError, match=f"60000x2000 pixels, which no {len(file)} bytes can hold") as caught:
        run(file, view_row((0, 0, 1, 1), (0, 0, 1, 1), (1, 1)))
    assert caught.value.args[1] == PROBE


@pytest.mark.parametrize("options", [{}, {"progressive": True}], ids=["baseline", "progressive"])
def test_the_least_that_a_jpeg_can_take_is_enough(options: dict[str, object]) -> None:
    """One colour throughout."""
    pixels = np.full((2_000, 3_000, 3), 77, np.uint8)
    assert hr.decode_image(jpeg(pixels, optimize=True, **options)).shape == (3, 2_000, 3_000)


@pytest.fixture
def saved(tmp_path):
    """A dataset as save_to_disk leaves it: one column of texts."""
    folder = tmp_path / "saved"
    folder.mkdir()
    table = pa.table({"text": ["one", "two", "three"]})
    with pa.OSFile(str(folder / "data.arrow"), "wb") as file, pa.ipc.new_stream(file, table.schema) as stream:
        stream.write_table(table)
    (folder / "state.json").write_text(json.dumps({"_data_files": [{"filename": "data.arrow"}]}))
    return folder


def test_an_arrow_file_whose_texts_lie_outside_it_is_damaged(saved) -> None:
    """pyarrow takes offsets on trust: the process ended with a segmentation fault."""
    path = saved / "data.arrow"
    offsets = np.array([0, 3, 6, 11], np.int32).tobytes()
    whole = path.read_bytes()
    assert hr.open(saved)[2]["text"] == "three"
    assert whole.count(offsets) == 1
    path.write_bytes(whole.replace(offsets, np.array([0, 3, 1 << 30, 11], np.int32).tobytes()))
    with pytest.raises(DatasetError, match=r"data\.arrow: expected a file in Arrow's stream format"):
        hr.open(saved)


@pytest.mark.parametrize("name", ["\ud800.arrow", "a\0b.arrow"], ids=["surrogate", "zero"])
def test_a_saved_dataset_that_names_no_file(saved, name: str) -> None:
    (saved / "state.json").write_text(json.dumps({"_data_files": [{"filename": name}]}))
    with pytest.raises(DatasetError, match="expected names of Arrow files"):
        hr.open(saved)


def test_a_list_that_lies_outside_its_items_is_damaged(tmp_path, monkeypatch):
    """Texts were counted out up to where the sidecar said: 16 GB of numbers for a list of 2**31. Its checksums tell."""
    monkeypatch.setattr(manifest_table, "_KEPT_FROM_BYTES", 0)
    path = tmp_path / "list.jsonl"
    path.write_text('{"words": ["a"], "numbers": [1]}\n{"words": ["b", "c"], "numbers": [2, 3]}\n')
    assert hr.open(path)[1]["words"] == ["b", "c"]
    sidecar = tmp_path / "list.jsonl.headrace"
    offsets, wrong = (np.array([0, at, 3], np.uint64).tobytes() for at in (1, 1 << 60))
    whole = sidecar.read_bytes()
    assert whole.count(offsets) >= 2
    sidecar.write_bytes(whole.replace(offsets, wrong))
    with pytest.warns(UserWarning, match="expected the index of"):
        again = hr.open(path)
    assert [again[number]["words"] for number in range(2)] == [["a"], ["b", "c"]]


def test_a_parquet_file_whose_column_has_no_name_in_utf8_is_damaged(tmp_path):
    path = tmp_path / "list.parquet"
    pq.write_table(pa.table({"names": ["a.jpg"]}), path)
    path.write_bytes(path.read_bytes().replace(b"names", b"n\x80mes"))
    with pytest.raises(DatasetError, match=r"list\.parquet: expected a parquet file, got one that cannot be read"):
        hr.open(path)
