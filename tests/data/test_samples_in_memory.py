"""Samples that are given in memory: what becomes of them, who they are, and what is refused."""

from __future__ import annotations

import gc
import io
import json
import os
import pickle
import subprocess
import sys
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest
from loader_data import encode, photograph, write_folder
from PIL import Image

import headrace as hr
from headrace.errors import DecodeError, EmptyDatasetError, NotFoundError, UsageError

COUNT = 6
BYTES = [encode(photograph(number, 24, 32), "PNG") for number in range(COUNT)]
PIXELS = [np.asarray(Image.open(io.BytesIO(data)).convert("RGB")) for data in BYTES]


def batches(data, fields=None, **arguments):
    given = {"batch_size": 4, "view": None, "output": "numpy", "shuffle": False, "threads": 2} | arguments
    return list(hr.Loader(data, fields, **given))


def pixels(data, field="image"):
    """[H, W, 3] of each sample, in order."""
    fields = {field: hr.Image(normalize=None)}
    return [image.transpose(1, 2, 0) for batch in batches(data, fields) for image in batch[field]]


@pytest.fixture
def files(tmp_path) -> list[Path]:
    (tmp_path / "photos").mkdir()
    paths = [tmp_path / f"photos/{number}.png" for number in range(COUNT)]
    for path, data in zip(paths, BYTES, strict=True):
        path.write_bytes(data)
    return paths


# --- paths ---


@pytest.mark.parametrize(
    "form", [list, tuple, lambda paths: np.array(list(map(str, paths))), lambda paths: list(map(str, paths))]
)
def test_a_list_of_paths(files, form):
    data = hr.open(form(files))
    assert list(data.keys) == list(map(str, files)), "as they were given"
    assert data.fields == {"image": "bytes"}
    assert all(map(np.array_equal, pixels(data), PIXELS))


@pytest.mark.parametrize("bad", [b"", b"<html>not found</html>", BYTES[0][:20], b"\0" * 50])
def test_a_list_that_begins_with_a_damaged_image(files, bad):
    """It is a bad sample as any other."""
    files[0].write_bytes(bad)
    data = hr.open(files)
    got = batches(data, {"image": hr.Image(), "key": hr.Key()}, max_bad=0.5)
    keys = [key for batch in got for key in batch["key"]]
    assert len(keys) == COUNT
    assert {*keys} == {*map(str, files[1:])}


def test_relative_paths_are_below_the_current_folder_or_root(files, tmp_path, monkeypatch):
    names = [path.name for path in files]
    monkeypatch.chdir(files[0].parent)
    here = hr.open(names)
    monkeypatch.chdir(tmp_path)
    there = hr.open(names, root="photos")
    with zipfile.ZipFile("photos.zip", "w") as archive:
        for name in names:
            archive.write(f"photos/{name}", name)
    zipped = hr.open(names, root="photos.zip")
    for data in (here, there, zipped):
        assert all(map(np.array_equal, pixels(data), PIXELS))
    assert here.fingerprint == there.fingerprint, "wherever the files are"


def test_a_path_does_not_lead_out_of_root(files, tmp_path):
    (tmp_path / "other").mkdir()
    with pytest.raises(hr.HeadraceError, match=r"leads out of .*other"):
        hr.open(["../photos/0.png"], root=tmp_path / "other").read("image", 0)


def test_the_samples_of_torchvision_are_the_folder(tmp_path):
    """`ImageFolder.samples` and `.classes`, as its documentation has them: the same as the folder itself."""
    folder = hr.open(write_folder(tmp_path / "photos"))
    root = tmp_path / "photos"
    labels = folder.columns["label"].values.tolist()
    samples = [(str(root / key), label) for key, label in zip(folder.keys, labels, strict=True)]
    data = hr.open(samples, classes=folder.classes)
    assert data.classes == folder.classes
    view = hr.RandomResizedCrop(16)
    for one, other in zip(batches(data, view=view), batches(folder, view=view), strict=True):
        assert np.array_equal(one["image"], other["image"])
        assert np.array_equal(one["label"], other["label"])


def test_rows_of_more_columns(files):
    rows = [(path, path, number / 2) for number, path in enumerate(files)]
    data = hr.open(rows, columns=["image", "mask", "weight"])
    assert data.fields == {"image": "text", "mask": "text", "weight": "value"}
    assert all(map(np.array_equal, pixels(data), PIXELS))


