"""Columns of a dataset: taken whole, filtered by, and put beside those that it has."""

from __future__ import annotations

import json
import pickle
from collections import Counter

import numpy as np
import pytest
import torch

import headrace as hr
from headrace.errors import UsageError


@pytest.fixture
def pets(tmp_path):
    """Eight rows of a manifest: a path, a name of a class, a number, a list."""
    with open(tmp_path / "pets.jsonl", "w") as file:
        for row in range(8):
            (tmp_path / f"{row}.jpg").write_bytes(b"jpg%d" % row)
            pet = {"image": f"{row}.jpg", "pet": ("cat", "dog", "cat")[row % 3], "width": 10 * row}
            print(json.dumps(pet | {"tags": list(range(row % 3))}), file=file)
    return hr.open(tmp_path / "pets.jsonl")


@pytest.fixture
def tar(make_tar):
    members = {f"{i:03d}.{ext}": f"{i}".encode() for i in range(20) for ext in ("jpg", "cls")}
    del members["004.cls"]
    return hr.open(make_tar("a.tar", members))


def test_keys_are_sliced(tar):
    assert tar.keys[:3] == ["000", "001", "002"]
    assert tar.keys[-2:] == ["018", "019"]
    assert tar[::-1].keys[0:4:2] == ["019", "017"]
    assert tar.keys[30:] == []
    assert repr(tar[:2].keys) == "2 strings: '000', '001'"
    assert repr(tar.keys) == "20 strings: '000', '001', '002', '003', '004', …"


def test_a_column_has_a_value_of_each_sample_in_the_selection_order(pets):
    chosen = pets.select([5, 1, 1])
    assert pets.column("width").tolist() == [10 * row for row in range(8)]
    assert chosen.column("width").tolist() == [50, 10, 10]
    assert chosen.column("pet") == ["cat", "dog", "dog"]
    assert chosen.column("image") == ["5.jpg", "1.jpg", "1.jpg"]
    assert [tags.tolist() for tags in chosen.column("tags")] == [[0, 1], [0], [0]]
    assert chosen.column("__key__") == chosen.keys[:]
    assert Counter(pets.column("pet")) == {"cat": 5, "dog": 3}


def test_a_column_of_bytes_is_read(tar):
    assert tar.column("cls")[3:6] == [b"3", None, b"5"]
    with pytest.raises(UsageError, match=r"expected a column of the dataset, got 'depth'; it has image, label, "):
        tar.column("depth")
    with pytest.raises(TypeError, match=r"expected a position or a slice, got 'image'; column\('image'\) gives"):
        tar["image"]


def test_labels_are_those_of_the_field(pets, tar, photos):
    folder = hr.open(photos)[::7]
    for dataset, column in ((folder, "label"), (pets, "pet"), (pets[2:5], "width"), (tar[5:], "cls")):
        (batch,) = hr.Loader(dataset, {"y": hr.Label(source=column)}, batch_size=len(dataset), output="numpy")
        assert dataset.labels(column).tolist() == batch["y"].tolist()
    assert tar[5:].labels().tolist() == list(range(5, 20))
    with pytest.raises(UsageError, match="expected one number a sample, or names of classes, got a list column"):
        pets.labels("tags")
    with pytest.raises(KeyError, match="sample '004' has no 'cls'"):
        tar.labels("cls")


def test_filter_by_values(pets):
    wide = pets.filter(lambda width, pet: width >= 20 and pet == "cat", ["width", "pet"])
    assert wide.column("image") == [f"{row}.jpg" for row in (2, 3, 5, 6)]
    assert wide.base_ids.tolist() == [2, 3, 5, 6]
    assert wide.filter(lambda image: image > "3", "image").column("width").tolist() == [30, 50, 60]
    assert len(wide.filter(lambda width: False, "width")) == 0


def test_filter_by_whole_samples_without_reading_files(pets, tmp_path):
    for file in tmp_path.glob("*.jpg"):
        file.unlink()
    seen = []

    def keep(sample):
        seen.append(sample)
        return len(sample["tags"]) == 2

    assert pets.filter(keep).column("width").tolist() == [20, 50]
    assert [sample["__key__"] for sample in seen] == pets.keys[:]
    assert list(seen[0]) == ["__key__", "image", "pet", "width", "tags"]


