"""Where a member may be made, and as what: pure, held against tarfile's data filter where that says the same."""

from __future__ import annotations

import stat
import tarfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.tools.unpack.plan import (
    STAGING,
    MemberKind,
    RefusedError,
    UnpackMember,
    checked_path,
    file_mode,
    hard_link_target,
    link_target,
    member_path,
)

NAMES = st.lists(st.sampled_from(["a", "b", ".", "..", "", "...", "c d"]), min_size=1, max_size=6).map("/".join)


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("a/b", b"a/b"),
        ("/a", b"a"),
        ("///a//b/", b"a/b"),
        ("./a/./b", b"a/b"),
        (".", b""),
        ("/", b""),
        ("", b""),
        ("...", b"..."),
        ("a/..b", b"a/..b"),
        ("C:\\a", b"C:\\a"),
        ("\udcff", b"\xff"),
        ("é", "é".encode()),
        ("x" * 255, b"x" * 255),
    ],
)
def test_names_become_paths_inside(name, path):
    assert member_path(name) == path


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("..", "holds '..'"),
        ("../a", "holds '..'"),
        ("a/../b", "holds '..'"),
        ("/a/..", "holds '..'"),
        ("a\0b", "a zero byte"),
        ("x" * 256, "a part of its name is longer than 255 bytes"),
        ("é" * 128, "a part of its name is longer than 255 bytes"),
        ("a/" * 2048 + "a", "its name is longer than 4095 bytes"),
        (f"{STAGING.decode()}/0", "is kept for unpacking"),
        (f"./{STAGING.decode()}", "is kept for unpacking"),
    ],
)
def test_names_that_are_refused(name, why):
    with pytest.raises(RefusedError, match=why):
        member_path(name)


@pytest.mark.parametrize(
    ("path", "link", "target"),
    [
        (b"a", "b", b"b"),
        (b"a", ".", b"."),
        (b"d/a", "..", b".."),
        (b"d/a", "../b//c/./", b"../b/c"),
        (b"d/a", "x/../y", b"y"),
        (b"d/e/a", "x/../../../y", b"../../y"),
        (b"a", "\udcff", b"\xff"),
    ],
)
def test_links_lead_inside(path, link, target):
    assert link_target(path, link) == target


@pytest.mark.parametrize(
    ("path", "link", "why"),
    [
        (b"a", "..", "leads out"),
        (b"d/a", "../..", "leads out"),
        (b"d/a", "../../d/b", "leads out"),
        (b"d/a", "x/../../../y", "leads out"),
        (b"a", "/etc/passwd", "absolute"),
        (b"a", "", "names nothing"),
        (b"a", "b\0c", "names nothing"),
        (b"a", "x" * 5000, "longer than 4095"),
    ],
)
def test_links_that_are_refused(path, link, why):
    with pytest.raises(RefusedError, match=why):
        link_target(path, link)


def test_hard_links_name_members():
    assert hard_link_target("./a//b") == b"a/b"
    for link in ("/a", "../a", "a/../b"):
        with pytest.raises(RefusedError):
            hard_link_target(link)


@pytest.mark.parametrize(
    ("member", "why"),
    [
        (UnpackMember("a", MemberKind.SPECIAL, 0, ""), "neither a file nor a folder nor a link"),
        (UnpackMember("./", MemberKind.FILE, 3, ""), "it has no name"),
        (UnpackMember("a", MemberKind.SYMBOLIC_LINK, 0, "/x"), "absolute"),
        (UnpackMember("a", MemberKind.HARD_LINK, 0, "../x"), "which no member can be"),
    ],
)
def test_members_that_are_refused(member, why):
    with pytest.raises(RefusedError, match=why):
        checked_path(member)


@given(st.integers(0, 0o177777))
def test_permissions_are_those_of_the_data_filter(mode):
    info = tarfile.TarInfo("a")
    info.mode = mode
    assert file_mode(mode) == tarfile.data_filter(info, "/tmp").mode
    assert not file_mode(mode) & (stat.S_ISUID | stat.S_ISGID | stat.S_ISVTX)


@given(NAMES)
def test_what_the_data_filter_refuses_is_refused(name):
    info = tarfile.TarInfo(name)
    try:
        tarfile.data_filter(info, "/nowhere/at/all")
    except tarfile.FilterError:
        with pytest.raises(RefusedError):
            member_path(name)


@given(NAMES, NAMES)
def test_links_that_the_data_filter_refuses_are_refused(name, link):
    info = tarfile.TarInfo(name)
    info.type, info.linkname = tarfile.SYMTYPE, link
    try:
        member_path(name)
        tarfile.data_filter(info, "/nowhere/at/all")
    except RefusedError:
        return
    except tarfile.FilterError:
        with pytest.raises(RefusedError):
            checked_path(UnpackMember(name, MemberKind.SYMBOLIC_LINK, 0, link))