def test_a_pattern_and_one_image(files):
    folder = files[0].parent
    assert list(hr.open(folder / "*.png").keys) == [path.name for path in files]
    assert list(hr.open(str(folder / "{4,2}.png")).keys) == ["4.png", "2.png"]
    assert all(map(np.array_equal, pixels(hr.open(f"{folder}/?.png")), PIXELS))
    assert len(hr.open(files[3])) == 1


# --- columns ---


def test_columns_of_every_kind():
    boxes = [np.arange(4 * (number % 3), dtype=np.float32).reshape(-1, 4) for number in range(COUNT)]
    data = hr.open(
        {
            "image": BYTES,
            "label": ["dog", "cat"] * 3,
            "number": list(range(COUNT)),
            "weight": np.linspace(0, 1, COUNT),
            "missing": [1, None, 3, 4, 5, 6],
            "caption": [f"text {number}" for number in range(COUNT)],
            "tags": [["a", "b"][: number % 3] for number in range(COUNT)],
            "boxes": boxes,
            "nested": [[[1, 2]] * (number % 2) for number in range(COUNT)],
            "embedding": np.arange(COUNT * 5.0).reshape(COUNT, 5),
            "picture": np.stack(PIXELS),
        }
    )
    assert data.fields == {
        "image": "bytes", "label": "text", "number": "value", "weight": "value", "missing": "value", "caption": "text",
        "tags": "list", "boxes": "list", "nested": "list", "embedding": "list", "picture": "list",
    }  # fmt: skip
    assert data.classes == ("cat", "dog")
    sample = data[5]
    assert sample["image"] == BYTES[5]
    assert (sample["number"], sample["weight"], sample["missing"], sample["tags"]) == (5, 1.0, 6.0, ["a", "b"])
    assert np.isnan(data[1]["missing"])
    assert np.array_equal(sample["boxes"], boxes[5])
    assert np.array_equal(sample["nested"], [[1, 2]])
    assert np.array_equal(sample["picture"], PIXELS[5])
    fields = {
        "image": hr.Image(normalize=None),
        "label": hr.Label(),
        "boxes": hr.Boxes(format="xyxy"),
        "embedding": hr.Array(shape=(5,)),
        "picture": hr.Array(shape=PIXELS[0].shape, dtype="uint8"),
        "tags": hr.Raw(),
        "caption": hr.Raw(),
    }
    (batch,) = batches(data, fields, batch_size=COUNT)
    assert batch["label"].tolist() == [1, 0] * 3
    assert np.array_equal(batch["embedding"], np.arange(COUNT * 5.0).reshape(COUNT, 5))
    assert np.array_equal(batch["picture"], batch["image"].transpose(0, 2, 3, 1))
    assert batch["caption"] == [f"text {number}" for number in range(COUNT)]


def test_columns_of_torch_tensors():
    import torch

    data = hr.open({"image": BYTES, "label": torch.arange(COUNT), "vector": list(torch.ones(COUNT, 3))})
    assert data[4]["label"] == 4
    assert np.array_equal(data[4]["vector"], [1, 1, 1])


def test_images_as_hugging_face_has_them(files):
    data = hr.open([{"image": {"bytes": each, "path": None}, "label": 1} for each in BYTES])
    assert all(map(np.array_equal, pixels(data), PIXELS))
    data = hr.open({"image": [{"bytes": None, "path": str(path)} for path in files]})
    assert all(map(np.array_equal, pixels(data), PIXELS))
    with pytest.raises(
        UsageError, match=r"column 'image', row 1: expected bytes, as others have, got the path 'a\.png'"
    ):
        hr.open({"image": [{"bytes": BYTES[0], "path": None}, {"bytes": None, "path": "a.png"}]})


def test_arrow_columns_of_bytes():
    """With nulls, and cut out of longer arrays."""
    import pyarrow as pa

    whole = pa.chunked_array([pa.array([b"x", *BYTES[:3]]), pa.array([*BYTES[3:], None], pa.binary())])
    data = hr.open({"image": whole.slice(1)})
    assert [data[number].get("image") for number in range(COUNT + 1)] == [*BYTES, None]
    assert hr.open({"image": pa.array([b"12", b"34"], pa.binary(2))}).read("image", 1) == b"34"
    assert hr.open({"image": pa.array([b"12"], pa.large_binary())}).read("image", 0) == b"12"


def test_a_mapped_array_is_not_copied_and_others_are_ours(tmp_path):
    np.save(tmp_path / "a.npy", np.arange(12.0).reshape(4, 3))
    mapped = np.load(tmp_path / "a.npy", mmap_mode="r")
    assert np.shares_memory(hr.open({"a": mapped}).columns["a"].items, mapped)
    own = np.zeros((4, 3))
    data = hr.open({"a": own})
    own[:] = 1
    assert data[0]["a"].tolist() == [0, 0, 0]


