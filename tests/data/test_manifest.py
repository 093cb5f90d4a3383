"""Manifests of every format: what their columns become, and where their paths lead."""

from __future__ import annotations

import json
import math
import pickle

import numpy as np
import pytest
from loader_data import write_folder
from manifests import WRITERS, write_csv, write_text

import headrace as hr
import headrace.data as data
from headrace.data.columns import ListColumn, TextColumn, ValueColumn
from headrace.errors import UsageError

ROWS = {
    "image": ["a/0.jpg", "a/1.jpg", "b/2.png", "b/3.png"],
    "label": ["cat", "dog", "cat", "ant"],
    "width": [640, 480, 320, 7],
    "score": [0.5, -1.25, 3.0, 1e-3],
}


@pytest.fixture(params=sorted(WRITERS))
def manifest(request, tmp_path):
    """The same rows in each format."""
    path = WRITERS[request.param](tmp_path / f"list{request.param}", ROWS)
    return data.open(path, columns=list(ROWS) if request.param == ".txt" else None)


def test_columns_of_every_format(manifest):
    assert list(manifest.fields.items()) == [
        ("image", "text"), ("label", "text"), ("width", "value"), ("score", "value"),
    ]  # fmt: skip
    assert len(manifest) == 4
    for name, values in ROWS.items():
        assert [manifest[i][name] for i in range(4)] == values
        assert list(manifest.columns[name].take(np.arange(4))) == values
    assert manifest.columns["width"].values.dtype == np.int64
    assert manifest.columns["score"].values.dtype == np.float64


def test_texts_of_few_kinds_are_classes(manifest):
    assert manifest.classes == ("ant", "cat", "dog")
    assert manifest.columns["label"].labels.take(np.arange(4)).tolist() == [1, 2, 1, 0]


def test_the_first_texts_are_the_keys(manifest):
    assert list(manifest.keys) == ROWS["image"]
    assert manifest[1]["__key__"] == "a/1.jpg"


def test_a_manifest_is_pickled_and_selected(manifest):
    again = pickle.loads(pickle.dumps(manifest.select([3, 1])))
    assert [again[i]["label"] for i in range(2)] == ["ant", "dog"]
    assert list(again.keys) == ["b/3.png", "a/1.jpg"]
    assert again.fingerprint == manifest.select([3, 1]).fingerprint != manifest.fingerprint


def test_one_fingerprint_wherever_the_manifest_lies_and_another_for_other_rows(tmp_path):
    first = data.open(write_csv(tmp_path / "a.csv", ROWS))
    (tmp_path / "other").mkdir()
    same = data.open(write_csv(tmp_path / "other" / "b.csv", ROWS), root=tmp_path)
    other = data.open(write_csv(tmp_path / "c.csv", ROWS | {"width": [640, 480, 320, 8]}))
    named = data.open(write_csv(tmp_path / "d.csv", {name.upper(): values for name, values in ROWS.items()}))
    assert first.fingerprint == same.fingerprint
    assert len({first.fingerprint, other.fingerprint, named.fingerprint}) == 3


# --- loading ---


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    return write_folder(tmp_path_factory.mktemp("manifest") / "photos", 12)


def listed(photos):
    """The folder's samples as rows, in its order."""
    ds = data.open(photos)
    paths = list(ds.keys)
    return {"image": paths, "label": [ds.classes[ds[i]["label"]] for i in range(len(ds))], "number": range(len(ds))}


FIELDS = {"image": hr.Image(), "label": hr.Label(), "number": hr.Label(), "key": hr.Raw(source="image")}


def batches(ds, fields=FIELDS, **options):
    given = {"view": hr.Resize((20, 24)), "batch_size": 5, "output": "numpy", "threads": 2}
    return [
        {name: part.copy() if isinstance(part, np.ndarray) else part for name, part in batch.items()}
        for batch in hr.Loader(ds, fields, **(given | options))
    ]


