"""Tables of pandas, polars, pyarrow and Hugging Face's datasets, beside these libraries themselves."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from loader_data import COUNT, encoded, label_of

import headrace as hr
from headrace import data
from headrace.errors import DatasetError, EmptyDatasetError, UsageError

datasets = pytest.importorskip("datasets")
datasets.disable_progress_bars()

FILES = [encoded(number)[1] for number in range(COUNT)]
NAMES = ["ant", "bee", "cat", "dog"]
ROWS = [
    {"image": {"bytes": data, "path": f"{number}.jpg"}, "label": label_of(number), "caption": f"number {number}"}
    for number, data in enumerate(FILES)
]
FEATURES = datasets.Features(
    {"image": datasets.Image(), "label": datasets.ClassLabel(names=NAMES), "caption": datasets.Value("string")}
)


@pytest.fixture(scope="module")
def mapped(tmp_path_factory) -> datasets.Dataset:
    """Memory-mapped from two files, as `load_dataset` leaves them."""
    folder = tmp_path_factory.mktemp("mapped") / "set"
    datasets.Dataset.from_list(ROWS, features=FEATURES).save_to_disk(folder, num_shards=2)
    return datasets.load_from_disk(folder)


def polars_frame():
    return pytest.importorskip("polars").DataFrame(ROWS)


TABLES = {
    "pandas": lambda _: pd.DataFrame(ROWS),
    "polars": lambda _: polars_frame(),
    "pyarrow": lambda _: pa.Table.from_pylist(ROWS),
    "pyarrow, many chunks": lambda _: pa.concat_tables(pa.Table.from_pylist([row]) for row in ROWS),
    "a batch": lambda _: pa.RecordBatch.from_pylist(ROWS),
    "datasets, mapped": lambda mapped: mapped,
    "datasets, in memory": lambda _: datasets.Dataset.from_list(ROWS, features=FEATURES),
    "datasets, joined": lambda mapped: datasets.concatenate_datasets(
        [mapped.select(range(9)), datasets.Dataset.from_list(ROWS[9:], features=FEATURES)]
    ),
    "one split": lambda mapped: datasets.DatasetDict(train=mapped),
}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("kind", TABLES)
def test_a_row_is_a_sample(mapped, kind):
    table = TABLES[kind](mapped)
    ds = data.open(table)
    assert (len(ds), list(ds.columns)) == (COUNT, ["image", "label", "caption"])
    for number in (0, 8, 9, COUNT - 1):
        assert ds[number] == {
            "__key__": str(number), "image": FILES[number], "label": label_of(number), "caption": f"number {number}",
        }  # fmt: skip
    assert [ds.read("image", number) for number in range(COUNT)] == FILES
    assert ds.classes == (tuple(NAMES) if "datasets" in kind or kind == "one split" else None)
    assert ds.fingerprint == data.open(pa.Table.from_pylist(ROWS)).fingerprint
    assert pickle.loads(pickle.dumps(ds)).read("image", 11) == FILES[11]


def test_the_arrow_data_of_a_dataset_is_used_in_place(mapped):
    """Its bytes are read out of the very files that datasets has mapped, and none of them is copied."""
    ds = data.open(mapped)
    files = {os.path.realpath(each["filename"]) for each in mapped.cache_files}
    assert {os.path.realpath(ds.where("image", number)[0]) for number in range(COUNT)} == files
    path, offset = ds.where("image", 30)
    with open(path, "rb") as file:
        file.seek(offset)
        assert file.read(len(FILES[30])) == FILES[30]
    assert all(file.size == 0 for file in ds.files("image").in_memory.values())


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    "choose",
    [
        lambda ds: ds.shuffle(seed=3),
        lambda ds: ds.select([5, 5, 39, 0]),
        lambda ds: ds.select(range(10, 30)),
        lambda ds: ds.filter(lambda label: label == 2, input_columns="label"),
        lambda ds: ds.train_test_split(0.3, seed=1)["test"],
        lambda ds: ds.shard(3, 1),
        lambda ds: ds.rename_column("caption", "text").remove_columns("label"),
    ],
    ids=["shuffle", "select", "range", "filter", "split", "shard", "rename"],
)
def test_what_was_chosen_of_a_dataset_comes_in_its_order(mapped, choose):
    chosen = choose(mapped).cast_column("image", datasets.Image(decode=False))
    ds = data.open(chosen)
    assert (len(ds), list(ds.columns)) == (len(chosen), chosen.column_names)
    for number in range(len(chosen)):
        row, got = chosen[number], ds[number]
        assert got["image"] == row["image"]["bytes"]
        assert {name: got[name] for name in row if name != "image"} == {n: row[n] for n in row if n != "image"}
    assert data.open(choose(mapped)).fingerprint == ds.fingerprint
    if "label" in ds.columns:
        rows = [ROWS[FILES.index(ds.read("image", number))] for number in range(len(ds))]
        assert data.open(pa.Table.from_pylist(rows)).fingerprint == ds.fingerprint


def test_a_loader_over_a_dataset_gives_what_its_folder_gives(mapped):
    def batches(where):
        loader = hr.Loader(where, {"image": hr.Image(), "label": hr.Label()}, view=hr.RandomResizedCrop(16, flip=0.5),
                           batch_size=8, shuffle=True, seed=4, output="numpy")  # fmt: skip
        return [{name: value.copy() for name, value in batch.items()} for batch in loader]

    folder = os.path.dirname(mapped.cache_files[0]["filename"])
    for got, expected in zip(batches(mapped), batches(folder), strict=True):
        assert all((got[name] == expected[name]).all() for name in expected)


def test_images_of_a_dataset_that_are_paths(tmp_path):
    """As `load_dataset("imagefolder")` has them."""
    for number in range(4):
        (tmp_path / f"{number}.png").write_bytes(FILES[number])
    paths = [str(tmp_path / f"{number}.png") for number in range(4)]
    ds = datasets.Dataset.from_dict({"image": paths}).cast_column("image", datasets.Image())
    got = data.open(ds)
    assert [got.read("image", number) for number in range(4)] == FILES[:4]
    mixed = datasets.concatenate_datasets([ds, datasets.Dataset.from_list(
        [{"image": {"bytes": FILES[7], "path": None}}], features=ds.features)])  # fmt: skip
    got = data.open(mixed)
    assert [got.read("image", number) for number in range(5)] == [*FILES[:4], FILES[7]]


def test_paths_in_a_frame_lead_below_the_root(tmp_path):
    (tmp_path / "a.jpg").write_bytes(FILES[0])
    frame = pd.DataFrame({"image": ["a.jpg"], "label": ["cat"], "weight": [np.nan]})
    ds = data.open(frame, root=tmp_path)
    assert (ds.read("image", 0), ds.classes, ds.key(0)) == (FILES[0], ("cat",), "a.jpg")
    assert list(data.open(frame, columns=["label"]).columns) == ["label"]


def test_a_frame_of_categories_and_moments():
    frame = pd.DataFrame({"label": pd.Categorical(["b", "a", "b"]), "when": pd.to_datetime(["2020-01-01"] * 3)})
    ds = data.open(frame)
    assert (ds.classes, ds[1]["label"]) == (("a", "b"), "a")
    assert ds[0]["when"].startswith("2020-01-01")


def test_arguments_that_mean_nothing_for_a_table(tmp_path):
    frame = pd.DataFrame({"label": [1]})
    with pytest.raises(UsageError, match=r"stage: expected none, got .*: a pandas\.DataFrame is a table in memory"):
        hr.open(frame, stage=tmp_path)
    with pytest.raises(UsageError, match="cache: expected none"):
        hr.open(frame, cache=tmp_path)
    with pytest.raises(UsageError, match=r"columns: .* of a pandas\.DataFrame .'label'., got 'x'"):
        hr.open(frame, columns=["x"])


def test_classes_keep_some_of_a_dataset(mapped):
    ds = hr.open(mapped, classes=["dog", "bee"])
    assert (len(ds), ds.classes) == (20, ("dog", "bee"))


def test_several_splits_are_named(mapped):
    splits = datasets.DatasetDict(train=mapped, test=mapped.select([1]))
    with pytest.raises(UsageError, match=r"got a datasets\.DatasetDict of train, test\. Open one of them: hr\.op"):
        data.open(splits)
    assert len(data.open(splits["test"])) == 1


def test_a_saved_dict_of_one_split_is_opened(mapped, tmp_path):
    datasets.DatasetDict(train=mapped).save_to_disk(tmp_path / "one")
    ds = data.open(tmp_path / "one")
    assert (len(ds), ds.classes, ds.read("image", 3)) == (COUNT, tuple(NAMES), FILES[3])


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda ds: ds.with_transform(lambda rows: rows), "without a transform, got one with set_transform.* as map="),
        (lambda ds: ds.to_iterable_dataset(), "expected a table, got a datasets.IterableDataset. It can only be read"),
        (lambda ds: pd.Series([1], name="n"), r"got a pandas.Series. Make a table of it: hr\.open\(series\.to_frame"),
        (lambda ds: polars_frame().lazy(), r"got a polars.LazyFrame. Collect it: hr\.open\(frame\.collect"),
        (lambda ds: pd.DataFrame({3: [1]}), r"expected names of columns that are texts in a pandas.DataFrame, got 3"),
        (lambda ds: pa.table([pa.array([1])] * 2, ["n", "n"]), "expected column names that differ, got 'n' twice"),
    ],
    ids=["transform", "iterable", "series", "lazy", "names", "twice"],
)
def test_what_is_no_table(mapped, make, text):
    with pytest.raises((UsageError, DatasetError), match=text):
        data.open(make(mapped))


def test_a_frame_that_arrow_has_no_type_for():
    with pytest.raises(DatasetError, match=r"got one that Arrow has no type for: .*odd"):
        data.open(pd.DataFrame({"odd": [1, "a", object()]}))
    with pytest.raises(EmptyDatasetError, match=r"expected rows, got a pandas\.DataFrame of none"):
        data.open(pd.DataFrame({"image": []}))


def test_a_file_that_was_replaced_under_a_mapped_table(mapped, tmp_path):
    """What is mapped is no longer what the name leads to, so it is copied out of memory."""
    mapped.save_to_disk(tmp_path / "set", num_shards=1)
    table = datasets.load_from_disk(tmp_path / "set")
    (name,) = (each["filename"] for each in table.cache_files)
    os.unlink(name)
    with open(name, "wb") as file:
        file.write(b"x" * 100)
    assert [data.open(table).read("image", number) for number in (0, 39)] == [FILES[0], FILES[39]]


@pytest.mark.long
def test_none_of_the_libraries_is_imported_for_a_table():
    """A path or a list is no reason to import them."""
    code = """
import sys
import headrace.data.sources.arrow_tables as tables
for where in ("x", ["a"], {"a": 1}, object()):
    assert tables.table_kind(where) is None
assert not {"pandas", "polars", "datasets", "pyarrow"} & set(sys.modules), sys.modules
import pyarrow
from headrace import data
assert data.open(pyarrow.table({"image": [b"x"], "n": [1]})).read("image", 0) == b"x"
assert not {"polars", "datasets"} & set(sys.modules)  # pyarrow itself imports pandas
"""
    subprocess.run([sys.executable, "-c", code], check=True)
