"""Every argument of `open` on every kind of source: it changes what is opened, or is refused with what it would need.

docs/sources.md says which is which, and this reads it there.
"""

from __future__ import annotations

import inspect
import json
import re
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from other_shards import write_mds
from PIL import Image

import headrace as hr
from headrace.errors import UsageError
from headrace.pack import PackOptions, pack

DOCS = Path(__file__).parents[2] / "docs/sources.md"
JPEG = b"\xff\xd8\xff\xe0 an image as far as its first bytes say: "
CLASSES = ("cat", "dog", "emu")
NAMES = [f"{label}/{number}.jpg" for label in CLASSES for number in range(2)]
"""Of the files of each source; each one's bytes tell where it lies."""
DOTTED = "cat/0.note.txt"
"""Of an archive too: its first dot ends the name of the first sample."""
LABELS = [name.partition("/")[0] for name in NAMES]


def plant(folder: Path, mark: str) -> Path:
    for name in NAMES:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(JPEG + mark.encode())
    return folder


def rows(*names: str) -> dict[str, list[Any]]:
    """Columns of a list of samples; of these alone, where any are named."""
    columns: dict[str, list[Any]] = {"image": NAMES, "label": LABELS, "size": list(range(len(NAMES)))}
    return {name: columns[name] for name in names or columns}


def records() -> list[dict[str, Any]]:
    return [dict(zip(rows(), row, strict=True)) for row in zip(*rows().values(), strict=True)]


def flat_folder(root: Path) -> Path:
    root = root / "flat"
    root.mkdir()
    for number in range(3):
        (root / f"{number}.jpg").write_bytes(JPEG)
    return root


def tar(root: Path) -> Path:
    plant(root / "files", "tar")
    with tarfile.open(root / "a.tar", "w") as archive:
        for name in NAMES:
            archive.add(root / "files" / name, name)
        archive.add(root / "files" / NAMES[0], DOTTED)
    return root / "a.tar"


def stored_zip(root: Path) -> Path:
    with zipfile.ZipFile(root / "a.zip", "w") as archive:
        for name in NAMES:
            archive.writestr(name, JPEG)
        archive.writestr(DOTTED, JPEG)
    return root / "a.zip"


def csv(root: Path) -> Path:
    lines = [",".join(map(str, row)) for row in zip(*rows().values(), strict=True)]
    (root / "list.csv").write_text("\n".join([",".join(rows()), *lines]))
    return root / "list.csv"


def txt(root: Path) -> Path:
    (root / "list.txt").write_text("\n".join(NAMES))
    return root / "list.txt"


def jsonl(root: Path) -> Path:
    (root / "list.jsonl").write_text("\n".join(map(json.dumps, records())))
    return root / "list.jsonl"


def parquet(root: Path) -> Path:
    pq.write_table(pa.table(rows()), root / "list.parquet")
    return root / "list.parquet"


def hub_parquet(root: Path) -> Path:
    images = [{"bytes": JPEG if place else None, "path": name} for place, name in enumerate(NAMES)]
    pq.write_table(pa.table(rows("label", "size") | {"image": images, "key": NAMES}), root / "hub.parquet")
    return root / "hub.parquet"


def coco(root: Path) -> Path:
    images = [{"id": number, "file_name": name} for number, name in enumerate(NAMES)]
    (root / "a.json").write_text(json.dumps({"images": images}))
    return root / "a.json"


def saved_dataset(root: Path) -> Path:
    root = root / "saved"
    root.mkdir()
    table = pa.table({"image": [JPEG] * len(NAMES), "label": LABELS})
    with pa.ipc.new_stream(root / "a.arrow", table.schema) as sink:
        sink.write_table(table)
    (root / "state.json").write_text(json.dumps({"_data_files": [{"filename": "a.arrow"}]}))
    return root


def arrays(root: Path) -> Path:
    """Images that may be of either layout, compressed."""
    np.savez_compressed(
        root / "a.npz", image=NAMES, label=LABELS, pixels=np.zeros((len(NAMES), 3, 60_000, 3), np.uint8)
    )
    return root / "a.npz"


