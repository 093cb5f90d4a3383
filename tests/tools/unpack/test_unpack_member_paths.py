"""Where a member may be made, and as what: pure, compared with tarfile's data filter where that refuses."""

from __future__ import annotations

import tarfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.tools.unpack.target import RefusedError, link_target, member_path

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
        ("x" * 256, "longer than 4095 or 255 bytes"),
        ("é" * 128, "longer than 4095 or 255 bytes"),
        ("a/" * 2048 + "a", "longer than 4095 or 255 bytes"),
        (".headrace-unpack/0", "kept for unpacking"),
        ("./.headrace-unpack", "kept for unpacking"),
    ],
)
def test_names_that_are_refused(name, why):
    with pytest.raises(RefusedError, match=why):
        member_path(name)


@pytest.mark.parametrize(
    ("path", "link", "target"),
    [
        (b"a", "b", "b"),
        (b"a", ".", "."),
        (b"d/a", "..", ".."),
        (b"d/a", "../b//c/./", "../b/c"),
        (b"d/a", "x/../y", "y"),
        (b"d/e/a", "x/../../../y", "../../y"),
        (b"a", "\udcff", "\udcff"),
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
            link_target(member_path(name), link)
