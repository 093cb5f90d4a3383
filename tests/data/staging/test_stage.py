"""What staging copies, keeps, repairs and refuses."""

from __future__ import annotations

import os
import re
import threading
import zlib
from pathlib import Path

import pytest
from staged_trees import PART_BYTES, copies, expected, source_of, stage_all

from headrace.data.staging import sources_of, stage, stage_folder, unstage
from headrace.data.storage import open_file
from headrace.errors import ChangedError, EmptyDatasetError, NotFoundError, ReadError, UsageError, WriteError

MANIFEST = Path(".headrace-stage", "manifest.json")


def test_copies_are_the_sources_byte_for_byte(source, to):
    report = stage_all(source, to)
    assert copies(to) == expected(source)
    assert (report.copied, report.kept, report.skipped) == (
        report.files,
        0,
        {"broken links and special files": 1},
    )
    assert (
        report.copied_bytes
        == report.bytes
        == sum(len(entry[0]) for entry in expected(source).values() if isinstance(entry[0], bytes))
    )


def test_what_is_complete_is_left_alone(source, to):
    stage_all(source, to)
    before = {path: path.stat().st_ctime_ns for path in to.rglob("*") if path.is_file()}
    report = stage_all(source, to)
    assert (report.copied, report.kept) == (0, report.files)
    assert {path: path.stat().st_ctime_ns for path in to.rglob("*") if path.is_file()} == before


def test_a_source_that_changed_is_copied_again_and_one_that_is_gone_is_removed(source, to):
    stage_all(source, to)
    (source / "a" / "3.bin").write_bytes(b"new")
    (source / "a" / "4.bin").unlink()
    (source / "added").write_bytes(b"added")
    report = stage_all(source, to)
    assert copies(to) == expected(source)
    assert (report.copied, report.gone, report.repaired) == (2, 1, [])


def test_a_modified_copy_whose_source_is_gone_is_refused(source, to):
    stage_all(source, to)
    (source / "a" / "4.bin").unlink()
    (to / "source" / "a" / "4.bin").write_bytes(b"notes")
    before = copies(to)
    with pytest.raises(WriteError, match=r"got 1 other files: source/a/4\.bin\. Move them away"):
        stage_all(source, to)
    assert copies(to) == before


@pytest.mark.parametrize("how", ["longer", "deleted", "time"])
def test_a_copy_that_is_not_as_it_was_left_is_made_anew(source, to, how):
    stage_all(source, to)
    copy = to / "source" / "a" / "5.bin"
    match how:
        case "longer":
            copy.write_bytes(copy.read_bytes() + b"x")
        case "deleted":
            copy.unlink()
        case "time":
            os.utime(copy)
    report = stage_all(source, to)
    assert copies(to) == expected(source)
    assert (report.copied, report.repaired) == (1, [] if how == "deleted" else ["source/a/5.bin"])


