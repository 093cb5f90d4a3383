"""What `open` takes, and what it says of what it does not take."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
from pathlib import Path

import pytest
from braceexpand import braceexpand

import headrace.data as data
from headrace.errors import DatasetError, EmptyDatasetError, NotFoundError, ReadError, UsageError


@pytest.fixture
def shards(make_tar, tmp_path, monkeypatch) -> Path:
    """Three tars with one sample each, from within their folder."""
    for i in range(3):
        make_tar(f"train-{i:03d}.tar", {f"{i}.jpg": b"x"})
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("train-000.tar", "0"),
        ("train-*.tar", "012"),
        ("train-*", "012"),
        ("./train-00[12].tar", "12"),
        ("train-{000..002}.tar", "012"),
        ("train-{002..000..2}.tar", "20"),
        ("train-{00{1,2},000}.tar", "120"),
        ("{train-001,train-00[02]}.tar", "102"),
        (["train-002.tar", Path("train-000.tar")], "20"),
        (("train-{001..002}.tar", "train-000.tar"), "120"),
        (["train-001.tar", "train-001.tar"], "11"),
        (Path("train-001.tar"), "1"),
    ],
)
def test_paths_and_patterns(shards, where, expected):
    for _ in range(2):  # then with the indices lying beside the tars
        assert "".join(data.open(where).keys) == expected


@pytest.mark.parametrize(
    "pattern", ["a{1..3}b", "{a,b{1,2},}c", "x{09..11}", "{c..a}{1,2}", "p{3..1..2}", r"\{a,b\}{1,2}"]
)
def test_braces_are_webdatasets(pattern):
    from headrace.data.storage.paths import expand_pattern

    assert expand_pattern(pattern) == list(braceexpand(pattern))


def test_a_name_that_exists_is_no_pattern(make_tar, tmp_path):
    path = make_tar("odd[0]{1,2}.tar", {"1.jpg": b"x"})
    assert len(data.open(path)) == 1
    (tmp_path / "set[1]").mkdir()
    (tmp_path / "set[1]/1.jpg").write_bytes(b"x")
    assert len(data.open(str(tmp_path / "set[1]"))) == 1


def test_home_is_expanded(shards, monkeypatch):
    monkeypatch.setenv("HOME", str(shards))
    assert len(data.open("~/train-000.tar")) == 1


def test_a_folder_given_with_a_slash(tmp_path):
    (tmp_path / "1.jpg").write_bytes(b"x")
    assert repr(data.open(f"{tmp_path}/")).endswith(f"folder {tmp_path.name}/")


def test_missing_path_names_the_nearest(shards):
    with pytest.raises(
        NotFoundError,
        match=r"train-00\.tar: expected a folder, an archive or a manifest, got nothing\. Did you mean .*tar\?",
    ):
        data.open("train-00.tar")
    with pytest.raises(NotFoundError, match=rf"no/such/place: .* got nothing\. {shards} exists and holds 3 entries"):
        data.open("no/such/place")
    with pytest.raises(FileNotFoundError, match=r"train-003\.tar"):
        data.open("train-{000..003}.tar")


def test_pattern_without_a_match(shards):
    with pytest.raises(NotFoundError, match=r"expected files that match 'val-\*\.tar', got none\."):
        data.open("val-*.tar")


@pytest.mark.parametrize(
    ("where", "message"),
    [
        (3, "expected a path, a pattern or a list of paths, or samples in memory, got 3"),
        ([None], "got None"),
        ("", "got an empty string"),
        ("ftp://host/a.tar", "expected a local path, got 'ftp://host/a.tar'. Download it"),
        ("train-{000..002.tar", "expected balanced braces"),
        ("{0..100000}.tar", "expected a pattern of at most 100,000 paths"),
    ],
)
def test_wrong_arguments(shards, where, message):
    with pytest.raises(UsageError, match=message):
        data.open(where)


def test_folders_do_not_mix_with_tars(shards):
    (shards / "more").mkdir()
    with pytest.raises(DatasetError, match=r"more: expected an archive, got a folder\. Open a folder on its own"):
        data.open(["train-000.tar", "more"])


def test_special_files(tmp_path):
    os.mkfifo(tmp_path / "pipe.tar")
    with pytest.raises(
        DatasetError, match=r"pipe\.tar: expected a folder, an archive or a manifest, got a special file"
    ):
        data.open(tmp_path / "pipe.tar")


@pytest.mark.parametrize(
    ("compress", "name", "command"),
    [
        (gzip.compress, "gzip", "gunzip"),
        (bz2.compress, "bzip2", "bunzip2"),
        (lzma.compress, "xz", "unxz"),
        (lambda raw: b"\x28\xb5\x2f\xfd" + raw, "zstd", "unzstd"),
    ],
)
def test_compressed_tars(make_tar, compress, name, command):
    path = make_tar("a.tar", {"1.jpg": b"x"})
    path.write_bytes(compress(path.read_bytes()))
    with pytest.raises(DatasetError, match=rf"one compressed with {name}, .* Decompress it: {command} -k a\.tar"):
        data.open(path)


def test_text_given_as_a_tar(tmp_path):
    (tmp_path / "list.tar").write_text("a.jpg\nb.jpg\n" * 100)
    with pytest.raises(
        DatasetError, match=r"list\.tar: at byte 0: expected a tar header, got a block that begins with 'a\.jpg"
    ):
        data.open(tmp_path / "list.tar")


def test_short_text_given_as_a_tar(tmp_path):
    (tmp_path / "note.tar").write_text("hello")
    with pytest.raises(
        DatasetError, match=r"note\.tar: at byte 0: .*expected a header of 512 bytes, got 5\. Check it with"
    ):
        data.open(tmp_path / "note.tar")


def test_tar_cut_short(make_tar):
    path = make_tar("a.tar", {"1.jpg": b"x" * 1000, "2.jpg": b"y" * 9000})
    os.truncate(path, 5000)
    with pytest.raises(
        DatasetError, match=r"at byte 1536: is cut short: expected 9000 bytes of '2\.jpg', got 2952\. Check it"
    ):
        data.open(path)


def test_tar_without_samples(make_tar, tmp_path):
    with pytest.raises(
        EmptyDatasetError, match=r"0\.tar: expected regular files with an extension, got nothing\. Look at it"
    ):
        data.open(make_tar("0.tar", {}))
    with pytest.raises(EmptyDatasetError, match="got 2 members without extension"):
        data.open(make_tar("1.tar", {"README": b"", "a/LICENSE": b""}))
    with pytest.raises(EmptyDatasetError, match=r"2 tars 0\.tar … 1\.tar: .* got 2 members without extension"):
        data.open([tmp_path / "0.tar", tmp_path / "1.tar"])
    (tmp_path / "zero.tar").touch()
    with pytest.raises(EmptyDatasetError, match="got nothing"):
        data.open(tmp_path / "zero.tar")


def test_unreadable_tar(make_tar, as_nobody):
    path = make_tar("a.tar", {"1.jpg": b"x"})
    fd = os.open(path.parent, os.O_RDONLY)  # pytest's folders are closed to others: go in before giving up root
    before = os.getcwd()
    try:
        os.fchdir(fd)
        os.chmod("a.tar", 0)
        from headrace.data.archives.tar_index import TAR

        with (
            as_nobody(),
            pytest.raises(ReadError, match=r"a\.tar at byte 0: could not be read: Permission denied; check its perm"),
        ):
            TAR.open_index("a.tar", cache=None)
    finally:
        os.chdir(before)
        os.close(fd)


def test_one_bad_tar_among_many_is_named(shards):
    (shards / "train-001.tar").write_bytes(b"junk" * 500)
    with pytest.raises(DatasetError, match=r"train-001\.tar: at byte 0"):
        data.open("train-*.tar")