def test_filter_by_bytes_that_are_named(tar):
    assert tar.filter(lambda data: data is not None and int(data) % 9 == 0, ["cls"]).keys[:] == ["000", "009", "018"]
    with pytest.raises(UsageError, match="got 'size'; it has"):
        tar.filter(bool, "size")


def test_filter_by_a_mask(pets):
    width = pets.column("width")
    for mask in (width > 30, (width > 30).tolist(), torch.tensor(width > 30)):
        assert pets.filter(mask).base_ids.tolist() == np.flatnonzero(width > 30).tolist()
    part = pets[::-2].filter([True, False, False, True])
    assert part.base_ids.tolist() == [7, 1]
    assert part.fingerprint == pets.select([7, 1]).fingerprint
    with pytest.raises(UsageError, match="expected a mask of 8 entries, one a sample, got 2"):
        pets.filter([True, False])


@pytest.mark.parametrize("wanted", [30, 31, [10, 60], (), np.array([0, 70]), range(20, 50, 10), {50}, np.int64(20)])
def test_filter_by_numbers(pets, wanted):
    among = [wanted] if np.isscalar(wanted) else list(wanted)
    expected = [row for row in range(8) if 10 * row in among]
    assert pets.filter(width=wanted).base_ids.tolist() == expected
    assert pets[::-1].filter(width=wanted).base_ids.tolist() == expected[::-1]


def test_filter_by_texts_classes_and_keys(pets, photos):
    names = pets.column("pet")
    cats = [row for row, name in enumerate(names) if name == "cat"]
    assert pets.filter(pet="cat").base_ids.tolist() == cats
    assert pets.filter(pet=["cat", "dog"]).base_ids.tolist() == list(range(8))
    assert pets.filter(pet=pets.labels("pet")[cats[0]]).base_ids.tolist() == cats
    assert len(pets.filter(pet="")) == 0
    assert pets.filter(__key__=pets.keys[3]).base_ids.tolist() == [3]
    both = pets.filter(lambda width: width > 20, "width", pet="cat", width=[10, 20, 30, 40, 50])
    assert both.column("width").tolist() == [10 * row for row in cats if 20 < 10 * row <= 50]
    folder = hr.open(photos)[::-1]
    last = len(folder.classes) - 1
    by_name = folder.filter(label=folder.classes[last])
    assert set(by_name.labels().tolist()) == {last}
    assert by_name.base_ids.tolist() == folder.filter(label=last).base_ids.tolist()
    assert by_name.base_ids.tolist() == sorted(by_name.base_ids.tolist(), reverse=True)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"keep": [1]}, r"filter: expected a function of a sample, a mask of .*, got \[1\]; select\(\) takes indices"),
        ({}, "a function of a sample, a mask of booleans or values of columns, such as label=3, got None"),
        (
            {"tags": "a"},
            r"expected a column of numbers or texts, got 'tags', one of list; .*columns=\['tags'\]",
        ),
        ({"pet": "cta"}, "filter: expected pet to be among 'cat', 'dog', got 'cta'"),
        ({"pet": ["cat", 3.5, "dog"]}, "filter: expected pet to be a text, as its column holds"),
        (
            {"width": "wide"},
            "filter: expected width to be a number, as its column holds, or a list of these, got 'wide'",
        ),
        ({"width": None}, "filter: expected width to be a number, as its column holds, or a list of these, got None"),
        ({"size": 3}, "expected a column of the dataset, got 'size'; it has image"),
    ],
)
def test_filter_says_what_is_wrong(pets, given, message):
    with pytest.raises(UsageError, match=message):
        pets.filter(**given)


def test_filter_looks_at_more_than_a_block(tmp_path):
    (tmp_path / "many.csv").write_text("n\n" + "\n".join(map(str, range(2500))))
    assert hr.open(tmp_path / "many.csv").filter(lambda n: n % 1000 == 7, "n").column("n").tolist() == [7, 1007, 2007]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (np.arange(8) * 1.5, [0, 1.5, 3, 4.5, 6, 7.5, 9, 10.5]),
        (list("abcdabcd"), list("abcdabcd")),
        ([b"%d" % row for row in range(8)], [b"%d" % row for row in range(8)]),
    ],
)
def test_with_a_column(pets, values, expected):
    more = pets.with_column("new", values)
    assert list(more.column("new")) == expected
    assert list(more.columns) == [*pets.columns, "new"]
    assert "new" not in pets.columns
    assert more.fingerprint != pets.fingerprint
    assert more.fingerprint == pets.with_column("new", values).fingerprint
    assert more[3]["new"] == expected[3]
    assert more.read("image", 3) == b"jpg3", "paths lead where they led"
    assert list(pickle.loads(pickle.dumps(more)).column("new")) == expected


