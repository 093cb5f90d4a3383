"""How members become samples and columns, against webdataset's own grouping."""

from __future__ import annotations

import os
import re
import tarfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from webdataset.tariterators import base_plus_ext, group_by_keys, tar_file_expander

import headrace.data as data
from headrace.data import StringColumn
from headrace.data.archives.archive_columns import ArchiveKeys, ArchiveSamples
from headrace.data.archives.archive_members import GroupedMembers
from headrace.errors import DatasetError, EmptyDatasetError

PHOTO = {
    "a/1.jpg": b"J1",
    "a/1.cls": b"0",
    "a/2.jpg": b"J2",
    "a/2.cls": b"1",
    "b.v/3.seg.PNG": b"S3",
    "b.v/3.jpg": b"J3",
}


def webdataset_samples(path) -> list[dict[str, bytes]]:
    with path.open("rb") as stream:
        members = tar_file_expander([{"url": "x", "stream": stream}], eof_value=None)
        return [{k: v for k, v in sample.items() if k != "__url__"} for sample in group_by_keys(members)]


def own_samples(ds: data.Dataset) -> list[dict[str, bytes]]:
    """Without the aliases, which webdataset does not have."""
    names = {"__key__", *ds.fields} - {"image", "label", "text"}
    return [{k: v for k, v in ds[i].items() if k in names} for i in range(len(ds))]


def test_samples_are_webdatasets(make_tar):
    path = make_tar(
        "a.tar", {**PHOTO, "__meta__": b"m", "notes": b"no extension", "__x__/y.jpg": b"skipped", ".ds": b"h"}
    )
    ds = data.open(path)
    assert own_samples(ds) == webdataset_samples(path)
    assert ds.skipped == {"hidden members": 1, "members without extension": 1, "metadata members": 2}


part = st.text(st.sampled_from("ab.AB_é"), min_size=1, max_size=4)


@given(st.lists(st.builds("/".join, st.lists(part, min_size=1, max_size=3)), max_size=12))
@settings(max_examples=3 * settings().max_examples, deadline=None)
def test_keys_and_extensions_are_webdatasets(names):
    column = StringColumn.from_list(names)
    samples = GroupedMembers.group(column, np.full(len(names), ord("0"), np.uint8), {})
    keys = ArchiveKeys(ArchiveSamples((column,), (samples,)))
    found = {
        (keys[sample], samples.extensions[samples.extension[at]]): names[samples.member[at]]
        for sample in range(len(samples))
        for at in range(samples.first[sample], samples.first[sample + 1])
    }
    expected = {}
    for name in names:
        key, extension = base_plus_ext(re.sub(r"^(\./)+", "", name))
        # webdataset takes "a/.b" for key "a/" and extension "b"; a hidden file is no sample here.
        if key is not None and extension and not name.rpartition("/")[2].startswith("."):
            # As the core has it, ASCII alone: what a letter beyond it is depends on the encoding.
            expected[key, extension.encode().lower().decode()] = name
    assert found == expected
    assert list(dict.fromkeys(key for key, _ in expected)) == list(keys)


def test_members_of_a_sample_may_lie_apart(make_tar):
    path = make_tar("a.tar", {"1.rgb.png": b"R1", "2.rgb.png": b"R2", "1.depth.png": b"D1", "2.depth.png": b"D2"})
    ds = data.open(path)
    assert own_samples(ds) == [
        {"__key__": "1", "rgb.png": b"R1", "depth.png": b"D1"},
        {"__key__": "2", "rgb.png": b"R2", "depth.png": b"D2"},
    ]


def test_last_duplicate_wins_as_in_extraction(make_tar, tmp_path):
    path = make_tar("a.tar", [("1.jpg", b"old"), ("1.cls", b"0"), ("1.jpg", b"new")])
    ds = data.open(path)
    with tarfile.open(path) as tar:
        options = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}  # Debian 12's Python has none yet
        tar.extractall(tmp_path / "out", **options)
    assert ds[0]["jpg"] == (tmp_path / "out/1.jpg").read_bytes() == b"new"
    assert ds.skipped == {"duplicate members": 1}