def shards(root: Path) -> Path:
    rows = [[JPEG, label.encode()] for label in LABELS]
    return write_mds(root / "mds", {"image": ("jpeg", None), "label": ("str", None)}, {"shard.00000.mds": rows})


def lerobot(root: Path) -> Path:
    root = root / "robot"
    (root / "meta").mkdir(parents=True)
    (root / "meta/info.json").write_text('{"features": {}}')
    (root / "data/chunk-000").mkdir(parents=True)
    table = pa.table({"image": [{"bytes": JPEG, "path": name} for name in NAMES], "label": LABELS})
    pq.write_table(table, root / "data/chunk-000/file-000.parquet")
    return root


def images(root: Path) -> list[str]:
    plant(root, "own folder")
    return NAMES


def packed(root: Path) -> Path:
    for name in NAMES:
        (root / "images" / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (8, 8)).save(root / "images" / name)
    pack(hr.open(root / "images"), root / "pack", PackOptions())
    return root / "pack"


SOURCES: dict[str, Callable[[Path], Any]] = {
    "a folder of class folders": lambda root: plant(root / "photos", "folder"),
    "a folder of images": flat_folder,
    "tars": tar,
    "zips": stored_zip,
    "a pack": packed,
    "a mapping of folders": lambda root: {"image": plant(root / "i", "i"), "mask": plant(root / "m", "m")},
    ".csv, .tsv": csv,
    ".txt": txt,
    ".jsonl, .odgt": jsonl,
    ".parquet": parquet,
    "parquet or Arrow with images inside": hub_parquet,
    "COCO": coco,
    "a saved dataset": saved_dataset,
    ".npz, HDF5, .npy of images": arrays,
    "shards of Streaming or LitData": shards,
    "a LeRobot dataset": lerobot,
    "a pattern of images": lambda root: f"{plant(root / 'photos', 'pattern')}/*/*.jpg",
    "a list of images": images,
    "a list of images' bytes": lambda root: [JPEG] * 3,
    "rows": lambda root: list(zip(NAMES, LABELS, strict=True)),
    "columns": lambda root: rows(),
    "dicts": lambda root: records(),
    "an iterable of dicts": lambda root: iter(records()),
    "a table of pandas, polars, pyarrow or datasets": lambda root: pa.table(rows()),
}

# Those of addresses in stores are tested with these: tests/remote.
OF_STORES = ("index", "store_options", "store", "retry_for", "verify")
ARGUMENTS = [name for name in inspect.signature(hr.open).parameters if name not in ("where", "unknown", *OF_STORES)]

ROW_NUMBERS = ("a saved dataset", "shards of Streaming or LitData", "a LeRobot dataset")
"""Sources whose keys are row numbers."""
NEEDED = {
    "classes": r"classes: (expected none, got .* classes= needs class folders|expected )",
    "root": r"root: expected none, got .* root= needs a manifest, annotations or paths given in memory",
    "columns": r"columns: expected none, got .* columns= needs tars, zips, a manifest, arrays or columns given",
    "cache": r"cache: expected none, got .* cache= needs tars, zips or a manifest",
    "stem": r"stem: expected none, got .* stem= needs tars or zips",
    "stage": r"stage: expected none, got .* stage= needs files that can be copied",
    "length": r"length: expected none, got .* length= needs an iterable",
    "layout": r"layout: expected none, got 'NCHW': .* layout= needs arrays of images",
}
"""How a refusal begins, and what it says the argument would need."""


def documented() -> dict[str, set[str]]:
    """Which source takes which arguments, as the table of docs/sources.md has it."""
    lines = DOCS.read_text().partition("<!-- arguments -->")[2].partition("<!-- end of arguments -->")[0].splitlines()
    header, _, *body = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if line.startswith("|")]
    names = [name.strip("`=") for name in header[1:]]
    return {row[0]: {name for name, mark in zip(names, row[1:], strict=True) if mark != "–"} for row in body}


