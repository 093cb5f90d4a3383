"""Images inside parquet and Arrow files, and several files of rows as one dataset, beside pyarrow and pandas."""

from __future__ import annotations

import io
import json
import os
import pathlib
import pickle
import shutil

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from loader_data import COUNT, encoded, label_of
from manifests import write_csv, write_json_lines, write_parquet, write_tsv
from PIL import Image

import headrace as hr
from headrace import data
from headrace.errors import (
    DatasetError,
    EmptyDatasetError,
    NotFoundError,
    OutsideRootError,
    ReadError,
    UsageError,
)

STRUCT = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
FILES = [encoded(number)[1] for number in range(COUNT)]
NAMES = ["ant", "bee", "cat", "dog"]


def hub_table(start: int = 0, stop: int = COUNT) -> pa.Table:
    """Rows as the Hub has them: an image of bytes and path, a label whose names are in the metadata, and a caption."""
    images = [{"bytes": FILES[number], "path": f"{number}.jpg"} for number in range(start, stop)]
    features = {"image": {"_type": "Image"}, "label": {"_type": "ClassLabel", "names": NAMES}}
    table = pa.table({
        "caption": [f"number {number}" for number in range(start, stop)],
        "image": pa.array(images, STRUCT),
        "label": [label_of(number) for number in range(start, stop)],
    })  # fmt: skip
    return table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})


