"""Archives that were made to do harm: each trick ends in an error by name, or is left out, and nothing lies outside."""

from __future__ import annotations

import gzip
import os
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from made_archives import MTIME, file, folder, hard_link, special, symbolic_link, write_tar, zip_info
from unpacked_trees import names, tree

from headrace.errors import DatasetError, UnsafeMemberError, WriteError
from headrace.tools.unpack import unpack
from headrace.tools.unpack.target import UnpackTarget

HOWS = {"plain": "w", "gzip": "w:gz"}
GOOD = file("good", b"good")

REFUSED = {
    "up": ([file("../evil", b"x")], "holds '..'"),
    "up inside": ([file("a/../evil", b"x")], "holds '..'"),
    "absolute and up": ([file("/../evil", b"x")], "holds '..'"),
    "folder up": ([folder("../evil")], "holds '..'"),
    "link to absolute path": ([symbolic_link("a", "/etc/passwd")], "a link to an absolute path"),
    "link out": ([symbolic_link("a", "../outside")], "leads out of the target"),
    "link out from a folder": ([symbolic_link("a/b", "../../outside")], "leads out of the target"),
    "link in and out": ([symbolic_link("a", "b/../../outside")], "leads out of the target"),
    "hard link to absolute path": ([hard_link("a", "/etc/passwd")], "no file that is ahead of it"),
    "hard link out": ([hard_link("a", "../outside/secret")], "its name holds"),
    "hard link to what is no member": ([hard_link("a", "target-file")], "no file that is ahead of it"),
    "hard link to a later member": ([hard_link("a", "later"), file("later", b"x")], "no file that is ahead of it"),
    "hard link to itself": ([hard_link("a", "a")], "no file that is ahead of it"),
    "hard link to a folder": ([folder("d"), hard_link("a", "d")], "hard link to 'd'"),
    "fifo": ([special("a", tarfile.FIFOTYPE)], "neither a file nor a folder nor a link"),
    "character device": ([special("a", tarfile.CHRTYPE)], "neither a file nor a folder nor a link"),
    "block device": ([special("a", tarfile.BLKTYPE)], "neither a file nor a folder nor a link"),
    "unknown type": ([special("a", b"Z")], "neither a file nor a folder nor a link"),
    "staging folder": ([file(".headrace-unpack/0", b"x")], "kept for unpacking"),
    "staging link": ([symbolic_link(".headrace-unpack", ".")], "kept for unpacking"),
    "name too long": ([file("x" * 256, b"x")], "or a part of it, is longer than 4095 or 255 bytes"),
    "path too long": ([file("d/" * 3000 + "x", b"x")], "or a part of it, is longer than 4095 or 255 bytes"),
    "moved link": ([symbolic_link("a/b/l", "../../x"), hard_link("l2", "a/b/l")], "leads out of the target"),
}


@pytest.fixture
def target(tmp_path: Path) -> Iterator[Path]:
    """Beside a file that no archive may read or change, and in a folder where nothing may appear."""
    around = tmp_path / "around"
    (around / "outside").mkdir(parents=True)
    (around / "outside" / "secret").write_bytes(b"secret")
    before = tree(around / "outside")
    yield around / "target"
    assert sorted(path.name for path in around.iterdir()) in (["outside"], ["outside", "target"])
    assert tree(around / "outside") == before
    if (around / "target").exists():
        root = os.path.realpath(around / "target")
        for name in names(around / "target"):
            assert os.path.realpath(os.path.join(root, name)).startswith(root)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("case", REFUSED)
def test_nothing_is_written_where_a_member_is_refused(tmp_path, target, case):
    members, why = REFUSED[case]
    path = write_tar(tmp_path / "a.tar", [GOOD, *members])
    with pytest.raises(UnsafeMemberError, match=why) as error:
        unpack([path], to=target)
    assert "expected members that can be made inside the target, got " in str(error.value)
    assert "--skip-refused" in str(error.value)
    assert list(target.iterdir()) == []


@pytest.mark.one_in(2)
@pytest.mark.parametrize("case", REFUSED)
def test_a_compressed_tar_ends_at_the_member(tmp_path, target, case):
    members, why = REFUSED[case]
    path = write_tar(tmp_path / "a.tar", [GOOD, *members, file("after", b"x")], how="w:gz")
    with pytest.raises(UnsafeMemberError, match=why):
        unpack([path], to=target)
    assert "good" in names(target)
    assert "after" not in names(target)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused_can_be_left_out(tmp_path, target, case, how):
    members, why = REFUSED[case]
    path = write_tar(tmp_path / "a.tar", [GOOD, *members, file("after", b"x")], how=HOWS[how])
    (report,) = unpack([path], to=target, skip_refused=True, verify=True)
    assert len(report.refused) == 1
    assert why in report.refused[0].why
    assert (target / "good").read_bytes() == b"good"
    assert (target / "after").read_bytes() == b"x"


def test_an_error_names_a_few(tmp_path, target):
    path = write_tar(tmp_path / "a.tar", [special(f"{number}", tarfile.FIFOTYPE) for number in range(1200)])
    with pytest.raises(UnsafeMemberError, match=r"got '0': it is .*; '4': .*; and 1,195 more\. Leave such members out"):
        unpack([path], to=target)


THROUGH = {
    "a link to a folder": [folder("d"), symbolic_link("l", "d"), file("l/x", b"x")],
    "a link to nothing": [symbolic_link("l", "gone"), file("l/x", b"x")],
    "a link that leads deeper": [folder("d/e"), symbolic_link("l", "d"), file("l/e/x", b"x")],
    "a hard link to a link": [folder("d"), symbolic_link("k", "d"), hard_link("l", "k"), file("l/x", b"x")],
    "a file": [file("l", b"1"), file("l/x", b"x")],
}