def given(name: str, source: str, root: Path) -> Any:
    """A value that means something wherever the argument does."""
    match name:
        case "classes":
            return ["emu", "cat"]
        case "root":
            return plant(root / "elsewhere", "root")
        case "columns":
            chosen = {".txt": ["picture"], "rows": ["picture", "name"], "tars": ["jpg"], "zips": ["jpg"]}
            return chosen.get(source, ["label", "image"])
        case "cache":
            return root / "cache"
        case "stage":
            return root / "stage"
        case "stem":
            return "last-dot"
        case "length":
            return len(NAMES)
        case "layout":
            return "NCHW"
    raise AssertionError(f"no value for {name}=: give one, and say below what it changes")


def check_effect(name: str, source: str, data: hr.Dataset, root: Path) -> None:
    match name:
        case "classes":
            assert data.classes == ("emu", "cat"), "labels go in the given order"
            assert len(data) == 4
            column = data.columns["label"]
            numbers = column.values if column.kind == "value" else column.labels.values
            numbers = numbers if data.base_ids is None else numbers[data.base_ids]
            assert numbers.tolist() == [1, 1, 0, 0], "of cat and emu, in the source's order"
            if source not in ROW_NUMBERS:
                assert [key.partition("/")[0] for key in data.keys] == ["cat", "cat", "emu", "emu"]
        case "root":
            assert data.read("image", 0) == JPEG + b"root"
        case "columns":
            assert list(data.columns) == given("columns", source, root)
        case "cache":
            assert list((root / "cache").iterdir()), "an index lies there"
        case "layout":
            assert "pixels" not in data.columns or data[0]["pixels"].shape == (60_000, 3, 3)
        case "stem":
            assert list(data.keys) == [*(name.removesuffix(".jpg") for name in NAMES), "cat/0.note"]
        case "stage":
            files = [data.where(column, 0)[0] for column in data.columns if data.has_bytes(column)]
            assert files
            assert all(Path(file).is_relative_to(root / "stage") for file in files)
        case "length":
            assert len(data) == len(NAMES)
            for wrong, got in ((len(NAMES) - 1, "more"), (len(NAMES) + 1, "6")):
                with pytest.raises(UsageError, match=f"length: expected {wrong} samples from the iterable, got {got}"):
                    hr.open(iter(records()), length=wrong)


def always(name: str, source: str, root: Path) -> dict[str, Any]:
    """What the source cannot do without."""
    needed: dict[str, Any] = {"length": len(NAMES)} if source == "an iterable of dicts" and name != "length" else {}
    if name == "stage" and source in (".csv, .tsv", ".txt", ".jsonl, .odgt", ".parquet", "COCO"):
        needed["root"] = plant(root / "elsewhere", "root")
    if source.startswith(".npz") and name not in ("layout", "columns"):
        needed["layout"] = "NHWC"
    return needed