def test_lists_as_a_column_follow_their_samples(pets):
    boxes = [np.full((row % 3, 4), row, np.float32) for row in range(8)]
    more = pets.with_column("boxes", boxes)[::-3]
    assert [each.tolist() for each in more.column("boxes")] == [boxes[row].tolist() for row in (7, 4, 1)]


def test_a_column_of_a_selection_belongs_to_its_samples(pets):
    chosen = pets.select([6, 2, 6])
    more = chosen.with_column("new", np.array([60, 20, 60]))
    assert more.column("new").tolist() == [60, 20, 60]
    assert more.base_ids.tolist() == [6, 2, 6]
    assert more.with_column("width", ["a", "b", "a"]).column("width") == ["a", "b", "a"]
    with pytest.raises(UsageError, match=r"equal values where a sample comes several times, got 1 at 0 and 3 at 2"):
        chosen.with_column("new", [1, 2, 3])


@pytest.mark.parametrize("chosen", [[3, 5, 4], range(8)], ids=["some", "all"])
@pytest.mark.parametrize("form", ["pandas", "pandas, texts", "torch", "pyarrow", "polars"])
def test_a_column_of_any_library_is_in_order(pets, form, chosen):
    """Also a series of pandas', whose own index names other places."""
    import pandas as pd
    import polars as pl
    import pyarrow as pa
    import torch

    part = pets.select(chosen)
    expected = [10 * row for row in range(len(part))]
    if form == "pandas, texts":
        expected = [f"n{value}" for value in expected]
    make = {"torch": torch.tensor, "pyarrow": pa.array, "polars": pl.Series}.get(form)
    values = pd.Series(expected, index=range(len(part))[::-1]) if make is None else make(expected)
    assert list(part.with_column("new", values).column("new")) == expected


def test_class_labels_by_a_rule(pets, photos):
    """By a function of the key, and a loader that takes them."""
    labels = [int(key.removesuffix(".jpg")) % 2 for key in pets.keys]
    ruled = pets.with_column("label", labels, classes=["even", "odd"])
    assert ruled.classes == ("even", "odd")
    assert "label (value: 2 classes)" in repr(ruled)
    (batch,) = hr.Loader(ruled, {"label": hr.Label()}, batch_size=8, output="numpy")
    assert batch["label"].tolist() == labels
    named = pets.with_column("label", ["dog", "cat"] * 4, classes=["dog", "cat"])
    assert named.labels().tolist() == [0, 1] * 4
    folder = hr.open(photos)
    renamed = folder.with_column("label", folder.labels() % 2, classes=["a", "b"])
    assert renamed.labels().tolist() == (folder.labels() % 2).tolist()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"values": [1, 2]}, r"with_column\('new'\): expected 8 values, one a sample, got 2"),
        ({"values": iter([1])}, "expected 8 values, one a sample, got list_iterator"),
        ({"values": [0] * 8, "name": "__key__"}, "expected the name of a column, got '__key__'"),
        ({"values": [object()] * 8}, "column 'new': expected numbers, texts, paths, bytes, or lists"),
        ({"values": [0, 1, 2] * 2 + [3, 0], "classes": "abc"}, "column 'new', row 6: expected a number from 0 to 2"),
        ({"values": list("abcdabcd"), "classes": "abc"}, "row 3: expected one of 'a', 'b', 'c', got 'd'"),
        ({"values": [0.5] * 8, "classes": "abc"}, "expected whole numbers or names of classes, got a value column"),
    ],
)
def test_what_is_no_column_is_refused(pets, given, message):
    with pytest.raises(UsageError, match=message):
        pets.with_column(**({"name": "new"} | given))


@pytest.mark.parametrize("part", [slice(None), slice(1, 4)], ids=["all", "some"])
@pytest.mark.parametrize("make", [lambda names: set(names), lambda names: dict.fromkeys(names, 1), "".join])
def test_what_has_no_order_is_no_column(pets, make, part):
    """A set of texts has another order in each process."""
    some = pets[part]
    with pytest.raises(UsageError, match="column 'new': expected a list or an array, got "):
        some.with_column("new", make("abcdefgh"[: len(some)]))