@pytest.mark.parametrize("suffix", sorted(WRITERS))
def test_a_loader_takes_paths_classes_and_numbers(photos, tmp_path, suffix):
    rows = listed(photos)
    path = WRITERS[suffix](tmp_path / f"list{suffix}", rows)
    ds = data.open(path, root=photos, columns=list(rows) if suffix == ".txt" else None)
    expected = batches(data.open(photos), {"image": hr.Image(), "label": hr.Label()})
    got = batches(ds)
    assert len(got) == len(expected) == 3
    for mine, theirs in zip(got, expected, strict=True):
        np.testing.assert_array_equal(mine["image"], theirs["image"])
        np.testing.assert_array_equal(mine["label"], theirs["label"])
        assert mine["label"].dtype == np.int64
    assert np.concatenate([batch["number"] for batch in got]).tolist() == list(range(12))
    assert [key for batch in got for key in batch["key"]] == rows["image"]


def test_a_loader_opens_a_manifest_by_its_path(photos, tmp_path):
    rows = listed(photos)
    rows["image"] = [str(photos / path) for path in rows["image"]]
    path = write_csv(tmp_path / "list.csv", rows)
    (batch, *_) = hr.Loader(path, view=hr.Resize((20, 24)), batch_size=12, output="numpy")
    expected = batches(data.open(photos), None, batch_size=12)
    np.testing.assert_array_equal(batch["image"], expected[0]["image"])


def test_paths_are_relative_to_the_manifests_folder(photos, tmp_path):
    rows = listed(photos)
    inside = write_csv(photos.parent / "list.csv", rows | {"image": [f"./photos/{path}" for path in rows["image"]]})
    ds = data.open(inside)
    assert ds.read("image", 3) == data.open(photos).read("image", 3)
    assert ds.where("image", 3)[0].endswith(rows["image"][3])
    inside.unlink()


def test_a_sample_without_a_path_has_none(photos, tmp_path):
    rows = listed(photos)
    rows["second"] = ["" if i % 2 else path for i, path in enumerate(rows["image"])]
    ds = data.open(write_csv(tmp_path / "list.csv", rows), root=photos)
    assert ds.read("second", 2) == ds.read("image", 2)
    with pytest.raises(KeyError, match="has no 'second'"):
        ds.read("second", 1)
    loader = hr.Loader(ds, {"second": hr.Image()}, view=hr.Resize((8, 8)), batch_size=1, on_error="raise")
    with pytest.raises(hr.HeadraceError, match="the sample has no such file"):
        list(loader)


# --- what columns hold ---


def column(tmp_path, values, name="x"):
    """One column of a CSV file whose fields are these texts."""
    return data.open(write_csv(tmp_path / "list.csv", {"image": ["a"] * len(values), name: values})).columns[name]


@pytest.mark.parametrize(
    ("texts", "dtype"),
    [
        (["1", " 2", "-3 "], np.int64),
        (["1", "", "3"], np.float64),
        (["1", "NA", "3"], np.float64),
        (["1", "2.5", "-inf"], np.float64),
        (["1e3", ".5", "nan"], np.float64),
        (["true", "False", "TRUE"], np.bool_),
        (["true", "", "false"], np.float64),
        (["9007199254740993", "2", "3"], np.int64),
        (["1", "007", "3"], None),  # a name: its zeros would be lost
        (["9007199254740993", "", "3"], None),  # more digits than a float holds
        (["99999999999999999999", "2", "3"], None),
        (["1", "true", "3"], None),
        (["1", "2", "x"], None),
        (["0x10", "1", "1"], None),
        (["", "NA", ""], None),
    ],
    ids=str,
)
def test_a_column_is_one_of_numbers_only_if_all_of_it_is(tmp_path, texts, dtype):
    got = column(tmp_path, texts)
    if dtype is None:
        assert isinstance(got, TextColumn)
        assert list(got.strings) == texts
        return
    assert isinstance(got, ValueColumn)
    assert got.values.dtype == dtype
    words = [{"true": 1, "false": 0, "": math.nan, "na": math.nan}.get(t.strip().lower(), t) for t in texts]
    np.testing.assert_array_equal(got.values.astype(float), np.array([float(word) for word in words]))


def test_a_late_text_makes_all_of_a_column_text(tmp_path):
    """Later than what any reader looks at first."""
    count = 200_000
    got = column(tmp_path, [str(i) for i in range(count)] + ["end"])
    assert isinstance(got, TextColumn)
    assert got.take(np.array([0, count - 1, count])) == ["0", str(count - 1), "end"]


def test_an_empty_text_is_of_no_class(tmp_path):
    got = column(tmp_path, ["dog", "", "ant", "dog"])
    assert got.classes == ("ant", "dog")
    assert got.labels.values.tolist() == [1, -1, 0, 1]