@pytest.mark.one_in(8)
@pytest.mark.parametrize("name", ARGUMENTS)
@pytest.mark.parametrize("source", SOURCES)
def test_each_argument_of_each_source_is_used_or_refused(source, name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    where, value = SOURCES[source](tmp_path), given(name, source, tmp_path)
    if name in documented()[source]:
        data = hr.open(where, **{name: value}, **always(name, source, tmp_path))
        check_effect(name, source, data, tmp_path)
        return
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(UsageError) as caught:
        hr.open(where, **{name: value}, **always(name, source, tmp_path))
    assert re.match(NEEDED[name], str(caught.value)), caught.value
    assert sorted(tmp_path.rglob("*")) == before, "what is refused leaves nothing behind"


def test_the_table_has_every_source_and_every_argument():
    table = documented()
    assert set(table) == set(SOURCES)
    assert set().union(*table.values()) == set(ARGUMENTS) == set(NEEDED)


def test_cache_is_taken_for_archives_as_root(tmp_path, monkeypatch):
    """Their indices go there; a folder as root has none."""
    monkeypatch.chdir(tmp_path)
    archive = tar(tmp_path)
    for where in (rows(), NAMES, coco(tmp_path)):
        cache = tmp_path / f"cache of {type(where).__name__}"
        assert hr.open(where, root=archive, cache=cache).read("image", 0) == JPEG + b"tar"
        assert list(cache.iterdir())
        for folder in (tmp_path / "files", [tmp_path / "files"]):
            with pytest.raises(UsageError, match="cache: expected none"):
                hr.open(where, root=folder, cache=cache)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"classes": "cat"}, "classes: expected True, False or a list of the names of classes, got 'cat'"),
        ({"classes": []}, r"classes: expected .* such as \['cat', 'dog'\], got \[\]"),
        ({"classes": [1]}, r"classes: expected .* such as \['cat', 'dog'\], got \[1\]"),
        ({"classes": ["cat", "cat"]}, "that differ, got 'cat' more than once"),
        ({"columns": "image"}, "columns: expected a list of names"),
        ({"cache": 3}, "expected a folder as cache=, got 3"),
        ({"stage": 3}, "expected a folder as stage=, got 3"),
        ({"length": 0}, "length: expected how many samples the iterable gives, 1 or more, got 0"),
        ({"length": True}, "length: expected .* got True"),
    ],
)
def test_values_that_mean_nothing(arguments, message, tmp_path):
    with pytest.raises(UsageError, match=message):
        hr.open(plant(tmp_path / "photos", ""), **arguments)


@pytest.mark.parametrize("source", ["a folder of class folders", "tars", "zips", ".csv, .tsv", "columns", "rows"])
def test_an_unknown_class_lists_those_that_there_are(source, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    message = (
        r"classes: expected names among the 3 classes of .* \('cat', 'dog', 'emu'\), got 'dogs'\. Did you mean 'dog'\?"
    )
    with pytest.raises(UsageError, match=message):
        hr.open(SOURCES[source](tmp_path), classes=["cat", "dogs"])


def test_classes_of_two_lists_are_numbered_alike(tmp_path):
    """A validation set that lacks a class has the numbers of the training set, by its classes."""
    (tmp_path / "val.csv").write_text("image,label\na.jpg,emu\nb.jpg,cat\n")
    train = hr.open(plant(tmp_path / "train", ""))
    val = hr.open(tmp_path / "val.csv", classes=train.classes)
    assert val.classes == train.classes
    assert val.columns["label"].labels.values.tolist() == [2, 0]
    assert val.fingerprint != hr.open(tmp_path / "val.csv").fingerprint, "other labels, another dataset"


def test_whole_numbers_get_the_names_of_classes():
    data = hr.open([("a.jpg", 1), ("b.jpg", 0)], classes=["cat", "dog"])
    assert data.classes == ("cat", "dog")
    assert data.columns["label"].values.tolist() == [1, 0]
    with pytest.raises(UsageError, match=r"a name for each label of .*, which go from 0 to 1, got 1 names \('cat'\)"):
        hr.open([("a.jpg", 1), ("b.jpg", 0)], classes=["cat"])
    with pytest.raises(
        UsageError, match=r"expected a column 'label' of whole numbers or of names of classes in .* got one of lists"
    ):
        hr.open({"image": ["a.jpg"], "label": [[1, 2]]}, classes=["cat"])


def test_classes_of_a_list_hold_in_a_worker_process(tmp_path):
    """What is opened again elsewhere has the same labels, and the same identity."""
    import pickle

    lines = [f"{number}.jpg,{CLASSES[number % 3]}" for number in range(60)]
    (tmp_path / "list.csv").write_text("\n".join(["image,label", *lines]))
    data = hr.open(tmp_path / "list.csv", classes=["emu", "cat"], cache=tmp_path / "cache")
    assert data.table.again is not None, "opened from its index"
    again = pickle.loads(pickle.dumps(data))
    assert (again.fingerprint, again.classes, len(again)) == (data.fingerprint, ("emu", "cat"), 40)