# --- dicts and iterables ---


def test_an_iterable_of_dicts_is_all_that_a_dataset_is(tmp_path):
    stream = ({"image": data, "label": number} for number, data in enumerate(BYTES))
    data = hr.open(stream, length=COUNT)
    columns = hr.open({"image": BYTES, "label": list(range(COUNT))})
    assert data.fingerprint == columns.fingerprint
    fields = {"image": hr.Image(), "label": hr.Label()}
    got = batches(data, fields, view=hr.RandomResizedCrop(8), shuffle=True)
    labels = [label for batch in got for label in batch["label"].tolist()]
    assert sorted(labels) == list(range(COUNT)) != labels


def test_a_dataset_of_torchs_own_that_gives_dicts():
    class OfDicts:
        def __len__(self):
            return COUNT

        def __getitem__(self, place):
            return {"image": BYTES[place], "label": place}

    data = hr.open(OfDicts())
    assert [data[number]["label"] for number in range(COUNT)] == list(range(COUNT))


def test_dicts_that_lack_something():
    data = hr.open([{"a": 1}, {"a": 2, "text": "x", "image": b"1"}, {"image": b"2"}])
    assert data.fields == {"a": "value", "text": "text", "image": "bytes"}
    assert data[1]["image"] == b"1"
    assert "image" not in data[0]
    assert [sample["text"] for sample in data] == ["", "x", ""]


@pytest.mark.parametrize(
    ("make", "length", "message"),
    [
        (lambda: iter([{"a": 1}]), None, "length: expected how many samples the list_iterator gives, since it does"),
        (lambda: iter([{"a": 1}]), 2, "length: expected 2 samples from the iterable, got 1. State how many it gives"),
        (lambda: iter([{"a": 1}] * 3), 2, "length: expected 2 samples from the iterable, got more. .*itertools.islice"),
        (lambda: iter([(b"", 1)]), 1, "sample 0: expected a dict of columns, got .*headrace.ThreadDataLoader"),
        (lambda: {"a.jpg"}, None, r"sample 0: expected a dict .* got 'a\.jpg'\. An iterator .* pass sorted\(…\) of it"),
        (lambda: Path(".").glob("*"), 3, r"sample 0: expected a dict .* pass sorted\(…\) of it"),
        (lambda: [{"a": 1}, 2], None, "sample 1: expected a dict of columns, got 2"),
        (lambda: [{"a": b"x"}, {"a": 2}], None, "column 'a', sample 1: expected bytes, as before, got 2"),
    ],
)  # fmt: skip
def test_iterables_that_are_refused(make, length, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.jpg").touch()
    with pytest.raises(UsageError, match=message):
        hr.open(make(), length=length)


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ({"a": [1, 2], "b": [1]}, "expected columns of one length, got 'a' of 2 rows and 'b' of 1"),
        ({"a": [1], 3: [1]}, "expected names of columns as texts, got 3"),
        ({"a": "text", "b": [1]}, "column 'a': expected a list or an array, got 'text'"),
        ({"a": [1, "x"]}, "column 'a': expected numbers, texts, .* of one kind each, got otherwise"),
        ({"a": [b"x", 3]}, "column 'a', row 1: expected bytes, as the first is, got 3"),
        ({"a": [Image.new("RGB", (1, 1))]}, "column 'a': .* Give images as paths or as the bytes of their files"),
        ({"a": [np.zeros((2, 4)), np.zeros((2, 3))]}, r"column 'a', row 1: expected an array of numbers \['…', 4\]"),
        ({"a": np.zeros(3, complex)}, "column 'a': expected numbers, .*"),
        ({"a": [[1, 2], 3]}, "column 'a', row 1: expected a list, as the first is, got 3"),
        ({"a": [["x"], "y"]}, "column 'a', row 1: expected a list, as the first is, got 'y'"),
        ({"a": [{"bytes": b"x"}, b"y"]}, r"column 'a', row 1: expected \{'bytes', 'path'\}, as the first is, got b'y'"),
        ({"a": {"x", "y"}, "b": [1, 2]}, "column 'a': expected a list or an array, got "),
        ([("a.jpg", 1), ("b.jpg",)], r"sample 1: expected \(path, label\), got \('b.jpg',\)"),
        ([("a.jpg", 1, 2)], r"sample 0: expected \(path, label\), got .* Name its entries with columns="),
        ([("a.jpg", 1), (3, 1)], "sample 1: expected a path, as the first is, got 3"),
    ],
)  # fmt: skip
def test_values_that_are_refused(where, message):
    with pytest.raises(UsageError, match=message):
        hr.open(where)


