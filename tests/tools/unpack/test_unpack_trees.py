"""What unpacking makes is what tarfile and zipfile make."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import shutil
import subprocess
import tarfile
import time
import zipfile
from pathlib import Path

import pytest
from made_archives import (
    MTIME,
    file,
    folder,
    hard_link,
    noise,
    ordinary,
    symbolic_link,
    write_tar,
    write_zip,
    zip_info,
)
from unpacked_trees import tree

from headrace.errors import DatasetError
from headrace.tools.unpack import UnpackReport, unpack

FORMATS = {"ustar": tarfile.USTAR_FORMAT, "gnu": tarfile.GNU_FORMAT, "pax": tarfile.PAX_FORMAT}
HOWS = {"plain": "w", "gzip": "w:gz", "bzip2": "w:bz2", "xz": "w:xz"}


ODD_NAMES = [
    "plain",
    "with space and 'quotes'",
    "ünïcödé/日本語",
    b"not/utf-8 \xff\xfe".decode("utf-8", "surrogateescape"),
    "new\nline",
    "x" * 100,
    "y" * 255,
    f"{'deep/' * 60}{'z' * 120}",
    "-rf",
    "...",
    "..hidden",
    "back\\slash",
]


def unpack_both(path: Path, tmp_path: Path, **options: object) -> UnpackReport:
    """Fails unless the trees are equal; what ours did."""
    (report,) = unpack([path], to=tmp_path / "ours", **options)
    with tarfile.open(path, errors="surrogateescape") as tar:
        tar.extractall(tmp_path / "theirs", filter="data")
        folders = [member.name.strip("/") for member in tar if member.isdir()]
    assert tree(tmp_path / "ours", timed=folders) == tree(tmp_path / "theirs", timed=folders)
    return report


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.one_in(4)
def test_a_tar_becomes_what_tarfile_makes_of_it(tmp_path, format, how):
    path = write_tar(tmp_path / "a.tar", ordinary(), FORMATS[format], HOWS[how])
    report = unpack_both(path, tmp_path, threads=2)
    assert (report.made, report.kept, report.folders, report.links) == (40, 0, 2, 3)
    assert report.made_bytes == sum(len(content) for _, content in ordinary())
    assert (report.refused, report.replaced) == ([], [])


@pytest.mark.one_in(2)
@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("format", FORMATS)
def test_odd_names(tmp_path, format, how):
    long = 100 if format == "ustar" else 1000
    members = [file(name, name.encode("utf-8", "surrogateescape")) for name in ODD_NAMES if len(name) <= long]
    unpack_both(write_tar(tmp_path / "a.tar", members, FORMATS[format], HOWS[how]), tmp_path)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("mode", [0o000, 0o111, 0o200, 0o644, 0o677, 0o755, 0o777, 0o4755, 0o2777, 0o1666, 0o7777])
def test_permissions_are_those_of_the_data_filter(tmp_path, mode, how):
    unpack_both(write_tar(tmp_path / "a.tar", [file("a", b"x", mode=mode)], how=HOWS[how]), tmp_path)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize(
    ("format", "mtime"),
    [
        ("ustar", 0),
        ("ustar", 2**32),
        ("gnu", -1_000),
        ("gnu", 2**33),
        ("pax", 1_600_000_000.25),
        ("pax", 0.000_001),
        ("pax", -1.5),
        ("pax", 1_600_000_000.123_456_7),
    ],
)
def test_times_are_those_of_tarfile(tmp_path, format, mtime, how):
    members = [file("a", b"x", mtime=mtime), folder("b", mtime=mtime), file("c", noise(3000), mtime=mtime)]
    unpack_both(write_tar(tmp_path / "a.tar", members, FORMATS[format], HOWS[how]), tmp_path)


def test_a_global_header_at_the_start_gives_all_members_their_time(tmp_path):
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT, pax_headers={"mtime": "1234.5"}) as tar:
        for info, content in [file("a", b"x"), file("b", b"y"), file("c" * 200, b"z")]:
            tar.addfile(info, io.BytesIO(content))
    unpack_both(path, tmp_path)
    assert (tmp_path / "ours" / "b").stat().st_mtime == 1234.5


@pytest.mark.parametrize("how", HOWS)
def test_leading_slashes_and_dots_are_dropped(tmp_path, how):
    members = [file("/a/b", b"1"), file("./c", b"2"), file("d//e/./f", b"3"), folder("./g/")]
    unpack_both(write_tar(tmp_path / "a.tar", members, how=HOWS[how]), tmp_path)


@pytest.mark.parametrize("how", HOWS)
def test_of_members_with_one_path_the_last_counts(tmp_path, how):
    members = [file("a", b"old"), file("b", b"kept"), file("./a", b"newer"), file("a", b"newest!")]
    report = unpack_both(write_tar(tmp_path / "a.tar", members, how=HOWS[how]), tmp_path)
    assert (tmp_path / "ours" / "a").read_bytes() == b"newest!"
    assert len(report.replaced) == 2


@pytest.mark.parametrize("how", HOWS)
def test_links_lead_where_tarfile_makes_them_lead(tmp_path, how):
    members = [
        file("a/b/file", noise(2000)),
        symbolic_link("a/up", "b/file"),
        symbolic_link("a/b/top", "../.."),
        symbolic_link("nowhere", "gone"),
        hard_link("a/hard", "a/b/file"),
        hard_link("harder", "a/hard"),
        hard_link("dotted", "./a/b/file"),
    ]
    report = unpack_both(write_tar(tmp_path / "a.tar", members, how=HOWS[how]), tmp_path)
    assert report.links == 6


@pytest.mark.parametrize("how", HOWS)
def test_a_hard_link_to_a_symbolic_one_is_one_itself(tmp_path, target, how):
    members = [file("a", b"x"), symbolic_link("b", "a"), hard_link("c", "b")]
    unpack([write_tar(tmp_path / "a.tar", members, how=HOWS[how])], to=target)
    assert os.readlink(target / "c") == "a"


def test_large_files_of_several_pieces(tmp_path):
    members = [file("a", noise(5_000_001)), file("b", noise(1 << 20)), file("c", noise((1 << 20) + 1))]
    for how in ("plain", "gzip"):
        folder = tmp_path / how
        folder.mkdir()
        assert unpack_both(write_tar(folder / "a.tar", members, how=HOWS[how]), folder, verify=True).verified == 3


def test_an_old_tar_without_magic(tmp_path):
    path = write_tar(tmp_path / "a.tar", [file("a", b"12"), file("b/c", noise(700))], tarfile.USTAR_FORMAT)
    raw = bytearray(path.read_bytes())
    for at in (0, 1024):  # the two headers
        raw[at + 156] = 0
        raw[at + 257 : at + 512] = bytes(255)
        raw[at + 148 : at + 156] = b" " * 8
        raw[at + 148 : at + 156] = b"%06o\0 " % sum(raw[at : at + 512])
    path.write_bytes(raw)
    unpack_both(path, tmp_path)


@pytest.mark.parametrize("compress", [[], ["-z"]], ids=["plain", "gzip"])
def test_nothing_is_made_of_a_label(tmp_path, target, compress):
    source = tmp_path / "source"
    (source / "sub").mkdir(parents=True)
    (source / "sub/file").write_bytes(b"content")
    (source / "sub/link").symlink_to("a" * 150)  # its target has a header of its own before the link's
    os.utime(source / "sub/file", (MTIME, MTIME))
    path = tmp_path / "a.tar"
    options = ["--format=gnu", "--label=name", *compress]
    subprocess.run(["tar", *options, "-cf", path, "-C", tmp_path, "source"], check=True)
    (report,) = unpack([path], to=target, verify=True)
    assert (report.made, report.folders, report.verified) == (1, 2, 1)
    assert tree(target / "source") == tree(source)


@pytest.mark.parametrize("how", HOWS)
def test_an_empty_tar(tmp_path, target, how):
    (report,) = unpack([write_tar(tmp_path / "a.tar", [], how=HOWS[how])], to=target)
    assert (report.made, list(target.iterdir())) == (0, [])


@pytest.mark.one_in(2)
@pytest.mark.parametrize("how", [".tar", ".tar.gz"])
@pytest.mark.parametrize("form", ["gnu", "0.0", "0.1", "1.0"])
@pytest.mark.skipif(shutil.which("tar") is None, reason="GNU tar makes the sparse members")
def test_sparse_files(tmp_path, form, how):
    sparse = tmp_path / "made" / "sparse"
    sparse.parent.mkdir()
    with open(sparse, "wb") as file_:
        for number in range(30):  # more ranges than a header has room for
            file_.seek(number << 17)
            file_.write(noise(4096, seed=number))
        file_.truncate(4 << 20)
    (sparse.parent / "plain").write_bytes(noise(5000))
    for name in ("sparse", "plain"):  # a time of now may lie where tarfile's float rounds otherwise
        os.utime(sparse.parent / name, (MTIME, MTIME))
    options = ["--format=gnu"] if form == "gnu" else ["--format=pax", f"--sparse-version={form}"]
    path = tmp_path / f"a{how}"
    subprocess.run(["tar", "--sparse", *options, "-caf", path, "-C", sparse.parent, "sparse", "plain"], check=True)
    unpack_both(path, tmp_path, verify=True)


def test_zstd(tmp_path):
    arrow = pytest.importorskip("pyarrow")
    plain = write_tar(tmp_path / "a.tar", ordinary())
    with arrow.output_stream(str(tmp_path / "a.tar.zst"), compression="zstd") as out:
        out.write(plain.read_bytes())
    unpack([plain], to=tmp_path / "plain")
    (tmp_path / "a.tar.zst").rename(tmp_path / "b.tar")  # its content says what it is
    (report,) = unpack([tmp_path / "b.tar"], to=tmp_path / "zstd", verify=True)
    assert report.verified == 40
    assert tree(tmp_path / "zstd") == tree(tmp_path / "plain")


def test_what_nothing_opens_is_an_error_with_the_way_out(tmp_path, target):
    (tmp_path / "a.tar.lz4").write_bytes(b"\x04\x22\x4d\x18" + bytes(20))
    with pytest.raises(DatasetError, match=r"compressed with lz4, which nothing installed here opens.*unlz4 -k a\.tar"):
        unpack([tmp_path / "a.tar.lz4"], to=target)


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
@pytest.mark.one_in(4)
def test_a_zip_becomes_what_zipfile_makes_of_it(tmp_path, compression):
    members = [(f"a/{'b/' * (i % 3)}{i}", noise(i * 700, seed=i)) for i in range(8)]
    members += [("large", noise(1_100_001)), ("same", bytes(2_200_000)), ("ünïcödé", b"x"), ("empty/", b"")]
    path = write_zip(tmp_path / "a.zip", members, compression=compression)
    (report,) = unpack([path], to=tmp_path / "ours", threads=2, verify=True)
    with zipfile.ZipFile(path) as archive:
        archive.extractall(tmp_path / "theirs")
    options = {"modes": False, "times": False}  # zipfile sets neither
    assert tree(tmp_path / "ours", **options) == tree(tmp_path / "theirs", **options)
    assert (report.made, report.verified, report.folders) == (11, 11, 1)


def test_a_zip_gives_permissions_and_times_as_unzip_has_them(tmp_path, target):
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for name, mode in {"script": 0o100755, "data": 0o100664, "setuid": 0o104755}.items():
            archive.writestr(zip_info(name, mode=mode), name)
        foreign = zip_info("none")
        foreign.create_system = 0  # whose attributes are no permissions
        archive.writestr(foreign, "none")
    unpack([path], to=target)
    new = tmp_path / "new"
    new.touch()
    modes = {name: (target / name).stat().st_mode & 0o7777 for name in ("script", "data", "setuid", "none")}
    assert modes == {"script": 0o755, "data": 0o644, "setuid": 0o755, "none": new.stat().st_mode & 0o7777}
    local = time.mktime((2021, 3, 4, 5, 6, 8, 0, 0, -1))
    assert (target / "data").stat().st_mtime == local


def test_a_zip_has_links(tmp_path, target):
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(zip_info("a/file"), "x")
        archive.writestr(zip_info("a/link", mode=0o120777), "file")
        archive.writestr(zip_info("top", mode=0o120777, compression=zipfile.ZIP_DEFLATED), "a/link")
    (report,) = unpack([path], to=target)
    assert (os.readlink(target / "a" / "link"), (target / "top").read_text()) == ("file", "x")
    assert (report.made, report.links) == (1, 2)


def test_several_archives_of_every_kind_into_one_folder(tmp_path, target):
    archives = [
        write_tar(tmp_path / "a.tar", [file("a", b"1")]),
        write_zip(tmp_path / "b.zip", [("b", b"2")]),
        write_tar(tmp_path / "c.tar.gz", [file("c", b"3")], how="w:gz"),
        write_tar(tmp_path / "d.tar.xz", [file("d", b"4")], how="w:xz"),
        write_tar(tmp_path / "e.tar", [file("e", b"5")]),
    ]
    reports = unpack(archives, to=target, threads=2)
    assert [report.archive for report in reports] == [str(path) for path in archives]
    found = {path.name: path.read_bytes() for path in target.iterdir()}
    assert found == {"a": b"1", "b": b"2", "c": b"3", "d": b"4", "e": b"5"}


@pytest.mark.parametrize("open_compressed", [gzip.open, bz2.open, lzma.open])
def test_a_name_tells_nothing(tmp_path, target, open_compressed):
    plain = write_tar(tmp_path / "plain", [file("a", b"x")])
    with open_compressed(tmp_path / "a.tar", "wb") as out:
        out.write(plain.read_bytes())
    unpack([tmp_path / "a.tar"], to=target)
    assert (target / "a").read_bytes() == b"x"