@pytest.mark.parametrize("name", ["a/7.bin", "large"])
def test_a_bit_that_flipped_is_found_by_verify(source, to, name):
    stage_all(source, to)
    copy = to / "source" / name
    time_ns, data = copy.stat().st_mtime_ns, bytearray(copy.read_bytes())
    data[len(data) // 2] ^= 4
    copy.write_bytes(data)
    os.utime(copy, ns=(time_ns, time_ns))
    assert stage_all(source, to).copied == 0, "nothing is read without verify"
    report = stage_all(source, to, verify=True)
    assert (report.copied, report.repaired, report.kept) == (1, [f"source/{name}"], report.files - 1)
    assert copies(to) == expected(source)
    again = stage_all(source, to, verify=True)
    assert (again.verified, again.kept) == (True, report.files)


def test_bytes_that_do_not_come_back_are_an_error_and_no_copy(source, to, monkeypatch):
    def write_wrongly(descriptor: int, data: memoryview, at: int) -> None:
        os.pwrite(descriptor, bytes([data[0] ^ 1]) + bytes(data[1:]), at)

    monkeypatch.setattr(stage_folder, "write_all", write_wrongly)
    with pytest.raises(WriteError, match=r"expected the bytes of .* to come back, got others\. Check the disk"):
        stage_all(source, to)
    assert not [entry for entry in copies(to).values() if isinstance(entry[0], bytes) and entry[0] != b""]
    monkeypatch.undo()
    monkeypatch.setattr(stage_folder, "PART_BYTES", PART_BYTES)
    stage_all(source, to)
    assert copies(to) == expected(source)


def test_files_that_are_not_ours_are_refused(source, to):
    to.mkdir()
    (to / "letters.txt").write_bytes(b"mine")
    with pytest.raises(WriteError, match=r"got 1 other files: letters\.txt\. Move them away, or stage into another"):
        stage_all(source, to)
    assert copies(to, ours=True) == {b"letters.txt": copies(to)[b"letters.txt"]}, "nothing was written"


def test_files_that_came_later_are_refused_but_for_indices(source, to):
    stage_all(source, to)
    (to / "source" / "large.headrace").write_bytes(b"an index")
    (to / "source" / "large.sizes.headrace").write_bytes(b"another")
    stage_all(source, to)
    (to / "source" / "link-to-elsewhere").symlink_to("/etc")
    with pytest.raises(WriteError, match="1 other files: source/link-to-elsewhere"):
        stage_all(source, to)


@pytest.mark.parametrize("in_memory", [True, False])
def test_a_folder_of_another_user_in_memory_is_refused(source, to, monkeypatch, in_memory):
    stage_all(source, to)
    owner = os.geteuid()
    monkeypatch.setattr(stage_folder, "is_in_memory", lambda _: in_memory)
    monkeypatch.setattr(stage_folder.os, "geteuid", lambda: 4711)
    for folder in (to, to / ".headrace-stage"):
        os.chown(folder, owner or 4712, -1)
    if not in_memory:
        assert stage_all(source, to).copied == 0
        return
    with pytest.raises(
        WriteError, match=r"expected a folder of user 4711 in memory, got one of user \d+,.* of your own"
    ):
        stage_all(source, to)


def test_another_source_is_refused(source, to, tmp_path):
    stage_all(source, to)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").write_bytes(b"x")
    with pytest.raises(WriteError, match=re.escape(f"got those of {source}. Stage into another folder, or")):
        stage_all(tmp_path / "other", to)


def test_nothing_is_written_through_a_link(source, to, tmp_path):
    (tmp_path / "victim").mkdir()
    to.mkdir()
    (to / "source").symlink_to(tmp_path / "victim")
    with pytest.raises(WriteError, match="1 other files: source"):
        stage_all(source, to)
    assert not list((tmp_path / "victim").iterdir())


def test_a_source_that_is_being_written_is_an_error(source, to, monkeypatch):
    real = stage_folder.write_all

    def write_meanwhile(descriptor: int, data: memoryview, at: int) -> None:
        real(descriptor, data, at)
        with open(source / "large", "ab") as file:
            file.write(b"more")

    monkeypatch.setattr(stage_folder, "write_all", write_meanwhile)
    with pytest.raises(ChangedError, match=r"got one that changed while it was staged\. Stage again"):
        stage(sources_of([str(source / "large")]), to=str(to), threads=1)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_that_may_not_be_read(source, to):
    (source / "a" / "1.bin").chmod(0)
    with pytest.raises(ReadError, match="Permission denied"):
        stage_all(source, to)


def test_a_file_that_cannot_be_read_leaves_the_rest_to_go_on_with(source, to, monkeypatch):
    real = os.preadv

    def read(descriptor, buffers, at, *flags):
        if os.readlink(f"/proc/self/fd/{descriptor}") == str(source / "large"):
            raise OSError(5, "Input/output error")
        return real(descriptor, buffers, at, *flags)

    monkeypatch.setattr(os, "preadv", read)
    monkeypatch.setattr(open_file, "RETRY_PAUSES_S", ())
    with pytest.raises(ReadError, match=r"large.*Input/output error"):
        stage_all(source, to)
    monkeypatch.setattr(os, "preadv", real)
    report = stage_all(source, to)
    assert copies(to) == expected(source)
    assert report.kept + report.copied == report.files


def test_several_sources_lie_under_their_names(tmp_path, to):
    paths = []
    for name in ("x/train.tar", "y/train.tar", "x/list.csv", "z/2"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(name.encode())
        paths.append(str(path))
    found = sources_of(paths)
    stage(found, to=str(to))
    assert [source.name for source in found] == [b"train.tar", b"2/train.tar", b"list.csv", b"3/2"]
    assert [Path(source.copy_in(str(to))).read_bytes().decode() for source in found] == [
        "x/train.tar",
        "y/train.tar",
        "x/list.csv",
        "z/2",
    ]


def test_an_index_that_lies_beside_an_archive_comes_with_it(tmp_path, to):
    (tmp_path / "a.tar").write_bytes(b"tar")
    (tmp_path / "a.tar.headrace").write_bytes(b"index")
    stage([source_of(tmp_path / "a.tar")], to=str(to))
    assert set(copies(to)) == {b"a.tar", b"a.tar.headrace"}


def test_two_at_once_wait_for_each_other(source, to):
    reports = []
    threads = [threading.Thread(target=lambda: reports.append(stage_all(source, to))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert copies(to) == expected(source)
    assert sorted(report.copied > 0 for report in reports) == [False, False, True]


def test_arguments_are_checked(source, to, tmp_path):
    for options in ({"threads": 0}, {"reserve_bytes": -1}):
        with pytest.raises(UsageError, match=r"expected . or more, got"):
            stage([source_of(source)], to=str(to), **options)
    with pytest.raises(UsageError, match="lies apart from what is copied"):
        stage_all(source, source / "copies")
    with pytest.raises(NotFoundError, match="got nothing"):
        sources_of([str(tmp_path / "none")])
    with pytest.raises(UsageError, match="special file"):
        sources_of(["/dev/null"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(EmptyDatasetError, match="expected files to stage, got none"):
        stage_all(tmp_path / "empty", to)
    assert not to.exists()


def checked(text):
    """A manifest with the checksum that it should have."""
    return b"%08x\n%s" % (zlib.crc32(text), text)


def bare(data):
    return data.partition(b"\n")[2]


def test_a_full_disk_damages_no_manifest(source, to, monkeypatch):
    stage_all(source, to)
    sound = (to / MANIFEST).read_bytes()
    (source / "added").write_bytes(b"added")
    real = os.fsync

    def fsync(descriptor: int) -> None:
        os.ftruncate(descriptor, 9)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(WriteError, match=r"could not be written: No space left on device\. Free space"):
        stage_all(source, to)
    assert (to / MANIFEST).read_bytes() == sound
    monkeypatch.setattr(os, "fsync", real)
    assert stage_all(source, to).copied == 1
    assert copies(to) == expected(source)
    assert unstage(str(to)).left == []


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda data: checked(bare(data).replace(b"stage 5", b"stage 9")), "another version, 'headrace stage 9'"),
        (lambda data: checked(b"{" + bare(data)), "Expecting property name"),
        (lambda data: data[:-7], "does not fit its checksum"),
        (lambda data: data + b" ", "does not fit its checksum"),
        (lambda data: b"", "does not fit its checksum"),
        (
            lambda data: checked(bare(data).replace(b'"source/large"', b'"../large"')),
            r"names '\.\./large', which no copy is called",
        ),
        (lambda data: checked(bare(data).replace(b'"source/large"', b'"/etc/passwd"')), "names '/etc/passwd'"),
        (lambda data: checked(bare(data).replace(b'"sources": {"source"', b'"sources": {".."')), r"names '\.\.'"),
        (lambda data: checked(bare(data).replace(b'"made": true', b'"made": 1')), r"Expected `bool`"),
        (lambda data: checked(b"[]"), "Expected `object`"),
    ],
)
@pytest.mark.parametrize("work", ["stage", "unstage"])
def test_a_manifest_that_cannot_be_used_is_an_error(source, to, change, words, work):
    stage_all(source, to)
    (to / MANIFEST).write_bytes(change((to / MANIFEST).read_bytes()))
    before = copies(to)
    with pytest.raises(WriteError, match=words):
        stage_all(source, to) if work == "stage" else unstage(str(to))
    assert copies(to) == before
