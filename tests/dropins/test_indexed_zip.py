"""`IndexedZip` against `zipfile`: what it finds and reads, what it refuses, and what it says of a changed zip."""

from __future__ import annotations

import os
import pickle
import shutil
import struct
import threading
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from archive_workers import READS, content_of, read_at_random
from archives import NAMES, write_zip
from hypothesis import given
from hypothesis import strategies as st
from zip_files import CENTRAL, LOCAL, patched, sized, zip_of

from headrace.data.archives import zip_index
from headrace.data.archives.zip_reading import InflateError, inflate
from headrace.data.storage import safetensors
from headrace.dropins.indexed_zip import IndexedZip
from headrace.errors import (
    ChangedError,
    DamagedMemberError,
    DatasetError,
    MemberLimitError,
    MissingMemberError,
    NotFoundError,
    UnsupportedMemberError,
    UsageError,
)

METHODS = [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA]
ATTRIBUTES = ["filename", "file_size", "compress_size", "compress_type", "CRC", "header_offset", "flag_bits"]


@pytest.fixture(autouse=True)
def spare_the_users_cache(own_cache) -> None:
    """No test writes into the user's cache folder."""


@pytest.fixture(scope="module")
def frames(tmp_path_factory) -> Path:
    """300 members with their index beside them; tests that change it take a copy."""
    path = write_zip(tmp_path_factory.mktemp("frames") / "frames.zip")
    IndexedZip(path).close()
    return path


@pytest.fixture
def own_frames(frames, tmp_path) -> Path:
    return Path(shutil.copy(frames, tmp_path))


def same_as_zipfile(path: Path) -> None:
    with zipfile.ZipFile(path) as reference, IndexedZip(path) as archive:
        assert archive.namelist() == archive.getnames() == reference.namelist()
        assert len(archive) == len(archive.infolist()) == len(reference.infolist())
        for own, theirs in zip(archive, reference.infolist(), strict=True):
            for name in ATTRIBUTES:
                assert getattr(own, name) == getattr(theirs, name), name
            assert (own.name, own.size, own.is_dir()) == (theirs.filename, theirs.file_size, theirs.is_dir())
            assert (own.isdir(), own.isfile()) == (theirs.is_dir(), not theirs.is_dir())
            assert archive.read(own) == archive.open(own).read() == reference.read(theirs)
        for name in reference.namelist():
            assert archive.getinfo(name).header_offset == reference.getinfo(name).header_offset
            assert archive.read(name) == reference.read(name)


# --- against zipfile ---


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.one_in(2)
def test_finds_and_reads_what_zipfile_does(tmp_path, method):
    path = write_zip(
        tmp_path / "a.zip", [*NAMES[:20], "folder/", "grüße/写真.jpg", "./a", "a", "../up", "/abs"], method
    )
    same_as_zipfile(path)


