"""MDS shards and LitData's chunks give the rows that the libraries' own readers give, in place and untrusted."""

from __future__ import annotations

import base64
import io
import json
import pickle
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from damage import damaged
from other_shards import golden_files, mds_shard, write_golden, write_mds
from PIL import Image

import headrace as hr
from headrace.data.sources.index_building import build_indices, indexable_paths
from headrace.errors import DatasetError, EmptyDatasetError, HeadraceError, NotFoundError, UsageError
from headrace.pack import PackOptions, pack

GOLDEN = {
    "mds": "mds",
    "mds-zstd": "mds",
    "litdata": "litdata",
    "litdata-frames": "litdata",
    "litdata-zstd": "litdata",
    "litdata-pair": "litdata-pair",
}
"""Folders, and the expected rows of each."""
PAIRS = {"label": ("int", 8), "image": ("jpeg", None)}


def is_same(got: Any, expected: Any) -> bool:
    match expected:
        case {"pixels": pixels, "mode": mode}:
            with Image.open(io.BytesIO(got)) as image:
                return image.mode == mode and np.array_equal(np.asarray(image), np.array(pixels, np.uint8))
        case {"dtype": dtype, "values": values} if isinstance(got, bytes):
            array = np.load(io.BytesIO(got), allow_pickle=False)
            return array.dtype == dtype and np.array_equal(array, np.array(values, dtype))
        case {"values": values}:
            return bool(np.array_equal(got, values))
        case {"bytes": data}:
            return bool(got == base64.b64decode(data))
        case dict():  # JSON stays text
            return bool(json.loads(got) == expected)
    return bool(got == expected) and type(got) is type(expected)


def pair(number: int) -> list[bytes]:
    return [struct.pack("<q", number), b"\xff\xd8\xff image %d" % number]


@pytest.mark.parametrize("name", GOLDEN)
@pytest.mark.parametrize("with_cache", [False, True])
def test_rows_are_those_of_the_librarys_own_reader(name, with_cache, tmp_path):
    expected = write_golden(tmp_path)[GOLDEN[name]]
    cache = tmp_path / "cache" if with_cache else None
    for _ in range(2):  # the second opening takes what the first has cached
        data = hr.open(tmp_path / name, cache=cache)
        assert len(data) == len(expected)
        for index, row in enumerate(expected):
            sample = data[index]
            assert sample.pop("__key__") == str(index)
            if "obj" in sample:
                assert pickle.loads(sample.pop("obj")) in ((index, "x"), None), "a pickle stays bytes"
            assert set(sample) == set(row)
            wrong = {column for column in row if not is_same(sample[column], row[column])}
            assert not wrong, sample
    assert pickle.loads(pickle.dumps(data))[3]["label" if name != "litdata-pair" else "1"] in (7, 3)


def test_compression_changes_no_identity(tmp_path):
    write_golden(tmp_path)
    for names in (("mds", "mds-zstd"), ("litdata", "litdata-frames", "litdata-zstd")):
        assert len({hr.open(tmp_path / name).fingerprint for name in names}) == 1
    assert hr.open(tmp_path / "mds").fingerprint != hr.open(tmp_path / "mds", columns=["image"]).fingerprint


def test_an_unpacked_shard_next_to_the_compressed_one_is_read(tmp_path):
    write_golden(tmp_path)
    for name in ("shard.00000.mds", "shard.00001.mds"):
        (tmp_path / "mds-zstd" / name).write_bytes((tmp_path / "mds" / name).read_bytes())
    data = hr.open(tmp_path / "mds-zstd")
    assert data.where("image", 4)[0] == str(tmp_path / "mds-zstd/shard.00001.mds")


def test_fields_read_the_columns(tmp_path):
    expected = write_golden(tmp_path)["mds"]
    fields = {
        "image": hr.Image(source="png"),
        "label": hr.Label(),
        "vec": hr.Array(dtype="float32"),
        "mat": hr.Array(),
        "caption": hr.Raw(),
    }
    loader = hr.Loader(hr.open(tmp_path / "mds"), fields, view=hr.Resize((8, 8)), batch_size=5, output="numpy")
    (batch,) = list(loader)
    assert batch["label"].tolist() == [row["label"] for row in expected]
    assert np.array_equal(batch["vec"], [row["vec"]["values"] for row in expected])
    assert np.array_equal(batch["mat"], [row["mat"]["values"] for row in expected])
    assert batch["caption"] == [row["caption"] for row in expected]
    assert len(batch["image"]) == 5