def test_nothing_in_memory():
    with pytest.raises(EmptyDatasetError, match="expected samples, got columns of no rows"):
        hr.open({"a": []})
    with pytest.raises(EmptyDatasetError, match="got an empty list"):
        hr.open([])


def test_lists_of_what_is_not_there_or_no_image(files, tmp_path):
    with pytest.raises(NotFoundError, match=r"none\.png: expected a folder, an archive or a manifest, got nothing"):
        hr.open([tmp_path / "none.png"])
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("1.jpg", b"")
    with pytest.raises(
        UsageError, match=r"expected images alone, as the first is, got a zip, .*a\.zip\. Open them apart"
    ):
        hr.open([*files, tmp_path / "a.zip"])


# --- who they are ---


def test_the_fingerprint_is_of_the_content():
    base = {"image": BYTES, "label": ["a", "b"] * 3, "n": list(range(COUNT)), "v": np.zeros((COUNT, 2))}
    known = hr.open(base).fingerprint
    flipped = [*BYTES[:-1], BYTES[-1][:-1] + bytes([BYTES[-1][-1] ^ 1])]
    moved = [b"".join(BYTES[:2]), b"", *BYTES[2:]]
    for change in (
        {"image": flipped}, {"image": moved}, {"label": ["a", "c"] * 3}, {"n": [0, 1, 2, 3, 4, 6]},
        {"v": np.eye(COUNT, 2)}, {"other": [0] * COUNT},
    ):  # fmt: skip
        assert hr.open(base | change).fingerprint != known, change.keys()
    alike = base | {"n": np.arange(COUNT, dtype=np.int32), "image": tuple(map(bytearray, BYTES))}
    assert hr.open(alike).fingerprint == known, "the same in another form"


def test_the_fingerprint_is_the_same_on_each_rank():
    """In other processes, with other seeds of Python's hashes."""
    program = (
        "import headrace as hr; print(hr.open({'image': [b'1', b'2'], 'label': ['x', 'y'], 'n': [1, 2.5]}).fingerprint)"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", program], env=os.environ | {"PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("1", "2")
    }
    assert len(found) == 1


def test_a_dataset_goes_to_other_processes():
    data = hr.open({"image": BYTES, "label": ["a", "b"] * 3})
    again = pickle.loads(pickle.dumps(data.select([4, 1])))
    assert again.fingerprint == data.select([4, 1]).fingerprint
    assert [again.read("image", number) for number in range(2)] == [BYTES[4], BYTES[1]]
    child = os.fork()
    if not child:
        os._exit(0 if all(data.read("image", number) == BYTES[number] for number in range(COUNT)) else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_selections_of_what_is_in_memory():
    data = hr.open({"image": BYTES, "label": list(range(COUNT))})
    assert [sample["label"] for sample in data.select([5, 0])] == [5, 0]
    train, val = data.split(0.5, 0.5)
    assert sorted(sample["label"] for part in (train, val) for sample in part) == list(range(COUNT))


def test_a_bad_sample_in_memory_is_named_and_written_down(tmp_path):
    data = hr.open({"image": [*BYTES[:-1], b"no image"], "label": list(range(COUNT))})
    with pytest.raises(DecodeError, match=r"sample '5', .*2 columns in memory"):
        batches(data, on_error="raise")
    replaced = batches(data, on_error="replace", max_bad=0.5, quarantine=tmp_path / "bad.jsonl")
    assert sum(len(batch["label"]) for batch in replaced) == COUNT
    (line,) = (tmp_path / "bad.jsonl").read_text().splitlines()
    assert (json.loads(line)["key"], json.loads(line)["shard"]) == ("5", "2 columns in memory")


@pytest.mark.long
def test_no_object_is_kept_for_a_sample():
    count = 70_000  # beyond the texts of which the classes are known by name
    pairs = [(f"folder {number % 7}/{number:06}.jpg", number % 10) for number in range(count)]
    columns = {"image": [path for path, _ in pairs], "bytes": [b"123"] * count, "tags": [["a"]] * count}
    hr.open(pairs[:2])
    hr.open({name: values[:2] for name, values in columns.items()})  # what is imported is imported by now
    gc.collect()
    tracemalloc.start()
    try:
        kept = [hr.open(pairs), hr.open(columns)]
        gc.collect()
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert [len(data) for data in kept] == [count, count]
    # 24 bytes of a path, and 8 an array: of the pairs 2, of the columns 7. An object alone would take 50 more.
    assert held / count < 2 * 24 + 10 * 8 + 30