def test_the_last_of_a_name_counts(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("a", "old")
        with pytest.warns(UserWarning, match="Duplicate name"):
            archive.writestr("a", "new")
    same_as_zipfile(tmp_path / "a.zip")
    with IndexedZip(tmp_path / "a.zip") as archive:
        assert archive.read("a") == b"new"
        assert [archive.read(member) for member in archive] == [b"old", b"new"]


def test_members_as_files(frames):
    with IndexedZip(frames) as archive:
        first, second = archive.extractfile(NAMES[1]), archive.open(NAMES[1], "r")
        assert first.read(4) == content_of(NAMES[1])[:4]
        assert (first.tell(), second.tell()) == (4, 0)
        with pytest.raises(UsageError, match=r"expected mode 'r'.*got 'w'"):
            archive.open(NAMES[1], "w")


def test_folders_are_no_files(tmp_path):
    with IndexedZip(write_folder_zip(tmp_path)) as archive:
        assert archive.extractfile("folder/") is None
        assert archive.open("folder/").read() == archive.read("folder/") == b""


def write_folder_zip(folder: Path) -> Path:
    with zipfile.ZipFile(folder / "a.zip", "w") as archive:
        archive.writestr("folder/", b"")
    return folder / "a.zip"


def test_missing_names(frames):
    with IndexedZip(frames) as archive:
        with pytest.raises(
            MissingMemberError, match=r"filename 'frame_0000' not found\. Did you mean 'scene0/frame_0000'"
        ):
            archive.getinfo("frame_0000")
        assert NAMES[0] in archive
        assert f"./{NAMES[0]}" not in archive  # names are exact, as zipfile has them


# --- readers ---


def test_threads_and_pickles(frames):
    right: list[int] = []
    with IndexedZip(frames, max_member_bytes=80_000) as archive:
        copied = pickle.loads(pickle.dumps(archive))
        threads = [
            threading.Thread(target=lambda seed=seed: right.append(read_at_random(seed, [archive, copied], NAMES)))
            for seed in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert right == [READS] * 8
        copied.close()


def test_the_limit_goes_with_a_pickle(frames):
    name = max(NAMES, key=lambda name: len(content_of(name)))
    with IndexedZip(frames, max_member_bytes=100) as archive, pytest.raises(MemberLimitError):
        pickle.loads(pickle.dumps(archive)).read(name)


# --- bombs ---


@pytest.mark.parametrize("method", METHODS[1:])
@pytest.mark.one_in(4)
def test_never_inflates_more_than_was_declared(tmp_path, method):
    path = sized(zip_of(tmp_path / "bomb.zip", bytes(50_000_000), method), 1000)
    tracemalloc.start()
    with (
        IndexedZip(path) as archive,
        pytest.raises(DamagedMemberError, match=r"'a': expected 1000 bytes, got more: what"),
    ):
        archive.read("a")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 5_000_000


def test_what_declares_more_than_the_limit_is_not_read(tmp_path):
    path = zip_of(tmp_path / "bomb.zip", bytes(1_000_001))
    with (
        IndexedZip(path, max_member_bytes=1_000_000) as archive,
        pytest.raises(
            MemberLimitError, match=r"'a' has 1,000,001 bytes, more than max_member_bytes = 1,000,000\. Raise"
        ),
    ):
        archive.read("a")
    with IndexedZip(path, max_member_bytes=1_000_001) as archive:
        assert archive.read("a") == bytes(1_000_001)
    for wrong in (0, "1 GB", 0.5, True, None):
        with pytest.raises(UsageError, match=f"max_member_bytes: expected an int of 1 or more, got {wrong!r}"):
            IndexedZip(path, max_member_bytes=wrong)


def test_a_declared_terabyte_is_refused_by_default(tmp_path):
    with (
        IndexedZip(sized(zip_of(tmp_path / "bomb.zip", b"x"), 2**32 - 2)) as archive,
        pytest.raises(MemberLimitError, match="4,294,967,294 bytes, more than max_member_bytes = 1,073,741,824"),
    ):
        archive.read("a")


def test_members_that_overlap_are_refused(tmp_path):
    """A bomb that needs no nesting: one member's data holds another's header (Fifield, 2019)."""
    inner = zip_of(tmp_path / "inner.zip", b"the kernel", zipfile.ZIP_STORED).read_bytes()
    with zipfile.ZipFile(tmp_path / "bomb.zip", "w") as archive:
        archive.writestr("outer", inner)
        info = zipfile.ZipFile(tmp_path / "inner.zip").getinfo("a")
        info.header_offset = 30 + len("outer")
        archive.filelist.append(info)
        archive.NameToInfo["a"] = info
    with IndexedZip(tmp_path / "bomb.zip") as archive:
        with pytest.raises(DamagedMemberError, match="member 'outer': it overlaps the next member, as in a zip bomb"):
            archive.read("outer")
        assert archive.read("a") == b"the kernel"


def test_members_in_the_same_place_are_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "bomb.zip", "w") as archive:
        archive.writestr("a", b"the kernel")
        archive.filelist.append(archive.filelist[0])
    with IndexedZip(tmp_path / "bomb.zip") as archive:
        members = archive.getmembers()
        with pytest.raises(DamagedMemberError, match="overlaps"):
            archive.read(members[0])


def test_lzma_dictionaries_are_no_larger_than_the_data():
    properties = struct.pack("<BBHBI", 9, 4, 5, 93, 2**32 - 1)
    with pytest.raises(InflateError, match=r"its compressed data is damaged|expected 10 bytes, got"):
        inflate(properties + bytes(20), zipfile.ZIP_LZMA, 10)
    with pytest.raises(InflateError, match="its LZMA properties are not valid"):
        inflate(struct.pack("<BBHBI", 9, 4, 5, 225, 4096), zipfile.ZIP_LZMA, 10)


@given(st.binary(max_size=60), st.sampled_from(METHODS), st.integers(0, 40))
def test_any_bytes_inflate_to_what_was_announced_or_fail(data, method, size):
    try:
        assert len(inflate(data, method, size)) == size
    except InflateError:
        return


# --- what is not read ---


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({(CENTRAL, 8, "<H"): 1}, UnsupportedMemberError, r"member 'a' is encrypted\. Unpack it with another tool"),
        (
            {(CENTRAL, 10, "<H"): 97},
            UnsupportedMemberError,
            r"compressed by method 97; expected one of \[0, 8, 12, 14\]",
        ),
        ({(CENTRAL, 16, "<I"): 1}, DamagedMemberError, r"member 'a': expected bytes with CRC 00000001, got .*unzip -t"),
        (
            {(CENTRAL, 20, "<I"): 5},
            DamagedMemberError,
            r"member 'a': its compressed data is damaged|expected \d+ bytes",
        ),
        ({(CENTRAL, 24, "<I"): 7}, DamagedMemberError, r"member 'a': expected 7 bytes, got more"),
        ({(CENTRAL, 24, "<I"): 500_000}, DamagedMemberError, r"member 'a': expected 500000 bytes, got 1000"),
        ({(LOCAL, 8, "<H"): 0}, DamagedMemberError, "its local header is not what the central directory says"),
        ({(LOCAL, 30, "<B"): ord("b")}, DamagedMemberError, "its local header is not what the central directory says"),
        ({(LOCAL, 0, "<B"): 0}, DamagedMemberError, "its local header is not what the central directory says"),
    ],
)
def test_damage_has_a_name(tmp_path, changes, error, message):
    path = patched(zip_of(tmp_path / "a.zip", bytes(range(250)) * 4), changes)
    with IndexedZip(path) as archive, pytest.raises(error, match=message) as caught:
        archive.read("a")
    assert str(path) in str(caught.value)