def test_a_pack_of_shards_has_their_rows(tmp_path):
    write_golden(tmp_path)
    data = hr.open(tmp_path / "mds")
    pack(data, tmp_path / "pack", PackOptions())
    packed = hr.open(tmp_path / "pack")
    assert list(packed.columns) == list(data.columns)
    for index in range(len(data)):
        got, expected = packed[index], data[index]
        assert {name: np.array_equal(got[name], expected[name]) for name in expected} == dict.fromkeys(expected, True)


def test_headrace_index_builds_the_index(tmp_path):
    write_golden(tmp_path)
    cache = str(tmp_path / "cache")
    paths = indexable_paths([str(tmp_path / "mds-zstd")])
    for is_built in (True, False):
        (outcome,) = build_indices(paths, cache=cache)
        assert (outcome.kind, outcome.samples, outcome.built) == ("shards", 5, is_built)
        assert Path(outcome.kept_at).parent == tmp_path / "cache"
    before = sorted(Path(cache).iterdir())
    assert len(hr.open(tmp_path / "mds-zstd", columns=None, cache=cache)) == 5
    assert set(before) <= set(Path(cache).iterdir())


# --- folders ---


def test_a_merged_index_names_shards_in_folders(tmp_path):
    shards = {f"{part}/shard.00000.mds": [pair(part * 3 + number) for number in range(3)] for part in range(2)}
    data = hr.open(write_mds(tmp_path / "merged", PAIRS, shards), columns=["image", "label"])
    assert data.column("label").tolist() == list(range(6))
    assert list(data.read_all("image")) == [pair(number)[1] for number in range(6)]
    assert list(data.columns) == ["image", "label"]
    assert hr.open(tmp_path / "merged/index.json").column("label").tolist() == list(range(6))
    assert data.select([4, 1]).column("image") == [pair(4)[1], pair(1)[1]]


def test_splits(tmp_path):
    for number, split in enumerate(("train", "val")):
        write_mds(tmp_path / "data" / split, PAIRS, {"shard.00000.mds": [pair(number)]})
        if number == 0:
            assert len(hr.open(tmp_path / "data")) == 1
    with pytest.raises(
        UsageError, match=r"expected the shards of one split, got those of 2\. .*data/train, .*data/val"
    ):
        hr.open(tmp_path / "data")


def test_another_index_json_is_no_description(tmp_path):
    (tmp_path / "a").mkdir()
    Image.new("L", (4, 4)).save(tmp_path / "a/0.png")
    for text in ('{"images": []}', "[1]"):
        (tmp_path / "index.json").write_text(text)
        assert list(hr.open(tmp_path).columns) == ["image", "label"]


# --- what is refused ---


@pytest.mark.parametrize("encoding", ["list[jpeg]", "jpeg_array", "video:mp4"])
def test_other_encodings_are_named_and_can_be_left_out(encoding, tmp_path):
    columns = {"extra": (encoding, None), **PAIRS}
    write_mds(tmp_path / "mds", columns, {"shard.00000.mds": [[b"?", *pair(1)]]})
    with pytest.raises(
        DatasetError, match=rf"got '{encoding.replace('[', '.').replace(']', '.')}' in the column 'extra'"
    ):
        hr.open(tmp_path / "mds")
    assert hr.open(tmp_path / "mds", columns=["label"]).column("label").tolist() == [1]


def change(index: Path, *path: Any, value: Any) -> None:
    """Replace a value in an index."""
    known = json.loads(index.read_text())
    inner = known
    for part in path[:-1]:
        inner = inner[part]
    inner[path[-1]] = value
    index.write_text(json.dumps(known))


@pytest.mark.parametrize(
    ("folder", "path", "value", "message"),
    [
        ("mds", ("shards", 0, "format"), "json", "format 'json'"),
        ("mds", ("shards", 0, "samples"), 2, "expected a table of 2 rows, got .3."),
        ("mds", ("shards", 0, "samples"), -1, "Expected `int` >= 0"),
        ("mds", ("shards", 0, "raw_data", "basename"), "../shard.00000.mds", "leads out of the folder"),
        ("mds", ("shards", 0, "raw_data", "basename"), "/etc/passwd", "leads out of the folder"),
        ("mds", ("shards", 1, "column_names", 0), "other", "has other columns than the first shard"),
        ("mds", ("shards", 0, "column_encodings", 3), "ndarray:float64:7", "8 bytes for 'ndarray:float64:7'"),
        ("mds-zstd", ("shards", 0, "compression"), "snappy", "compression 'snappy', in place of zstd"),
        ("mds-zstd", ("shards", 0, "compression"), "gz", "expected a shard compressed with gz"),
        ("mds-zstd", ("shards", 0, "raw_data", "bytes"), 1000, "more than the 1,000 bytes"),
        ("litdata", ("config", "item_loader"), "TokensLoader", "chunks with TokensLoader"),
        ("litdata", ("config", "encryption"), {"level": "chunk"}, "chunks with encryption"),
        ("litdata", ("config", "data_format", 0), "json", "got \"LitData's json\" in the column"),
        ("litdata", ("config", "data_spec"), "[1", "got otherwise"),
        ("litdata-frames", ("chunks", 0, "filename"), "chunk-0-1.bin", "expected a table of 3 rows, got .2."),
    ],
)  # fmt: skip
def test_an_index_that_does_not_fit(folder, path, value, message, tmp_path):
    write_golden(tmp_path)
    change(tmp_path / folder / "index.json", *path, value=value)
    with pytest.raises(DatasetError, match=message):
        hr.open(tmp_path / folder)


