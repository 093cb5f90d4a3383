"""Zips as a source: the samples of a tar with the same members, in every form that a zip can have."""

from __future__ import annotations

import os
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from zip_files import DAMAGE, DAMAGED_CONTENT, READABLE, Stream, patched, sized, written_by_hand, zip_members, zip_of

import headrace.data as data
from headrace.data.archives import zip_index
from headrace.data.storage import safetensors
from headrace.errors import (
    ChangedError,
    DatasetError,
    DecodeError,
    EmptyDatasetError,
    SampleError,
    UsageError,
)

MEMBERS = {
    "a/1.jpg": b"J1",
    "a/1.cls": b"0",
    "a/2.jpg": b"J2" * 4000,
    "b.v/3.seg.PNG": b"S3",
    "a/2.cls": b"1",
    "b.v/3.jpg": b"",
    "notes": b"no extension",
    "__meta__.txt": b"m",
    ".hidden.jpg": b"h",
    "grüße/4.jpg": b"J4",
}


def samples_of(ds: data.Dataset) -> list[dict[str, object]]:
    return [ds[i] for i in range(len(ds))]


def keys_of(path: Path) -> list[str]:
    return list(data.open(path).keys)


@pytest.mark.parametrize("method", READABLE)
def test_samples_are_those_of_a_tar(make_tar, tmp_path, method):
    tar = data.open(make_tar("a.tar", MEMBERS))
    path = zip_members(tmp_path / "a.zip", MEMBERS, method)
    for _ in range(2):  # built, then from the sidecar
        ds = data.open(path)
        assert samples_of(ds) == samples_of(tar)
        assert list(ds.fields) == list(tar.fields)
        assert ds.skipped == tar.skipped
    with zipfile.ZipFile(path) as reference:
        assert ds.read("jpg", 1) == reference.read("a/2.jpg")
    assert repr(ds) == repr(tar).replace("tar a.tar", "zip a.zip")


def test_classes_are_those_of_a_tar(make_tar, tmp_path):
    members = {"./dog/1.jpg": b"d1", "cat/deep/2.jpg": b"c2", "README.md": b"r", "cat/notes.txt": b"n"}
    tar = data.open(make_tar("a.tar", members), classes=True)
    ds = data.open(zip_members(tmp_path / "a.zip", members), classes=True)
    assert samples_of(ds) == samples_of(tar)
    assert (ds.classes, ds.skipped) == (tar.classes, tar.skipped)


def test_folders_are_counted_and_no_samples(tmp_path):
    paths = [
        zip_members(tmp_path / "a.zip", {"folder.jpg/": b"", "folder.jpg/1.jpg": b"x"}),
        written_by_hand(tmp_path / "nameless.zip", b"", b"x"),
    ]
    ds = data.open(paths)
    assert list(ds.keys) == ["folder.jpg/1"]
    assert ds.skipped == {"directories": 1, "members without extension": 1}


def test_several_zips_are_one_dataset(tmp_path, monkeypatch):
    for number, method in enumerate(READABLE):
        zip_members(tmp_path / f"s-{number}.zip", {f"{number}.jpg": b"%d" % number}, method)
    zip_members(tmp_path / "s-2.zip", {})
    monkeypatch.chdir(tmp_path)
    for where in ("s-*.zip", "s-{0..2}.zip", ["s-0.zip", "s-1.zip", "s-2.zip"]):
        ds = data.open(where)
        assert [ds[i]["image"] for i in range(len(ds))] == [b"0", b"1"]
    assert repr(ds).endswith("3 zips s-0.zip … s-2.zip")
    at = ds.locate("image", np.array([1, 0]))
    assert at.path_id.tolist() == [1, 0]