def test_what_cannot_be_opened(tmp_path):
    with pytest.raises(NotFoundError, match=r"none\.zip: expected an archive, got nothing"):
        IndexedZip(tmp_path / "none.zip")
    (tmp_path / "a.zip").write_bytes(b"just a text\n" * 100)
    with pytest.raises(
        DatasetError,
        match=r"a\.zip: expected a zip, got a file without the end record of one\. Check it with `unzip -t`",
    ):
        IndexedZip(tmp_path / "a.zip")
    whole = zip_of(tmp_path / "b.zip", b"x" * 100).read_bytes()
    (tmp_path / "b.zip").write_bytes(whole[:-10])
    with pytest.raises(DatasetError, match=r"b\.zip: expected a zip"):
        IndexedZip(tmp_path / "b.zip")
    path = patched(zip_of(tmp_path / "c.zip", b"x" * 100), {(CENTRAL, 20, "<I"): 10_000})
    with pytest.raises(DatasetError, match=r"c\.zip: its central directory points outside the file"):
        IndexedZip(path)


# --- a zip that changes ---


def test_a_zip_cut_short_under_its_reader(own_frames):
    with IndexedZip(own_frames) as archive:
        os.truncate(own_frames, archive.getinfo(NAMES[-1]).header_offset + 3)
        with pytest.raises(ChangedError, match=r"frames\.zip at byte \d+: expected 30 bytes, got 3: .* become shorter"):
            archive.read(NAMES[-1])
        assert archive.read(NAMES[0]) == content_of(NAMES[0])