def test_usual_columns(make_tar):
    path = make_tar(
        "a.tar", {"1.png": b"P1", "1.jpg": b"J1", "1.txt": b"one", "2.webp": b"W2", "2.cls": b"7", "3.json": b"{}"}
    )
    ds = data.open(path)
    assert list(ds.fields) == ["image", "label", "text", "cls", "jpg", "json", "png", "txt", "webp"]
    assert set(ds.fields.values()) == {"bytes"}
    images = [ds[i].get("image") for i in range(3)]
    assert images == [b"J1", b"W2", None]
    assert (ds[0]["text"], ds[1]["label"], ds[2]["json"]) == (b"one", b"7", b"{}")


def test_an_extension_named_like_an_alias_is_itself(make_tar):
    ds = data.open(make_tar("a.tar", {"1.jpg": b"J", "1.image": b"raw", "1.cls": b"3", "1.label": b"L"}))
    assert (ds[0]["image"], ds[0]["label"]) == (b"raw", b"L")


def test_several_tars_are_one_dataset(make_tar):
    paths = [
        make_tar("s-0.tar", {"1.jpg": b"a", "1.cls": b"0"}),
        make_tar("s-1.tar", {"1.png": b"b"}),
        make_tar("s-2.tar", {}),
        make_tar("s-3.tar", {"9.jpg": b"c", "10.jpg": b"d"}),
    ]
    ds = data.open(paths)
    assert [ds[i]["image"] for i in range(4)] == [b"a", b"b", b"c", b"d"]
    assert list(ds.keys) == ["1", "1", "9", "10"]
    assert [os.path.basename(ds.where("image", i)[0]) for i in range(4)] == ["s-0.tar", "s-1.tar", "s-3.tar", "s-3.tar"]
    assert list(ds.files("image").names) == ["s-0.tar", "s-1.tar", "s-2.tar", "s-3.tar"]
    assert repr(ds).endswith("4 tars s-0.tar … s-3.tar")
    at = ds.locate("image", np.array([3, 1]))
    assert (at.path_id.tolist(), at.path_id.dtype) == ([3, 1], np.int64)


def test_class_folders_in_tars(make_tar):
    paths = [
        make_tar("0.tar", {"./dog/1.jpg": b"d1", "cat/deep/2.jpg": b"c2", "README.md": b"r"}),
        make_tar("1.tar", {"ape/3.jpg": b"a3", "cat/4.png": b"c4", "cat/notes.txt": b"n", "zoo/x.txt": b"z"}),
    ]
    ds = data.open(paths, classes=True)
    assert ds.classes == ("ape", "cat", "dog")
    assert [(ds[i]["image"], ds[i]["label"]) for i in range(4)] == [(b"d1", 2), (b"c2", 1), (b"a3", 0), (b"c4", 1)]
    assert ds.fields["label"] == "value"
    assert ds.skipped == {"samples outside class folders": 1, "samples without an image": 2}


def test_class_folder_outranks_cls(make_tar):
    ds = data.open(make_tar("a.tar", {"x/1.jpg": b"1", "x/1.cls": b"9"}), classes=True)
    assert (ds[0]["label"], ds[0]["cls"]) == (0, b"9")


def test_names_that_are_not_utf8(make_tar):
    name = b"caf\xe9/\xff.jpg".decode("utf-8", "surrogateescape")
    path = make_tar("a.tar", [(name, b"1"), ("b.\udcfe", b"2")], tarfile.GNU_FORMAT)
    for _ in range(2):  # built, then from the sidecar
        ds = data.open(path, classes=None)
        assert ds.key(0).encode("utf-8", "surrogateescape") == b"caf\xe9/\xff"
        assert ds[1]["\udcfe"] == b"2"
    assert data.open(path, classes=True).classes == ("caf\udce9",)


def test_too_many_extensions(make_tar):
    path = make_tar("frames.tar", {f"frame.{i:04d}.jpg": b"x" for i in range(300)})
    with pytest.raises(DatasetError, match=r"max_extensions = 256 .*'0255\.jpg' and '0256\.jpg'.*stems hold no dot"):
        data.open(path)


@pytest.mark.parametrize("members", [{"1.jpg": b"x"}, {"a/1.txt": b"x"}])
def test_classes_without_class_folders(make_tar, members):
    with pytest.raises(
        DatasetError, match=r"expected images in class folders .* samples such as '.*1'. Pass classes=False"
    ):
        data.open(make_tar("a.tar", members), classes=True)


def test_classes_without_images_in_them(make_tar):
    with pytest.raises(EmptyDatasetError, match="got none in any folder"):
        data.open(make_tar("a.tar", {"1.jpg": b"x", "a/1.txt": b"x"}), classes=True)