def test_many_different_texts_are_no_classes(tmp_path):
    got = column(tmp_path, [f"t{i}" for i in range((1 << 16) + 1)])
    assert got.labels is None
    assert got.take(np.array([70, 65_000])) == ["t70", "t65000"]
    got = column(tmp_path, [f"t{i % 1000:04}" for i in range(150_000)])
    np.testing.assert_array_equal(got.labels.values, np.arange(150_000) % 1000)


def test_lists_and_objects_of_json(tmp_path):
    rows = [
        {"image": "a", "boxes": [1, 2.5], "tags": ["x", "y"], "size": {"w": 3}, "mixed": 1, "flag": True, "ids": [7]},
        {"image": "b", "boxes": [], "tags": [], "size": None, "mixed": "two", "flag": False, "ids": []},
        {"image": "c", "boxes": [3], "tags": ["é"], "size": [1, None], "mixed": [True], "ids": [2**53 + 1]},
    ]
    path = tmp_path / "list.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    ds = data.open(path)
    assert ds.fields == {
        "image": "text", "boxes": "list", "tags": "list", "size": "text", "mixed": "text", "flag": "value",
        "ids": "list",
    }  # fmt: skip
    assert [ds[i]["boxes"].tolist() for i in range(3)] == [[1, 2.5], [], [3]]
    assert [ds[i]["tags"] for i in range(3)] == [["x", "y"], [], ["é"]]
    assert [ds[i]["size"] for i in range(3)] == ['{"w":3}', "", "[1,null]"]
    assert [ds[i]["mixed"] for i in range(3)] == ["1", "two", "[true]"]
    assert [ds[i]["ids"].tolist() for i in range(3)] == [[7], [], [2**53 + 1]]
    assert isinstance(ds.columns["ids"], ListColumn)
    np.testing.assert_array_equal(ds.columns["flag"].values, [1.0, 0.0, math.nan])


def test_types_of_parquet(tmp_path):
    import datetime
    import decimal

    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = {
        "path": pa.array(["a", None, "c"], pa.large_string()),
        "kind": pa.array(["x", "y", "x"]).dictionary_encode(),
        "u8": pa.array([1, 2, 255], pa.uint8()),
        "null_ints": pa.array([1, None, 3], pa.int32()),
        "big_null_ints": pa.array([2**60 + 1, None, 3], pa.int64()),
        "u64": pa.array([1, 2, 2**64 - 1], pa.uint64()),
        "f32": pa.array([0.5, None, 2], pa.float32()),
        "truth": pa.array([True, False, True]),
        "price": pa.array([decimal.Decimal("1.50"), None, decimal.Decimal("2.25")]),
        "day": pa.array([datetime.date(2024, 2, 29), None, datetime.date(1970, 1, 1)]),
        "boxes": pa.array([[1.0, 2.0], None, []], pa.list_(pa.float32())),
        "fixed": pa.array([[1, 2], [3, 4], [5, 6]], pa.list_(pa.int16(), 2)),
        "texts": pa.array([["p", None], [], None], pa.list_(pa.string())),
        "deep": pa.array([[[1]], [], [[2, 3]]]),
        "struct": pa.array([{"a": 1}, None, {"a": 2}]),
        "nothing": pa.nulls(3),
    }
    pq.write_table(pa.table(columns), tmp_path / "list.parquet")
    ds = data.open(tmp_path / "list.parquet")
    samples = [ds[i] for i in range(3)]

    def held(name):
        values = [sample[name] for sample in samples]
        return [value.tolist() if isinstance(value, np.ndarray) else value for value in values]

    assert held("path") == ["a", "", "c"]
    assert ds.columns["kind"].labels.values.tolist() == [0, 1, 0]
    assert held("u8") == [1, 2, 255]
    np.testing.assert_array_equal(ds.columns["null_ints"].values, [1, math.nan, 3])
    assert held("big_null_ints") == [str(2**60 + 1), "", "3"]
    assert held("u64") == ["1", "2", str(2**64 - 1)]
    assert ds.columns["f32"].values.dtype == np.float32
    np.testing.assert_array_equal(ds.columns["f32"].values, np.array([0.5, math.nan, 2], np.float32))
    assert held("truth") == [True, False, True]
    np.testing.assert_array_equal(ds.columns["price"].values, [1.5, math.nan, 2.25])
    assert held("day") == ["2024-02-29", "", "1970-01-01"]
    assert held("boxes") == [[1, 2], [], []]
    assert ds.columns["boxes"].items.dtype == np.float32
    assert held("fixed") == [[1, 2], [3, 4], [5, 6]]
    assert held("texts") == [["p", ""], [], []]
    assert held("deep") == ["[[1]]", "[]", "[[2, 3]]"]
    assert held("struct") == ['{"a": 1}', "", '{"a": 2}']
    assert held("nothing") == ["", "", ""]