@pytest.mark.parametrize("rename", [lambda name: f"x/{name}", lambda name: name], ids=["other names", "other content"])
def test_a_zip_written_over_under_its_reader(own_frames, rename: Callable[[str], str]):
    with IndexedZip(own_frames) as archive:
        with own_frames.open("r+b") as file:  # in place: the same file with other content
            file.truncate()
            with zipfile.ZipFile(file, "w") as other:
                for name in NAMES:
                    other.writestr(rename(name), content_of(name)[::-1])
        with pytest.raises(ChangedError, match=r"the file has changed since it was opened\. Open it again"):
            archive.read(NAMES[0])
    with IndexedZip(own_frames) as archive:
        assert archive.read(rename(NAMES[9])) == content_of(NAMES[9])[::-1]


def test_a_zip_replaced_by_name_goes_on_as_it_was_opened(own_frames, tmp_path):
    with IndexedZip(own_frames) as archive:
        packed = pickle.dumps(archive)
        os.replace(zip_of(tmp_path / "new.zip", b"new"), own_frames)
        assert archive.read(NAMES[1]) == content_of(NAMES[1])
        with pytest.raises(ChangedError, match="is not the file that was opened and then passed to this process"):
            pickle.loads(packed).read(NAMES[1])


# --- the index ---


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("offset", lambda values: values + 2**62),
        ("offset", lambda values: values - 1),
        ("packed", lambda values: -values),
        ("size", lambda values: -values - 1),
        ("end", lambda values: values * 0),
        ("end", lambda values: values + 2**40),
        ("check", lambda values: values[:-1]),
        ("names.order", lambda values: values + 1),
    ],
)
def test_a_damaged_index_is_built_again(own_frames, monkeypatch, name, change):
    builds: list[str] = []
    build = zip_index.build_zip_index
    monkeypatch.setattr(zip_index, "build_zip_index", lambda path: builds.append(path) or build(path))
    for _ in range(2):
        IndexedZip(own_frames).close()
    assert len(builds) == 1
    kept = f"{own_frames}.headrace"
    arrays, metadata = safetensors.read_arrays(kept)
    arrays = {key: values.copy() for key, values in arrays.items()}
    arrays[name] = np.ascontiguousarray(change(arrays[name]))
    with open(kept, "wb") as file:
        safetensors.write_arrays(file, arrays, metadata)
    with pytest.warns(UserWarning, match="got a damaged file"):
        archive = IndexedZip(own_frames)
    with archive:
        assert all(archive.read(name) == content_of(name) for name in NAMES[::20])
    assert len(builds) == 2


def test_a_tar_index_is_not_taken_for_a_zips(own_frames):
    IndexedZip(own_frames).close()
    kept = f"{own_frames}.headrace"
    arrays, metadata = safetensors.read_arrays(kept)
    arrays = {key: values.copy() for key, values in arrays.items()}
    with open(kept, "wb") as file:
        safetensors.write_arrays(file, arrays, metadata | {"format": "headrace tar index 2"})
    with IndexedZip(own_frames) as archive:
        assert archive.read(NAMES[0]) == content_of(NAMES[0])
    assert safetensors.read_arrays(kept)[1]["format"] == zip_index.ZIP.format


def test_an_empty_zip(tmp_path):
    with IndexedZip(write_zip(tmp_path / "a.zip", [])) as archive:
        assert (len(archive), list(archive), archive.namelist()) == (0, [], [])
        with pytest.raises(KeyError, match="filename 'x' not found: it holds no members"):
            archive.read("x")