def write_arrow(path: pathlib.Path, table: pa.Table, *, stream: bool = False, **options) -> pathlib.Path:
    new = pa.ipc.new_stream if stream else pa.ipc.new_file
    with new(path, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as sink:
        sink.write_table(table, max_chunksize=7)
    return path


def write_parquet_table(path: pathlib.Path, table: pa.Table, **options) -> pathlib.Path:
    pq.write_table(table, path, **({"row_group_size": 7} | options))
    return path


@pytest.fixture
def cache(tmp_path, monkeypatch) -> pathlib.Path:
    monkeypatch.setenv("HEADRACE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


FORMS = {
    "parquet, snappy": lambda path, table: write_parquet_table(path / "a.parquet", table),
    "parquet, plain": lambda path, table: write_parquet_table(
        path / "a.parquet", table, compression="none", use_dictionary=False
    ),
    "parquet, one row group, zstd": lambda path, table: write_parquet_table(
        path / "a.parquet", table, compression="zstd", row_group_size=1000
    ),
    "arrow file": lambda path, table: write_arrow(path / "a.arrow", table),
    "arrow stream": lambda path, table: write_arrow(path / "a.arrow", table, stream=True),
    "arrow file, lz4": lambda path, table: write_arrow(path / "a.feather", table, compression="lz4"),
    "arrow stream, zstd": lambda path, table: write_arrow(path / "a.arrow", table, stream=True, compression="zstd"),
    "by its first bytes": lambda path, table: write_arrow(path / "rows", table),
}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("kept", [False, True], ids=["in memory", "in files"])
@pytest.mark.parametrize("form", FORMS)
def test_a_row_is_a_sample(tmp_path, form, kept):
    path = FORMS[form](tmp_path, hub_table())
    options = {"cache": tmp_path / "cache"} if kept else {}
    for _ in range(1 + kept):
        ds = data.open(path, **options)
        assert (len(ds), ds.classes, list(ds.columns)) == (COUNT, tuple(NAMES), ["caption", "image", "label"])
        assert ds.fields == {"caption": "text", "image": "bytes", "label": "value"}
        for number in (0, 6, 7, 20, COUNT - 1):
            assert ds[number] == {
                "__key__": str(number), "caption": f"number {number}", "image": FILES[number],
                "label": label_of(number),
            }  # fmt: skip
        assert [ds.read("image", number) for number in range(COUNT)] == FILES


@pytest.mark.one_in(2)
@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_the_same_rows_is_one_dataset(tmp_path, form):
    fingerprint = data.open(write_parquet_table(tmp_path / "first.parquet", hub_table())).fingerprint
    assert data.open(FORMS[form](tmp_path, hub_table())).fingerprint == fingerprint
    table = hub_table()
    other = table.set_column(1, "image", table.column("image").take([1, 0, *range(2, COUNT)]))
    (tmp_path / "other").mkdir()
    assert data.open(FORMS[form](tmp_path / "other", other)).fingerprint != fingerprint


@pytest.mark.parametrize("type", [pa.binary(), pa.large_binary(), pa.binary_view()], ids=str)
@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_plain_columns_of_bytes(tmp_path, type, suffix):
    table = pa.table({"image": pa.array([FILES[0], None, FILES[2]], pa.binary()).cast(type), "n": [1, 2, 3]})
    write = write_arrow if suffix == "arrow" else write_parquet_table
    ds = data.open(write(tmp_path / f"a.{suffix}", table))
    assert [ds[i].get("image") for i in range(3)] == [FILES[0], None, FILES[2]]


def test_rows_of_images_alone(tmp_path):
    table = hub_table().select(["image"])
    ds = data.open([write_parquet_table(tmp_path / f"{name}.parquet", table) for name in "ab"])
    assert [ds.read("image", number) for number in range(2 * COUNT)] == FILES * 2
    assert data.open(write_arrow(tmp_path / "a.arrow", table)).read("image", 3) == FILES[3]


@pytest.mark.parametrize("form", ["parquet, snappy", "arrow file", "arrow file, lz4"])
def test_a_loader_decodes_as_pillow_does(tmp_path, form):
    path = FORMS[form](tmp_path, hub_table())
    (batch,) = hr.Loader(path, {"image": hr.Image(), "label": hr.Label()}, view=hr.Resize((20, 24)),
                         batch_size=COUNT, output="numpy")  # fmt: skip
    expected = hr.read_images(FILES, view=hr.Resize((20, 24)), output="numpy")
    assert (batch["image"].transpose(0, 2, 3, 1) == expected).all()
    assert batch["label"].tolist() == [label_of(number) for number in range(COUNT)]
    raw = data.open(path).read("image", 5)
    assert Image.open(io.BytesIO(raw)).tobytes() == Image.open(io.BytesIO(FILES[5])).tobytes()


# --- paths instead of bytes ---


@pytest.fixture
def loose(tmp_path) -> pathlib.Path:
    (tmp_path / "photos").mkdir()
    for number, content in enumerate(FILES):
        (tmp_path / "photos" / f"{number}.jpg").write_bytes(content)
    return tmp_path / "photos"


def struct_table(images: list[dict[str, object] | None]) -> pa.Table:
    return pa.table({"image": pa.array(images, STRUCT), "n": list(range(len(images)))})


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_images_that_are_paths_are_read_below_the_root(tmp_path, loose, suffix):
    table = struct_table([{"bytes": None, "path": f"{number}.jpg"} for number in range(5)])
    path = (write_arrow if suffix == "arrow" else write_parquet_table)(tmp_path / f"a.{suffix}", table)
    ds = data.open(path, root=loose)
    assert [ds.read("image", number) for number in range(5)] == FILES[:5]
    (batch,) = hr.Loader(ds, {"image": hr.Image()}, view=hr.Resize((8, 8)), batch_size=5, output="numpy")
    assert len(batch["image"]) == 5
    with pytest.raises(NotFoundError, match=f"a.{suffix}: expected the files that its column 'image' names, got none"):
        hr.Loader(path, {"image": hr.Image()}, batch_size=5)


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_some_bytes_and_some_paths(tmp_path, loose, suffix):
    """A path beside bytes is where they came from, and leads nowhere."""
    images = [
        {"bytes": FILES[0], "path": "/nowhere/0.jpg"}, {"bytes": None, "path": "1.jpg"}, None,
        {"bytes": None, "path": None}, {"bytes": None, "path": "gone.jpg"}, {"bytes": FILES[5], "path": None},
        {"bytes": None, "path": "../a"},
    ]  # fmt: skip
    path = (write_arrow if suffix == "arrow" else write_parquet_table)(tmp_path / f"a.{suffix}", struct_table(images))
    ds = data.open(path, root=loose)
    got = [ds.read("image", 0), ds.read("image", 1), ds.read("image", 5)]
    assert got == [FILES[0], FILES[1], FILES[5]]
    for missing in (2, 3):
        with pytest.raises(KeyError, match=f"sample '{missing}' has no 'image'"):
            ds.read("image", missing)
    with pytest.raises(ReadError, match="no file of that name is below"):
        ds.read("image", 4)
    with pytest.raises(OutsideRootError, match=r"'\.\./a' leads out of"):
        ds.read("image", 6)
    good = ds.select([0, 1, 5, 1])
    (batch,) = hr.Loader(good, {"image": hr.Image()}, view=hr.Resize((8, 8)), batch_size=4, output="numpy")
    assert (batch["image"][1] == batch["image"][3]).all()
    assert not (batch["image"][0] == batch["image"][1]).all()
    tar = tmp_path / "x.tar"
    from loader_data import write_tar

    with pytest.raises(UsageError, match="root: expected a folder, got archives: some values of 'image' are bytes"):
        data.open(path, root=write_tar(tar))


def test_a_null_is_a_bad_sample_and_is_replaced(tmp_path):
    images = [None if number == 3 else {"bytes": FILES[number], "path": None} for number in range(8)]
    path = write_parquet_table(tmp_path / "a.parquet", struct_table(images))
    loader = hr.Loader(path, {"image": hr.Image(), "n": hr.Raw()}, view=hr.Resize((8, 8)), batch_size=8, max_bad=0.5,
                       quarantine=tmp_path / "bad.jsonl", output="numpy")  # fmt: skip
    (batch,) = loader
    assert 3 not in batch["n"].tolist()
    assert [json.loads(line)["key"] for line in (tmp_path / "bad.jsonl").read_text().splitlines()] == ["3"]


# --- several files ---


@pytest.fixture
def shards(tmp_path) -> pathlib.Path:
    (tmp_path / "data").mkdir()
    for shard, (start, stop) in enumerate([(0, 13), (13, 14), (14, COUNT)]):
        write_parquet_table(tmp_path / f"data/train-{shard:05}-of-00003.parquet", hub_table(start, stop))
    return tmp_path / "data"


def test_a_pattern_a_list_a_folder_and_braces_are_one_dataset(shards):
    names = sorted(str(path) for path in shards.iterdir())
    whole = pd.concat([pd.read_parquet(name) for name in names], ignore_index=True)
    for where in (shards, shards / "*.parquet", f"{shards}/train-{{00000..00002}}-of-00003.parquet", names):
        ds = data.open(where)
        assert len(ds) == len(whole) == COUNT
        assert [ds.read("image", number) for number in range(COUNT)] == [image["bytes"] for image in whole["image"]]
        assert [ds[number]["label"] for number in range(COUNT)] == whole["label"].tolist()
        assert ds.key(14) == "14"
    assert data.open(list(reversed(names))).fingerprint != data.open(names).fingerprint


@pytest.mark.parametrize("write", [write_csv, write_tsv, write_json_lines, write_parquet])
def test_lists_of_paths_in_several_files(tmp_path, loose, write):
    """As one list of all rows: a column is one of numbers only where all files have numbers."""
    suffix = {write_csv: "csv", write_tsv: "tsv", write_json_lines: "jsonl", write_parquet: "parquet"}[write]
    typed = write is write_parquet
    parts = [
        {"image": ["0.jpg", "1.jpg"], "label": ["cat", "dog"], "n": [1, 2]},
        {"image": ["2.jpg"], "label": ["ant"], "n": [7] if typed else [2.5]},
    ]
    paths = [write(tmp_path / f"{name}.{suffix}", part) for name, part in zip("ab", parts, strict=True)]
    ds = data.open(paths, root=loose)
    assert [ds[number]["n"] for number in range(3)] == [1, 2, 7 if typed else 2.5]
    assert [ds.classes[label] for label in ds.columns["label"].labels.take(np.arange(3))] == ["cat", "dog", "ant"]
    assert ds.key(2) == "2.jpg"
    assert [ds.read("image", number) for number in range(3)] == FILES[:3]
    (loose / "2.jpg").unlink()
    where = "row 0" if typed else "line 1" if suffix == "jsonl" else "line 2"
    with pytest.raises(ReadError, match=rf"{where} of b\.{suffix} names '2\.jpg'"):
        ds.read("image", 2)


def test_a_large_set_of_files_is_indexed_once(tmp_path, monkeypatch):
    from headrace.data.manifest import column_builders

    for name in "ab":
        rows = {"image": [f"{name}{number:0200}.jpg" for number in range(4000)], "n": range(4000)}
        write_csv(tmp_path / f"{name}.csv", rows)
    first = data.open([tmp_path / "a.csv", tmp_path / "b.csv"])
    monkeypatch.setattr(column_builders, "build_columns", None)
    again = data.open(tmp_path / "*.csv")
    assert (len(again), again.fingerprint) == (8000, first.fingerprint)
    assert again[7999]["n"] == 3999
    assert pickle.loads(pickle.dumps(again)).fingerprint == first.fingerprint
    monkeypatch.undo()
    write_csv(tmp_path / "b.csv", {"image": [f"{number:0300}" for number in range(4000)], "n": range(4000)})
    assert data.open(tmp_path / "*.csv").fingerprint != first.fingerprint


def test_several_splits_in_a_folder_are_named(shards):
    shutil.copy(shards / "train-00001-of-00003.parquet", shards / "test-00000-of-00001.parquet")
    with pytest.raises(UsageError, match=r"expected the files of one split, got those of test, train\. Open one of "):
        data.open(shards)
    assert len(data.open(shards / "test*.parquet")) == 1


@pytest.mark.parametrize("beside", ["README.md", ".gitattributes", "a.parquet.headrace"])
def test_what_may_lie_beside_files_of_rows(shards, beside):
    (shards / beside).write_text("x")
    assert len(data.open(shards)) == COUNT


def test_a_folder_of_images_stays_one(tmp_path, loose):
    write_csv(loose / "metadata.csv", {"file_name": ["0.jpg"]})
    assert data.open(loose).fields == {"image": "bytes"}


def test_relative_paths_of_lists_in_several_folders(tmp_path, loose):
    paths = []
    for name in "ab":
        (tmp_path / name).mkdir()
        paths.append(write_csv(tmp_path / name / "list.csv", {"image": ["0.jpg"]}))
    ds = data.open(paths)
    with pytest.raises(UsageError, match=r"root: expected the folder that paths such as '0\.jpg' begin in, got none"):
        ds.read("image", 0)
    assert data.open(paths, root=loose).read("image", 1) == FILES[0]
    for path in paths:
        write_csv(path, {"image": [str(loose / "4.jpg")]})
    assert data.open(paths).read("image", 1) == FILES[4]


# --- what is wrong ---


def test_files_of_other_columns(tmp_path):
    one = write_parquet_table(tmp_path / "a.parquet", pa.table({"image": ["a.jpg"], "label": [1]}))

    def refused(expected: str, **columns) -> None:
        other = write_parquet_table(tmp_path / "b.parquet", pa.table(columns))
        with pytest.raises(DatasetError, match=expected):
            data.open([one, other])

    refused(r"b\.parquet: expected the columns of a\.parquet, got none called 'label'", image=["b.jpg"])
    refused(r"b\.parquet: expected the columns of a\.parquet, got another, 'n'", image=["b.jpg"], label=[1], n=[2])
    refused(r"b\.parquet: expected int64 in its column 'label', as in a\.parquet, got string", image=["b"], label=["x"])
    refused(r"b\.parquet: expected string in its column 'image', as in a\.parquet, got binary", image=[b"x"], label=[1])
    other = write_parquet_table(tmp_path / "b.parquet", pa.table({"image": ["b.jpg"], "n": [2]}))
    assert len(data.open([one, other], columns=["image"])) == 2
    narrow = write_parquet_table(tmp_path / "c.parquet", pa.table({"label": pa.array([2], pa.int8()), "image": ["c"]}))
    assert [data.open([one, narrow])[i]["label"] for i in range(2)] == [1, 2]
    texts = [write_csv(tmp_path / f"{name}.csv", {"image": ["a"], name: [1]}) for name in "ab"]
    with pytest.raises(DatasetError, match=r"b\.csv line 1: expected the columns of a\.csv, got none called 'a'"):
        data.open(texts)
    with pytest.raises(UsageError, match="expected files of one "):
        data.open([one, texts[0]])
    with pytest.raises(EmptyDatasetError, match=r"d\.parquet: expected a row a sample, got none"):
        data.open([one, write_parquet_table(tmp_path / "d.parquet", pa.table({"image": ["a"], "label": [1]}).slice(1))])


@pytest.mark.parametrize("form", ["parquet, snappy", "arrow file", "arrow stream", "arrow file, lz4"])
def test_files_that_are_cut_short(tmp_path, form):
    path = FORMS[form](tmp_path, hub_table())
    whole = path.read_bytes()
    for share in (0.1, 0.5, 0.99):
        path.write_bytes(whole[: int(len(whole) * share)])
        with pytest.raises(DatasetError, match=f"{path.name}: expected a(n Arrow| parquet)? file"):
            data.open(path)


def test_a_damaged_row_group_is_named(tmp_path):
    path = write_parquet_table(tmp_path / "a.parquet", hub_table())
    place = pq.ParquetFile(path).metadata.row_group(2).column(1).data_page_offset
    content = bytearray(path.read_bytes())
    content[place : place + 40] = b"\xff" * 40
    path.write_bytes(content)
    with pytest.raises(DatasetError, match=r"a\.parquet: expected a parquet file, got one that cannot be read"):
        data.open(path)


def test_an_image_field_over_a_column_of_another_type(tmp_path):
    path = write_parquet_table(tmp_path / "a.parquet", pa.table({"image": [[1, 2]], "label": [1]}))
    with pytest.raises(UsageError, match=r"'image': expected a column of (bytes|images)"):
        hr.Loader(path, {"image": hr.Image()}, batch_size=1)


# --- values that are decoded once ---


def test_decoded_values_are_cached_and_taken_from_there(tmp_path, monkeypatch, cache):
    import headrace.data.manifest.decoded_values as spilled

    path = write_parquet_table(tmp_path / "a.parquet", hub_table())
    monkeypatch.setattr(spilled, "_KEPT_FROM_BYTES", 1)
    expected = data.open(path).fingerprint
    (values,) = cache.glob("*.values.headrace")
    stem = values.name.removesuffix(".values.headrace").rpartition(".")[0]
    (cache / f"{stem}.values.headrace.partial").write_bytes(b"of a build that was killed")
    assert {each.name for each in tmp_path.glob("a.parquet*")} == {"a.parquet"}, "nothing beside the rows"
    decode = spilled._decode
    monkeypatch.setattr(spilled, "_decode", None)
    ds = data.open(path)
    assert (ds.fingerprint, ds.read("image", 9)) == (expected, FILES[9])
    assert ds.where("image", 9)[0] == str(values)
    copy = pickle.loads(pickle.dumps(ds))
    assert (copy.fingerprint, copy.read("image", 9)) == (expected, FILES[9])
    monkeypatch.setattr(spilled, "_decode", decode)
    for damage in (pathlib.Path.unlink, lambda each: each.write_bytes(each.read_bytes()[:-1])):
        damage(pathlib.Path(data.open(path).where("image", 9)[0]))
        with pytest.warns(UserWarning, match=r"a\.parquet.*the values are gone.*rebuilt"):
            assert data.open(path).read("image", 9) == FILES[9]
    assert not list(cache.glob("*.partial"))
    write_parquet_table(path, hub_table(1, COUNT))
    assert data.open(path).read("image", 9) == FILES[10]
    with pytest.raises(ReadError):
        ds.read("image", 9)  # its values were removed: those of another build are never read in their place


def test_values_that_change_in_place_are_decoded_anew(tmp_path, cache):
    """A value of the same length between the places that a file of this size is sampled at."""
    values = [bytes([65 + number % 26]) * 9000 for number in range(400)]
    path = tmp_path / "a.parquet"

    def read() -> list[bytes]:
        plain = {"compression": "none", "use_dictionary": False, "write_statistics": False, "row_group_size": 400}
        write_parquet_table(path, pa.table({"image": values}), **plain)
        return data.open(path).column("image")

    assert read() == values
    assert len(list(cache.glob("*.values.headrace"))) == 1
    values[90] = bytes(9000)
    assert read() == values


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_files_whose_labels_stand_for_other_classes(tmp_path, suffix):
    def write(name: str, classes: list[str] | None) -> pathlib.Path:
        table = pa.table({"image": [b"x", b"y"], "label": [0, 1]})
        if classes is not None:
            features = {"label": {"_type": "ClassLabel", "names": classes}}
            table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
        return (write_parquet_table if suffix == "parquet" else write_arrow)(tmp_path / f"{name}.{suffix}", table)

    one, other, bare = write("a", ["cat", "dog"]), write("b", ["dog", "cat"]), write("c", None)
    expected = rf"b\.{suffix}: expected the classes of a\.{suffix} in its column 'label' \('cat', 'dog'\), got 'dog'"
    with pytest.raises(DatasetError, match=expected):
        data.open([one, other])
    assert data.open([one, other], columns=["image"]).column("image") == [b"x", b"y"] * 2
    assert data.open([bare, one]).classes == ("cat", "dog")


def test_no_room_for_decoded_values(tmp_path, monkeypatch, cache):
    import headrace.data.manifest.decoded_values as spilled

    path = write_parquet_table(tmp_path / "a.parquet", hub_table())
    monkeypatch.setattr(spilled, "_KEPT_FROM_BYTES", 1)
    full = os.statvfs_result((4096, 4096, 100, 0, 0, 100, 100, 100, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda _: full)
    with pytest.raises(DatasetError, match=r"its values take [\d,]+ bytes, and there is room for 0\. Name one that is"):
        data.open(path, cache=tmp_path / "given")
    with pytest.warns(UserWarning, match=r"a\.parquet cannot be cached, .*there is room for 0"):
        ds = data.open(path)
    assert ds.read("image", 3) == FILES[3]
    assert not list(tmp_path.rglob("*.values.headrace*"))


def test_values_that_others_put_there_lie_within_their_file(tmp_path, monkeypatch, cache):
    """Whoever may write into the cache folder may write an index, too."""
    import headrace.data.manifest.decoded_values as spilled
    from headrace.data.storage import safetensors

    path = write_parquet_table(tmp_path / "a.parquet", hub_table())
    monkeypatch.setattr(spilled, "_KEPT_FROM_BYTES", 1)
    data.open(path)
    (index,) = (each for each in cache.glob("a.parquet.*.headrace") if ".values." not in each.name)
    arrays, metadata = safetensors.read_arrays(str(index))
    for name, value in (("offset", 1 << 40), ("length", 1 << 40), ("offset", -5), ("length", -7)):
        odd = {key: array.copy() for key, array in arrays.items()}
        odd[name][4] = value
        with index.open("wb") as file:
            safetensors.write_arrays(file, odd, metadata)
        with pytest.warns(UserWarning, match="the values are gone"):
            assert data.open(path).read("image", 4) == FILES[4]