# --- names ---


def test_columns_names_a_file_without_a_header(tmp_path):
    bare = data.open(write_csv(tmp_path / "bare.csv", ROWS, header=False), columns=list(ROWS))
    headed = data.open(write_csv(tmp_path / "headed.csv", ROWS), columns=list(ROWS))
    assert bare.fingerprint == headed.fingerprint == data.open(tmp_path / "headed.csv").fingerprint


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl", ".parquet"])
def test_columns_picks_from_a_file_with_names(tmp_path, suffix):
    path = WRITERS[suffix](tmp_path / f"list{suffix}", ROWS)
    ds = data.open(path, columns=["width", "label"])
    assert list(ds.columns) == ["width", "label"]
    assert list(ds.keys) == ROWS["label"]


def test_a_text_of_paths_has_one_column(tmp_path):
    path = write_text(tmp_path / "list.txt", {"": ROWS["image"]})
    assert list(data.open(path).columns) == ["image"]
    spaced = write_text(tmp_path / "spaced.txt", {"": ["my photos/a b.jpg", "  c.jpg"]})
    assert list(data.open(spaced, columns=["image"]).keys) == ["my photos/a b.jpg", "c.jpg"]


def test_keys(tmp_path):
    assert list(data.open(write_csv(tmp_path / "a.csv", ROWS | {"key": list("wxyz")})).keys) == list("wxyz")
    assert list(data.open(write_csv(tmp_path / "b.csv", ROWS | {"__key__": [9, 8, 7, 6]})).keys) == ["9", "8", "7", "6"]
    numbers = data.open(write_csv(tmp_path / "c.csv", {"width": ROWS["width"]}))
    assert list(numbers.keys) == ["0", "1", "2", "3"]
    assert list(numbers.select([2, 0]).keys) == ["2", "0"]
    assert numbers.key(3) == "3"


def test_a_column_without_a_name_goes_by_its_number(tmp_path):
    """As the index does that pandas writes."""
    path = tmp_path / "list.csv"
    path.write_text(",image\n0,a.jpg\n1,b.jpg\n")
    assert list(data.open(path).columns) == ["column 1", "image"]


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ("image", "columns: expected a list of names, such as ['image', 'label'], got 'image'"),
        ([], "columns: expected names, got []"),
        (["a", "a"], "columns: expected names that differ, got ['a', 'a']"),
        ([1], "columns: expected a list of names, such as ['image', 'label'], got [1]"),
    ],
    ids=str,
)
def test_columns_of_nonsense(tmp_path, columns, text):
    with pytest.raises(UsageError) as caught:
        data.open(write_csv(tmp_path / "list.csv", ROWS), columns=columns)
    assert str(caught.value) == text


def test_arguments_that_mean_nothing_are_refused(tmp_path, photos):
    manifest = write_csv(tmp_path / "list.csv", ROWS)
    with pytest.raises(UsageError, match=r"classes: expected a list of .*, got True: list\.csv is a manifest"):
        data.open(manifest, classes=True)
    with pytest.raises(UsageError, match="root: expected none, got '/x': photos is a folder"):
        data.open(photos, root="/x")
    (tmp_path / "a.tar").write_bytes(b"")
    with pytest.raises(UsageError, match=r"root: expected none, got '/x': a\.tar is a \.tar file"):
        data.open(tmp_path / "a.tar", root="/x")
    with pytest.raises(UsageError, match="expected one manifest, got 2 paths"):
        data.open([manifest, manifest])


def test_what_a_dataset_says_of_itself(tmp_path):
    assert repr(data.open(write_csv(tmp_path / "list.csv", ROWS))) == (
        "Dataset: 4 samples in 3 classes, columns image (text), label (text: 3 classes), width (value), score (value), "
        "manifest list.csv"
    )
