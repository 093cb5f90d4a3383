"""Running it again: what is there and complete is left alone, what differs is an error unless it may be replaced."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from made_archives import MTIME, file, folder, hard_link, noise, ordinary, symbolic_link, write_tar, write_zip
from processes import finish, start_python
from unpacked_trees import names, tree

from headrace.errors import WriteError
from headrace.tools.unpack import unpack

HOWS = {"plain": "w", "gzip": "w:gz"}


def identities(root: Path) -> dict[str, tuple[int, int]]:
    """What changes when a file is written: its number and the moment of its last change."""
    found = {name: os.lstat(root / name) for name in names(root)}
    return {name: (status.st_ino, status.st_ctime_ns) for name, status in found.items() if (root / name).is_file()}


@pytest.mark.parametrize("how", HOWS)
def test_what_is_complete_is_left_alone(tmp_path, target, how):
    path = write_tar(tmp_path / "a.tar", ordinary(), how=HOWS[how])
    unpack([path], to=target)
    whole, before = tree(target), identities(target)
    gone = sorted(before)[::3]
    for name in gone:
        (target / name).unlink()
    (report,) = unpack([path], to=target)
    assert tree(target) == whole
    after = identities(target)
    # A file that is linked to once more has changed, too, though not its bytes.
    assert {name for name in before if before[name] != after[name]} <= {*gone, "data/again", "data/class0/000.bin"}
    assert report.made + report.kept == 40
    assert 0 < report.made <= len(gone)
    (report,) = unpack([path], to=target)
    assert (report.made, report.kept) == (0, 40)
    assert identities(target) == after


def test_a_zip_is_gone_on_with(tmp_path, target):
    path = write_zip(tmp_path / "a.zip", [("a", b"1"), ("b", b"2")])
    unpack([path], to=target)
    (target / "a").unlink()
    (report,) = unpack([path], to=target)
    assert (report.made, report.kept) == (1, 1)


@pytest.mark.parametrize("how", HOWS)
def test_where_the_time_alone_differs_bytes_decide(tmp_path, target, how):
    path = write_tar(tmp_path / "a.tar", [file("a", noise(5_000)), file("b", b"b")], how=HOWS[how])
    unpack([path], to=target)
    number = (target / "a").stat().st_ino
    os.utime(target / "a", (1, 1))
    (report,) = unpack([path], to=target)
    status = (target / "a").stat()
    assert (report.kept, status.st_ino, status.st_mtime) == (2, number, MTIME)
    (target / "a").write_bytes(noise(5_000, seed=1))
    with pytest.raises(WriteError, match=r"/a: expected nothing there, or what the archive holds, got something else"):
        unpack([path], to=target)
    assert (target / "a").read_bytes() == noise(5_000, seed=1)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize(
    ("member", "made"),
    [
        (file("a", b"new"), "file"),
        (symbolic_link("a", "b"), "link"),
        (hard_link("a", "b"), "hard link"),
    ],
    ids=["file", "symbolic link", "hard link"],
)
@pytest.mark.parametrize("there", ["file", "link", "dangling link"])
def test_what_differs_is_replaced_only_if_asked_for(tmp_path, target, how, member, made, there):
    path = write_tar(tmp_path / "a.tar", [file("b", b"bb"), member], how=HOWS[how])
    target.mkdir()
    if there == "file":
        (target / "a").write_bytes(b"old and longer")
    else:
        (target / "a").symlink_to("c" if there == "dangling link" else "../other")
    (tmp_path / "other").write_bytes(b"untouched")
    before = tree(target)[b"a"]
    with pytest.raises(WriteError, match=r"/a: expected nothing there, .* or replace it: --overwrite"):
        unpack([path], to=target)
    assert tree(target)[b"a"] == before
    unpack([path], to=target, overwrite=True)
    unpack([path], to=tmp_path / "fresh")
    assert tree(target) == tree(tmp_path / "fresh")
    assert (tmp_path / "other").read_bytes() == b"untouched"


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("overwrite", [False, True])
def test_a_folder_is_never_replaced_by_a_file_nor_a_file_by_a_folder(tmp_path, target, how, overwrite):
    (target / "a").mkdir(parents=True)
    path = write_tar(tmp_path / "a.tar", [file("a", b"x")], how=HOWS[how])
    with pytest.raises(WriteError, match="/a: expected nothing there"):
        unpack([path], to=target, overwrite=overwrite)
    (target / "b").write_bytes(b"x")
    path = write_tar(tmp_path / "b.tar", [folder("b")], how=HOWS[how])
    with pytest.raises(WriteError, match="/b: expected a folder, got a file"):
        unpack([path], to=target, overwrite=overwrite)


def test_a_compressed_tar_whose_members_replace_each_other_goes_on_with_overwrite(tmp_path, target):
    members = [file("a", b"old"), file("b", b"1"), file("a", b"newer"), file("a", b"newest")]
    path = write_tar(tmp_path / "a.tar.gz", members, how="w:gz")
    unpack([path], to=target)
    whole = tree(target)
    with pytest.raises(WriteError, match="/a: expected nothing there"):
        unpack([path], to=target)
    assert tree(target) == whole
    unpack([path], to=target, overwrite=True)
    assert tree(target) == whole


@pytest.mark.parametrize("how", HOWS)
def test_verify_reads_all_of_it(tmp_path, target, how):
    members = [file("a", noise(3_000_000)), file("b", b"b"), file("empty"), hard_link("c", "b"), file("b2", b"b2")]
    path = write_tar(tmp_path / "a.tar", members, how=HOWS[how])
    (report,) = unpack([path], to=target, verify=True)
    assert (report.verified, report.verified_bytes) == (4, 3_000_003)
    with open(target / "a", "r+b") as out:
        out.seek(2_999_999)
        out.write(b"?")
    os.utime(target / "a", (MTIME, MTIME))
    (report,) = unpack([path], to=target)
    assert (report.made, report.kept) == (0, 4)
    with pytest.raises(WriteError, match=r"/a: expected the bytes that the archive holds, got others\. Delete"):
        unpack([path], to=target, verify=True)


def test_remains_of_a_killed_run_are_removed(tmp_path, target):
    remains = target / ".headrace-unpack"
    remains.mkdir(parents=True)
    (remains / "3").write_bytes(b"half a file")
    unpack([write_tar(tmp_path / "a.tar", [file("a", b"x")])], to=target)
    assert names(target) == ["a"]


@pytest.mark.long
def test_two_runs_at_once(tmp_path, target):
    path = write_tar(tmp_path / "a.tar", ordinary(files=200))
    source = """
        import sys
        from headrace.tools.unpack import unpack
        unpack([sys.argv[1]], to=sys.argv[2], threads=2)
    """
    runs = [start_python(source, path, target) for _ in range(2)]
    assert [finish(run) for run in runs] == [(0, "", "")] * 2
    unpack([path], to=tmp_path / "fresh")
    assert tree(target) == tree(tmp_path / "fresh")
