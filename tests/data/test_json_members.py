"""Keys of JSON members as columns, beside what WebDataset makes of the same tar; and which texts print as classes."""

from __future__ import annotations

import io
import json
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import webdataset as wds

import headrace as hr
from headrace.errors import DatasetError, DecodeError, UsageError

RECORDS: list[dict[str, Any] | None] = [
    {"caption": "a cat", "label": 3, "score": 0.5, "tags": ["x", "y"], "meta": {"width": 640, "who": "ä 漢"}},
    {"caption": "a dog", "label": 1, "score": 1, "tags": [], "meta": {"width": 320}},
    {"caption": "a cat", "label": 2, "score": 2.5, "meta": {}},
    {"caption": None, "label": 0, "extra": {"a": [1, {"b": 2}]}},
    {"caption": "an emu", "label": 5, "score": 3, "tags": ["z"], "boxes": [[1, 2, 3, 4]]},
]


def members(records) -> dict[str, bytes]:
    found = {}
    for number, record in enumerate(records):
        found[f"{number:03}.jpg"] = b"image %d" % number
        if record is not None:
            found[f"{number:03}.json"] = json.dumps(record).encode() if isinstance(record, dict) else record
    return found


def tar_of(path: Path, contents: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w") as archive:
        for name, data in contents.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return path


def zip_of(path: Path, contents: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in contents.items():
            archive.writestr(name, data)
    return path


@pytest.fixture(params=[("a.tar", tar_of), ("a.zip", zip_of)], ids=["tar", "zip"])
def archive(request, tmp_path) -> Path:
    name, write = request.param
    return write(tmp_path / name, members(RECORDS))


@pytest.mark.filterwarnings("ignore:Exception ignored in.*FileIO")  # which WebDataset leaves open
def test_keys_are_what_webdataset_decodes(tmp_path):
    path = tar_of(tmp_path / "a.tar", members(RECORDS))
    decoded = [sample["json"] for sample in wds.WebDataset(str(path), shardshuffle=False).decode()]
    data = hr.open(path, columns=["image", "json.caption", "json.label", "json.score", "json.tags"])
    assert data.fields == {
        "image": "bytes", "json.caption": "text", "json.label": "value", "json.score": "value", "json.tags": "list"
    }  # fmt: skip
    assert [sample["json.caption"] for sample in data] == [record["caption"] or "" for record in decoded]
    assert [sample["json.label"] for sample in data] == [record["label"] for record in decoded]
    assert data.columns["json.label"].values.dtype == np.int64
    scores = [record.get("score", float("nan")) for record in decoded]
    assert np.array_equal([sample["json.score"] for sample in data], scores, equal_nan=True)
    assert [sample["json.tags"] for sample in data] == [record.get("tags", []) for record in decoded]


def test_deeper_keys_in_tars_and_zips(archive):
    data = hr.open(archive, columns=["json.meta.width", "json.meta.who", "json.extra", "json.boxes", "json"])
    assert np.array_equal([sample["json.meta.width"] for sample in data], [640, 320, *[np.nan] * 3], equal_nan=True)
    assert data[0]["json.meta.who"] == "ä 漢"
    assert json.loads(data[3]["json.extra"]) == RECORDS[3]["extra"]
    assert data[4]["json.boxes"].tolist() == [[1, 2, 3, 4]]
    assert json.loads(data.read("json", 1)) == RECORDS[1]


def test_keys_are_fields(archive):
    data = hr.open(archive, columns=["image", "json.label", "json.caption"])
    fields = {"label": hr.Label(source="json.label"), "caption": hr.Raw(source="json.caption")}
    (batch,) = hr.Loader(data, fields, batch_size=5, output="numpy")
    assert batch["label"].tolist() == [3, 1, 2, 0, 5]
    assert batch["caption"] == ["a cat", "a dog", "a cat", "", "an emu"]
    classes = hr.Loader(data, {"kind": hr.Label(source="json.caption")}, batch_size=5, output="numpy")
    assert next(iter(classes))["kind"].tolist() == [0, 1, 0, -1, 2]


def test_several_archives_and_a_compound_extension(tmp_path):
    first = tar_of(tmp_path / "0.tar", {"a.jpg": b"", "a.meta.json": b'{"n": 1}'})
    second = tar_of(tmp_path / "1.tar", {"b.jpg": b"", "b.meta.json": b'{"n": 2.5}', "c.jpg": b""})
    data = hr.open([first, second], columns=["jpg", "meta.json.n"])
    assert np.array_equal([sample["meta.json.n"] for sample in data], [1, 2.5, np.nan], equal_nan=True)


def test_a_choice_of_columns_is_another_dataset_and_the_same_each_time(archive):
    chosen = hr.open(archive, columns=["image", "json.caption"])
    assert chosen.fingerprint == hr.open(archive, columns=["image", "json.caption"]).fingerprint
    assert len({chosen.fingerprint, hr.open(archive).fingerprint, hr.open(archive, columns=["image"]).fingerprint}) == 3


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("caption", r"names of columns of .* \('image', 'jpg', 'json'\), or of keys .* got 'caption'"),
        ("jpg.caption", r"columns: expected names of columns of .* got 'jpg\.caption'"),
        ("json.captions", r"columns: expected keys in the json members of .* \('caption', .*'json\.captions'"),
        ("json.meta.height", r"columns: expected keys in the json members .* got 'json\.meta\.height'"),
    ],
)  # fmt: skip
def test_names_that_are_not_there(archive, name, message):
    with pytest.raises(UsageError, match=message):
        hr.open(archive, columns=["image", name])


@pytest.mark.parametrize("content", [b"{", b"", b"[1]", b"\xff", b'{"caption": "\xff"}', b"[" * 100_000])
def test_what_is_no_json_object_is_named(tmp_path, content):
    records = [RECORDS[0], content]
    with pytest.raises(DatasetError, match=r"a\.tar at byte \d+: expected a JSON object as json of sample '001', "):
        hr.open(tar_of(tmp_path / "a.tar", members(records)), columns=["json.caption"])
    assert len(hr.open(tmp_path / "a.tar")) == 2, "without it, the sample is none of ours to judge"


def test_a_damaged_member_of_a_zip_is_not_passed_over(tmp_path):
    path = zip_of(tmp_path / "a.zip", members(RECORDS))
    raw = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as archive:
        entry = archive.getinfo("001.json")
    raw[entry.header_offset + 30 + len("001.json") + 4] ^= 0xFF
    path.write_bytes(raw)
    with pytest.raises(DecodeError, match="sample '001'"):
        hr.open(path, columns=["json.caption"])


def test_captions_print_as_texts_and_labels_as_classes():
    count = 12
    data = hr.open(
        {
            "image": [b""] * count,
            "label": [f"class {number}" for number in range(count - 1)] + ["class 0"],
            "caption": [f"a photograph of thing {number % (count - 2)}" for number in range(count)],
            "species": ["cat", "dog", "emu"] * (count // 3),
        }
    )
    assert repr(data) == (
        "Dataset: 12 samples in 11 classes, columns image (bytes), label (text: 11 classes), caption (text), "
        "species (text: 3 classes), 4 columns in memory"
    )
