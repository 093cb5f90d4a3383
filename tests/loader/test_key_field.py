"""Keys, paths and positions in the batch: those of the very sample, through everything that a batch passes."""

from __future__ import annotations

import json

import battery
import numpy as np
import pytest
from loader_data import COUNT, write_folder, write_tar

import headrace as hr
from headrace.errors import UsageError

FIELDS = {"number": hr.Raw(source="txt"), "key": hr.Key(), "path": hr.Key("path", source="txt"), "at": hr.Key("index")}


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("keys")
    write_tar(root / "a.tar", 20)
    write_folder(root / "photos")
    return root


def touched(sample, rng):
    return sample | {"name": f"{sample['key']} at {int(sample['at'])}"}


def load(dataset, fields=FIELDS, **options):
    return hr.Loader(dataset, fields, **({"batch_size": 6, "shuffle": True, "output": "numpy"} | options))


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    "options", [{}, {"map": touched}, {"map": touched, "map_workers": 1}], ids=["", "map", "workers"]
)
def test_each_row_names_its_own_sample(root, options):
    data = hr.open(root / "a.tar").select([3, 9, 9, 17, 0, 4, 12, 5, 6])
    loader = load(data, **options)
    seen = []
    for batch in loader:
        assert batch["at"].dtype == np.int64
        assert batch["path"] == [str(root / "a.tar")] * len(batch["at"])
        for row, at in enumerate(batch["at"].tolist()):
            key = loader.dataset.key(at)
            assert (batch["key"][row], bytes(batch["number"][row])) == (key, f"number {int(key)}".encode())
            assert "map" not in options or batch["name"][row] == f"{key} at {at}"
        seen += batch["at"].tolist()
    assert sorted(seen) == list(range(9))


def test_paths_are_those_of_the_images_or_of_a_column(root):
    rows = [{"image": f"{number:04}.jpg", "other": f"{number:04}.txt", "none": ""} for number in range(3)]
    for row in rows:
        (root / row["image"]).write_bytes(b"")
        (root / row["other"]).write_bytes(b"text")
    (root / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    data = hr.open(root / "rows.jsonl")
    fields = {
        "text": hr.Raw(source="other"),
        "image": hr.Key("path", source="image"),
        "other": hr.Key("path", source="other"),
        "none": hr.Key("path", source="none"),
    }
    (batch,) = load(data, fields, shuffle=False)
    assert batch["image"] == [str(root / row["image"]) for row in rows]
    assert batch["other"] == [str(root / row["other"]) for row in rows]
    assert batch["none"] == ["", "", ""]
    photos = hr.open(root / "photos")
    (batch,) = load(photos, {"image": hr.Image(), "path": hr.Key("path")}, view=hr.Resize((8, 8)), batch_size=COUNT)
    assert sorted(batch["path"]) == sorted(str(root / "photos" / key) for key in photos.keys)


def test_a_replaced_sample_shows_its_own(root, tmp_path):
    damaged = write_folder(tmp_path / "damaged", 12)
    bad = sorted(damaged.glob("*/*"))[5]
    bad.write_bytes(b"\xff\xd8\xff")
    data = hr.open(damaged)
    fields = {"image": hr.Image(), "label": hr.Label(), "key": hr.Key(), "path": hr.Key("path"), "at": hr.Key("index")}
    (batch,) = load(data, fields, view=hr.Resize((8, 8)), batch_size=12, max_bad=0.5, shuffle=False)
    assert batch["key"] == [data.key(at) for at in batch["at"].tolist()]
    assert batch["path"] == [str(damaged / key) for key in batch["key"]]
    assert batch["label"].tolist() == data.labels()[batch["at"]].tolist()
    assert str(bad) not in batch["path"]


def test_a_mixture_has_them_of_each_source(root):
    data = hr.open(root / "a.tar")
    parts = {"low": data[:8], "high": data[8:]}
    sources = {name: load(part, batch_size=4) for name, part in parts.items()}
    for batch in hr.mix(sources, weights={"low": 1, "high": 1}, batches="mixed", epoch=4):
        for row, source in enumerate(batch["source"].tolist()):
            part = parts[("low", "high")[source]]
            assert batch["key"][row] == part.key(int(batch["at"][row]))


def make(root):
    def made(**overrides):
        data = hr.open(root / "a.tar").select([*range(20), 3, 3])
        return load(data, **({"batch_size": 12, "seed": 4, "map": touched} | overrides))

    return made


@pytest.mark.parametrize("check", ["threads", "world sizes", "resume"])
def test_battery(root, check):
    battery.CHECKS[check](make(root))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (lambda: hr.Key("name"), r"Key: expected what to be one of \('key', 'path', 'index'\), got 'name'"),
        (
            lambda: hr.Key(source="image"),
            "Key: expected source only with what='path', whose files it names",
        ),
        (lambda: {"path": hr.Key("path")}, "field 'path': expected a field of pixels, whose files are meant, got none"),
        (lambda: {"path": hr.Key("path", source="label")}, "a column whose bytes lie in files, got 'label' of Dataset"),
        (lambda: {"path": hr.Key("path", source="image")}, "a column whose bytes lie in files, got 'image' of Dataset"),
        (lambda: {"path": hr.Key("path", source="x")}, "a column whose bytes lie in files, got 'x' of Dataset"),
    ],
)
def test_bad_use(given, message):
    with pytest.raises(UsageError, match=message):
        load(hr.open({"image": [b"x"], "label": [1]}), {"label": hr.Label()} | given())