def test_the_last_of_a_name_counts(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("1.jpg", b"old")
        with pytest.warns(UserWarning, match="Duplicate name"):
            archive.writestr("1.jpg", b"new")
    ds = data.open(tmp_path / "a.zip")
    assert (ds[0]["jpg"], ds.skipped) == (b"new", {"duplicate members": 1})


def test_the_fingerprint_is_of_the_data_and_not_of_its_packing(tmp_path):
    same = [data.open(zip_members(tmp_path / f"{method}.zip", MEMBERS, method)).fingerprint for method in READABLE]
    other = data.open(zip_members(tmp_path / "c.zip", MEMBERS | {"a/1.jpg": b"J9"})).fingerprint
    assert same[0] == same[1] != other


# --- forms ---


def streamed() -> bytes:
    """Sizes behind the data, a program before the zip, ZIP64 fields in local headers, comments."""
    out = Stream()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        with archive.open("1.jpg", "w", force_zip64=True) as file:
            file.write(b"zip64")
        info = zipfile.ZipInfo("2.jpg")
        info.comment, info.extra = b"about this one", b"\xfe\xca\x04\x00abcd"
        archive.writestr(info, b"x" * 100)
        archive.comment = b"about all"
    return b"#!/bin/sh\nexit 0\n" + out.getvalue()


def test_streamed_prefixed_and_commented(tmp_path):
    (tmp_path / "a.zip").write_bytes(streamed())
    assert samples_of(data.open(tmp_path / "a.zip")) == [
        {"__key__": "1", "jpg": b"zip64", "image": b"zip64"},
        {"__key__": "2", "jpg": b"x" * 100, "image": b"x" * 100},
    ]


def test_a_local_header_longer_than_was_read_ahead(tmp_path):
    """Extra fields of the local header alone: the directory knows nothing of their length."""
    extra = struct.pack("<HH", 0xCAFE, 60_000) + bytes(60_000)
    path = written_by_hand(tmp_path / "a.zip", b"a.jpg", b"found", local_extra=extra, before=100)
    assert data.open(path).read("image", 0) == b"found"


def test_far_into_a_large_zip(tmp_path):
    path = written_by_hand(tmp_path / "a.zip", b"a.jpg", b"far", before=5 << 30)
    assert data.open(path).read("image", 0) == b"far"


def test_a_zip_is_known_by_its_name_or_its_first_bytes(tmp_path):
    unnamed = zip_members(tmp_path / "photos.dat", {"1.jpg": b"x"})
    empty = zip_members(tmp_path / "empty.cbz", {})
    assert keys_of(unnamed) == ["1"]
    with pytest.raises(EmptyDatasetError, match=r"expected regular files .* got nothing\. Look at it with `unzip -l`"):
        data.open(empty)
    (tmp_path / "text.ZIP").write_bytes(b"just a text\n" * 100)
    with pytest.raises(
        DatasetError, match=r"text\.ZIP: expected a zip, got a file without .* Check it with `unzip -t`"
    ):
        data.open(tmp_path / "text.ZIP")


def test_tars_and_zips_are_opened_apart(make_tar, tmp_path):
    paths = [make_tar("a.tar", {"1.jpg": b"x"}), zip_of(tmp_path / "b.zip", b"x")]
    with pytest.raises(
        UsageError, match=r"expected files of one kind, got a tar, .*a\.tar, and a zip, .*b\.zip\. Open them apart"
    ):
        data.open(paths)


def test_too_many_extensions(tmp_path):
    path = zip_members(tmp_path / "frames.zip", {f"frame.{i:04d}.jpg": b"x" for i in range(300)})
    with pytest.raises(DatasetError, match=r"frames\.zip: more than max_\w*extensions = 256 .*stems hold no dot"):
        data.open(path)


# --- what is not read, and what has changed ---


@pytest.mark.parametrize(("changes", "error", "message"), DAMAGE.values(), ids=DAMAGE)
def test_what_is_wrong_has_a_name(tmp_path, changes, error, message):
    path = zip_members(tmp_path / "a.zip", {"1.jpg": DAMAGED_CONTENT})
    ds = data.open(patched(path, changes))
    with pytest.raises(error, match=message) as caught:
        ds.read("image", 0)
    assert str(path) in str(caught.value)
    if isinstance(caught.value, SampleError):
        assert (caught.value.key, caught.value.offset, caught.value.field) == ("1", 0, "image")


def test_a_bomb_that_says_less_than_it_holds(tmp_path):
    path = sized(zip_members(tmp_path / "a.zip", {"1.jpg": bytes(50_000_000)}), 1000)
    with pytest.raises(DecodeError, match="expected 1000 bytes, got more"):
        data.open(path).read("image", 0)


def test_a_zip_cut_short(tmp_path):
    path = zip_members(tmp_path / "a.zip", {"1.jpg": bytes(1000)}, zipfile.ZIP_STORED)
    ds = data.open(path)
    os.truncate(path, 500)
    with pytest.raises(ChangedError, match="has become shorter"):
        ds.read("image", 0)


# --- the index ---


@pytest.mark.filterwarnings("ignore:.*expected the index of:UserWarning")  # which says that it is built again
@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("offset", lambda values: values + 2**62),
        ("packed", lambda values: -values),
        ("end", lambda values: values * 0),
        ("samples.member", lambda values: values + 1000),
        ("samples.first", lambda values: values[::-1]),
        ("names.offsets", lambda values: values[:-1]),
    ],
)
def test_a_damaged_index_is_built_again(tmp_path, monkeypatch, name, change):
    builds: list[str] = []
    build = zip_index.build_zip_index
    monkeypatch.setattr(zip_index, "build_zip_index", lambda path: builds.append(path) or build(path))
    path = zip_members(tmp_path / "a.zip", MEMBERS)
    expected = samples_of(data.open(path))
    arrays, metadata = safetensors.read_arrays(f"{path}.headrace")
    arrays = {key: values.copy() for key, values in arrays.items()}
    arrays[name] = np.ascontiguousarray(change(arrays[name]))
    with open(f"{path}.headrace", "wb") as file:
        safetensors.write_arrays(file, arrays, metadata)
    assert samples_of(data.open(path)) == expected
    assert len(builds) == 2


@given(damage=st.lists(st.tuples(st.integers(0, 330), st.binary(min_size=1, max_size=8)), min_size=1, max_size=4))
def test_odd_bytes_give_an_error_or_the_right_data(tmp_path_factory, damage):
    contents = {"a.jpg": b"abc" * 30, "b.jpg": b"xyz" * 30}
    path = zip_members(tmp_path_factory.mktemp("odd") / "a.zip", contents)
    raw = bytearray(path.read_bytes())
    for at, junk in damage:
        raw[at : at + len(junk)] = junk
    path.write_bytes(raw)
    try:
        ds = data.open(path)
    except DatasetError:
        return
    column = ds.columns.get("image")
    for i in range(len(ds) if column is not None else 0):
        try:
            read = ds.read("image", i)
        except (SampleError, ChangedError, KeyError):
            continue
        whole_file = read == path.read_bytes()  # where the first bytes became an image's: the file is that image
        assert read in contents.values() or (whole_file and len(ds) == 1)