@pytest.mark.parametrize("case", THROUGH)
def test_nothing_is_made_below_what_is_no_folder(tmp_path, target, case):
    path = write_tar(tmp_path / "a.tar", THROUGH[case])
    with pytest.raises(UnsafeMemberError, match=r"'l/.*x': it lies below 'l', which is a "):
        unpack([path], to=target)
    assert list(target.iterdir()) == []


@pytest.mark.parametrize("case", THROUGH)
def test_nothing_is_made_below_what_is_no_folder_in_a_compressed_tar(tmp_path, target, case):
    path = write_tar(tmp_path / "a.tar.gz", THROUGH[case], how="w:gz")
    with pytest.raises(UnsafeMemberError, match=r"'l/.*x': it lies below 'l', which is a "):
        unpack([path], to=target)
    assert "d/x" not in names(target)


def test_a_link_that_a_folder_replaces_is_none(tmp_path, target):
    members = [folder("d"), symbolic_link("l", "d"), folder("l"), file("l/x", b"x")]
    unpack([write_tar(tmp_path / "a.tar", members)], to=target)
    assert (target / "l" / "x").read_bytes() == b"x"
    assert not (target / "l").is_symlink()


CHAINS = {
    "back through a link": [
        folder("a/b/c"),
        symbolic_link("a/b/c/up", "../../.."),
        symbolic_link("out", "a/b/c/up/../outside"),
        symbolic_link("use", "out/secret"),
    ],
    "a link replaced by a deeper one": [
        symbolic_link("l", "d/e"),
        symbolic_link("m", "l/../../outside/secret"),
        folder("d/e"),
    ],
    "links that lead in a circle": [symbolic_link("a", "b"), symbolic_link("b", "a"), file("c", b"x")],
    "long chain": [symbolic_link(f"l{i}", f"l{i + 1}") for i in range(60)],
}


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("case", CHAINS)
def test_no_chain_of_links_leads_out(tmp_path, target, case, how):
    """What the target's fixture looks at; whether they are refused or made harmless."""
    path = write_tar(tmp_path / "a.tar", CHAINS[case], how=HOWS[how])
    unpack([path], to=target, skip_refused=True)


@pytest.mark.parametrize("how", HOWS)
def test_links_that_are_there_already_are_not_followed(tmp_path, target, how):
    target.mkdir()
    (target / "l").symlink_to("../outside")
    (target / "secret").symlink_to("../outside/secret")
    through = write_tar(tmp_path / "a.tar", [file("l/evil", b"x")], how=HOWS[how])
    with pytest.raises(WriteError, match="l: expected a folder, got a link, through which nothing is written"):
        unpack([through], to=target, overwrite=True)
    over = write_tar(tmp_path / "b.tar", [file("secret", b"evil")], how=HOWS[how])
    with pytest.raises(WriteError, match="secret: expected nothing there"):
        unpack([over], to=target)
    unpack([over], to=target, overwrite=True)
    assert (target / "secret").read_bytes() == b"evil"
    assert not (target / "secret").is_symlink()
    (target / "l").unlink()


@pytest.mark.parametrize("how", HOWS)
def test_a_link_put_in_the_way_meanwhile_leads_nothing_astray(tmp_path, target, how, monkeypatch):
    """A folder that was opened stays the folder, whatever its path names by then."""
    path = write_tar(tmp_path / "a.tar", [file(f"d/{number}", b"x") for number in range(3)], how=HOWS[how])
    place = UnpackTarget.place

    def place_and_swap(self: UnpackTarget, *arguments: object, **options: object) -> bool:
        placed = place(self, *arguments, **options)
        if not (target / "moved").exists():
            (target / "d").rename(target / "moved")
            (target / "d").symlink_to("../outside")
        return placed

    monkeypatch.setattr(UnpackTarget, "place", place_and_swap)
    unpack([path], to=target, threads=1)
    assert sorted(os.listdir(target / "moved")) == ["0", "1", "2"]
    (target / "d").unlink()


def test_an_attack_in_a_zip(tmp_path, target):
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("good", b"good")
        archive.writestr("../evil", b"x")
        archive.writestr("/absolute", b"inside")
        archive.writestr(zip_info("out", mode=0o120777), "../outside/secret")
        archive.writestr(zip_info("long", mode=0o120777), "x" * 5000)
        archive.writestr(zip_info("device", mode=0o020666), "")
        archive.writestr(zip_info("l", mode=0o120777), "d")
        archive.writestr("l/x", b"x")
    with pytest.raises(UnsafeMemberError, match=r"'\.\./evil': its name holds '\.\.'; 'out': .*; 'l/x': it lies"):
        unpack([path], to=target)
    assert list(target.iterdir()) == []
    (report,) = unpack([path], to=target, skip_refused=True)
    assert [refusal.name for refusal in report.refused] == ["../evil", "out", "long", "device", "l/x"]
    assert sorted(names(target)) == ["absolute", "good", "l"]


@pytest.mark.parametrize("change", ["header", "end", "trailer"])
def test_a_damaged_compressed_tar_is_no_shorter_one(tmp_path, target, change):
    plain = bytearray(write_tar(tmp_path / "plain", [file(f"{i}", b"x" * 2000) for i in range(20)]).read_bytes())
    if change == "header":  # tarfile takes this for the end
        plain[2560 * 10 + 20] ^= 1
    path = tmp_path / "a.tar.gz"
    packed = bytearray(gzip.compress(bytes(plain), mtime=MTIME))
    if change == "end":
        packed = packed[: len(packed) // 2]
    if change == "trailer":
        packed[-6] ^= 1
    path.write_bytes(packed)
    with pytest.raises(DatasetError, match=r"a\.tar\.gz: .*Check it with `tar -tf`"):
        unpack([path], to=target)