def test_missing_and_empty_shards(tmp_path):
    write_mds(tmp_path / "empty", PAIRS, {"shard.00000.mds": []})
    with pytest.raises(EmptyDatasetError):
        hr.open(tmp_path / "empty")
    write_mds(tmp_path / "mds", PAIRS, {"shard.00000.mds": [pair(0)]})
    (tmp_path / "mds/shard.00000.mds").unlink()
    with pytest.raises(NotFoundError, match=r"shard\.00000\.mds: expected the shard that"):
        hr.open(tmp_path / "mds")


@pytest.mark.parametrize(
    ("at", "value", "message"),
    [
        (0, 3, "expected a table of 2 rows"),
        (4, 4, "expected rows from byte"),
        (8, 2**32 - 1, "expected rows from byte"),
        (12, 4096, "expected rows from byte"),
        (33, 1000, "in row 0, got other sizes"),
        (37, 0, "in row 0, got other sizes"),
    ],
)
def test_a_shard_that_does_not_fit(at, value, message, tmp_path):
    """Numbers of its table, and the two sizes that the first row states, from byte 33 on."""
    columns = {"a": ("bytes", None), "b": ("bytes", None)}
    write_mds(tmp_path / "mds", columns, {"shard.00000.mds": [[b"12", b"345"], [b"6", b"7"]]})
    path = tmp_path / "mds/shard.00000.mds"
    shard = bytearray(path.read_bytes())
    assert shard[33:41] == struct.pack("<II", 2, 3)
    struct.pack_into("<I", shard, at, value)
    path.write_bytes(shard)
    with pytest.raises(DatasetError, match=message):
        hr.open(tmp_path / "mds")


def test_values_that_do_not_fit_their_encoding(tmp_path):
    for encoding, value in (
        ("str", b"\xff"), ("str_int", b"x"), ("ndarray", b"\x63\x04\x01\x00"), ("ndarray:int32", b"\x04\x02\x00\x00"),
        ("pil", b"\x01"), ("pil", struct.pack("<III", 9, 9, 1) + b"L"),
    ):  # fmt: skip
        write_mds(tmp_path / "mds", {"a": (encoding, None)}, {"shard.00000.mds": [[value]]})
        with pytest.raises(DatasetError, match=r"shard.00000.mds: expected values of the encodings .* column 'a'"):
            hr.open(tmp_path / "mds")


@pytest.mark.parametrize("name", GOLDEN)
def test_damage_gives_errors_of_headrace(name, tmp_path):
    """Or rows, but no crash, and no other error."""
    files = {path: data for path, data in golden_files().items() if path.startswith(f"{name}/")}
    rng = np.random.default_rng(7)
    errors = 0
    for attempt in range(40):
        folder = tmp_path / str(attempt)
        (folder / name).mkdir(parents=True)
        victim = sorted(files)[attempt % len(files)]
        for path, data in files.items():
            (folder / path).write_bytes(damaged(data, list(files.values()), rng) if path == victim else data)
        try:
            data = hr.open(folder / name)
            for index in range(len(data)):
                data[index]
        except HeadraceError:
            errors += 1
    assert errors > 10


def test_a_shard_is_read_by_its_own_table(tmp_path):
    """Many rows in several batches of values, with texts of all lengths."""
    rows = [[struct.pack("<q", number), b"x" * (number % 50), b"%d" % number] for number in range(3000)]
    columns = {"label": ("int", 8), "text": ("str", None), "raw": ("bytes", None)}
    write_mds(tmp_path / "mds", columns, {"shard.00000.mds": rows[:2000], "shard.00001.mds": rows[2000:]})
    data = hr.open(tmp_path / "mds")
    assert data.column("label").tolist() == list(range(3000))
    assert data.column("text") == ["x" * (number % 50) for number in range(3000)]
    assert data.column("raw") == [b"%d" % number for number in range(3000)]
    assert len(mds_shard(rows[:2], [8, None, None])) == 4 * 4 + 17 + 2 * (8 + 8) + 1 + 2
