"""The header scan against tarfile: what lies where, in every format, and what a damaged tar is called."""

from __future__ import annotations

import io
import os
import signal
import struct
import tarfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace.data as data
from headrace._core import scan_tar, tar_header_check

BLOCK = 512
NAMES = [
    "plain.jpg",
    "folder/inner.png",
    "n" * 100,
    "d" * 80 + "/" + "f" * 90 + ".jpg",  # fits ustar's prefix
    "deep/" * 30 + "x.jpg",
    "grüße/写真.jpg",
    "../up.jpg",
    "/absolute.jpg",
    "a b\tc.jpg",
]


def members_of(path: Path) -> list[tuple[str, int, int]]:
    """Of the regular files that are not sparse."""
    names, offsets, kind, at, size, *_ = scan_tar(os.fsencode(path))
    text = names.tobytes()
    return [
        (text[int(a) : int(b)].decode("utf-8", "surrogateescape"), int(o), int(n))
        for a, b, k, o, n in zip(offsets[:-1], offsets[1:], kind, at, size, strict=True)
        if k in b"07"
    ]


def reference(path: Path) -> list[tuple[str, int, int]]:
    with tarfile.open(path, errors="surrogateescape") as tar:
        return [(member.name, member.offset_data, member.size) for member in tar if member.isreg()]


def header_check_reference(block: bytes) -> int:
    """FNV-1a, 32 bits, over name, size and prefix."""
    value = 2166136261
    for byte in block[0:100] + block[124:136] + block[345:500]:
        value = (value ^ byte) * 16777619 % 2**32
    return value


def raw_header(name: bytes, size: bytes, kind: bytes = b"0", magic: bytes = b"ustar\x0000", rest: bytes = b"") -> bytes:
    block = bytearray(BLOCK)
    block[0 : len(name)] = name
    block[124 : 124 + len(size)] = size
    block[156:157] = kind
    block[257 : 257 + len(magic)] = magic
    block[345 : 345 + len(rest)] = rest
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


def write(path: Path, *parts: bytes) -> Path:
    path.write_bytes(b"".join(part + b"\0" * (-len(part) % BLOCK) for part in parts))
    return path


@pytest.mark.parametrize("format", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_finds_what_tarfile_finds(make_tar, format):
    names = [name for name in NAMES if format != tarfile.USTAR_FORMAT or len(name.encode()) < 200]
    path = make_tar("a.tar", {name: os.urandom(i * 300) for i, name in enumerate(names)}, format)
    assert members_of(path) == reference(path)
    assert len(reference(path)) == len(names)


@given(
    names=st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1), max_size=8),
    format=st.sampled_from([tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]),
)
@settings(max_examples=60, deadline=None)
def test_any_name_comes_back(tmp_path_factory, names, format):
    path = tmp_path_factory.mktemp("names") / "a.tar"
    names = [name.strip("/") or "x" for name in names]
    with tarfile.open(path, "w", format=format) as tar:
        for i, name in enumerate(names):
            info = tarfile.TarInfo(name)
            info.size = i
            tar.addfile(info, io.BytesIO(b"x" * i))
    assert members_of(path) == reference(path)


def test_check_is_of_the_header_before_the_data(make_tar):
    path = make_tar("a.tar", {"x" * 150 + ".jpg": b"1", "b.cls": b"22"}, tarfile.GNU_FORMAT)
    data = path.read_bytes()
    _, _, _, at, _, check, *_ = scan_tar(os.fsencode(path))
    for offset, value in zip(at, check, strict=True):
        block = data[offset - BLOCK : offset]
        assert value == tar_header_check(block) == header_check_reference(block)
    assert check[0] != check[1]


@given(st.lists(st.tuples(st.integers(0, BLOCK - 1), st.binary(min_size=1, max_size=30)), max_size=4))
def test_check_of_any_block(parts):
    block = bytearray(BLOCK)
    for at, content in parts:
        block[at : at + len(content)] = content[: BLOCK - at]
    assert tar_header_check(bytes(block)) == header_check_reference(block)


def test_a_checksum_may_be_of_signed_bytes(tmp_path):
    header = bytearray(raw_header("é".encode() * 2, b"1"))
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(byte - 256 if byte > 127 else byte for byte in header)
    path = write(tmp_path / "a.tar", bytes(header), b"x", bytes(2 * BLOCK))
    assert members_of(path) == reference(path) == [("éé", BLOCK, 1)]


def test_leading_dot_slash_stays_in_names_and_goes_from_keys(make_tar):
    path = make_tar("a.tar", {"./a.jpg": b"1", "././b.jpg": b"2"})
    assert [name for name, _, _ in members_of(path)] == ["./a.jpg", "././b.jpg"]
    assert list(data.open(path).keys) == ["a", "b"]


def test_only_regular_files_and_the_rest_is_counted(make_tar):
    def special(name: str, kind: bytes, link: str = "") -> tuple[tarfile.TarInfo, bytes]:
        info = tarfile.TarInfo(name)
        info.type, info.linkname = kind, link
        return info, b""

    path = make_tar(
        "a.tar",
        [
            ("a.jpg", b"1"),
            special("dir", tarfile.DIRTYPE),
            special("soft.jpg", tarfile.SYMTYPE, "a.jpg"),
            special("l" * 200, tarfile.LNKTYPE, "k" * 200),
            special("null", tarfile.CHRTYPE),
            special("disk", tarfile.BLKTYPE),
            special("pipe", tarfile.FIFOTYPE),
            ("b.jpg", b"2"),
        ],
        tarfile.GNU_FORMAT,
    )
    assert members_of(path) == reference(path)
    skipped = {what: count for what, count in scan_tar(os.fsencode(path))[-1].items() if count}
    assert skipped == {"directories": 1, "links": 2, "devices": 3}


@pytest.mark.parametrize("format", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_members_beyond_8_gib(tmp_path, format):
    """A hole in the file stands for the data, so the test needs no room on the disk."""
    path, size = tmp_path / "huge.tar", 9 * 2**30 + 5
    info = tarfile.TarInfo("huge.bin")
    info.size = size
    after = tarfile.TarInfo("after.jpg")
    with path.open("wb") as file:
        file.write(info.tobuf(format))
        file.seek((size + BLOCK - 1) // BLOCK * BLOCK, os.SEEK_CUR)
        file.write(after.tobuf(format))
        file.write(bytes(2 * BLOCK))
    assert members_of(path) == reference(path)
    assert members_of(path)[0][2] == size
    assert path.stat().st_blocks * 512 < 2**20


def test_v7_contiguous_and_unknown_types(tmp_path):
    path = write(
        tmp_path / "a.tar",
        raw_header(b"old.jpg", b"3", b"\0", magic=b""),
        b"abc",
        raw_header(b"folder/", b"0", b"\0", magic=b""),
        raw_header(b"contiguous.jpg", b"2", b"7"),
        b"de",
        raw_header(b"vendor", b"600", b"Z"),  # octal: 384 bytes
        b"?" * 384,
        raw_header(b"last.jpg", b"1"),
        b"f",
        bytes(2 * BLOCK),
    )
    assert [name for name, _, _ in members_of(path)] == ["old.jpg", "contiguous.jpg", "last.jpg"]
    assert scan_tar(os.fsencode(path))[-1]["members of unknown type"] == 1


def test_gnu_times_are_no_prefix(tmp_path):
    header = raw_header(b"a.jpg", b"1", magic=b"ustar  \0", rest=b"14712345670\0")
    assert members_of(write(tmp_path / "a.tar", header, b"x", bytes(2 * BLOCK)))[0][0] == "a.jpg"


def test_sparse_files_are_passed_over(tmp_path):
    sparse = bytearray(raw_header(b"holes.bin", b"1000", b"S", magic=b"ustar  \0"))
    sparse[482] = 1  # one more map block follows
    sparse[148:156] = b" " * 8
    sparse[148:156] = b"%06o\0 " % sum(sparse)
    pax = b"22 GNU.sparse.major=1\n"
    path = write(
        tmp_path / "a.tar",
        bytes(sparse),
        bytes(BLOCK),
        b"d" * 512,
        raw_header(b"pax", b"%o" % len(pax), b"x"),
        pax,
        raw_header(b"packed.bin", b"1"),
        b"p",
        raw_header(b"a.jpg", b"1"),
        b"x",
        bytes(2 * BLOCK),
    )
    assert [name for name, _, _ in members_of(path)] == ["a.jpg"]
    assert scan_tar(os.fsencode(path))[-1]["sparse files"] == 2


def test_global_pax_headers(tmp_path):
    with tarfile.open(tmp_path / "a.tar", "w", pax_headers={"comment": "about all", "size": "3"}) as tar:
        for name in ("a.jpg", "é.jpg"):
            info = tarfile.TarInfo(name)
            info.size = 3
            tar.addfile(info, io.BytesIO(b"abc"))
    assert members_of(tmp_path / "a.tar") == reference(tmp_path / "a.tar")


@pytest.mark.parametrize("zero_blocks", [0, 1, 2])
def test_end_mark_may_be_short_or_absent(make_tar, zero_blocks):
    path = make_tar("a.tar", {"a.jpg": b"x" * BLOCK})
    os.truncate(path, (2 + zero_blocks) * BLOCK)
    assert [name for name, _, _ in members_of(path)] == ["a.jpg"]


def test_bytes_behind_the_end_are_reported(make_tar):
    first, second = make_tar("a.tar", {"a.jpg": b"1"}), make_tar("b.tar", {"b.jpg": b"2"})
    joined = first.with_name("joined.tar")
    joined.write_bytes(first.read_bytes() + second.read_bytes())
    assert [name for name, _, _ in members_of(joined)] == ["a.jpg"]
    assert scan_tar(os.fsencode(joined))[-1]["bytes after the end mark"] > 0
    assert scan_tar(os.fsencode(first))[-1]["bytes after the end mark"] == 0


def test_cut_short_says_what_is_missing(make_tar):
    path = make_tar("a.tar", {"a.jpg": b"x" * 100, "b.jpg": b"y" * 5000})
    os.truncate(path, 3 * BLOCK + 2000)
    with pytest.raises(
        ValueError, match=r"a\.tar: at byte 1024: is cut short: expected 5000 bytes of 'b\.jpg', got 2000"
    ):
        scan_tar(os.fsencode(path))


def test_cut_inside_a_header(make_tar):
    path = make_tar("a.tar", {"a.jpg": b"x" * 100, "b.jpg": b"y"})
    os.truncate(path, 2 * BLOCK + 200)
    with pytest.raises(ValueError, match="at byte 1024: is cut short: expected a header of 512 bytes, got 200"):
        scan_tar(os.fsencode(path))


def test_long_name_without_its_member(make_tar):
    path = make_tar("a.tar", {"n" * 200: b"x"}, tarfile.GNU_FORMAT)
    os.truncate(path, 2 * BLOCK)
    with pytest.raises(ValueError, match="expected the member that a long name or PAX record announces, got the end"):
        scan_tar(os.fsencode(path))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"just a text\n" * 100, "at byte 0: expected a tar header, got a block that begins with 'just a text.just'"),
        (raw_header(b"a", b"9x"), "expected an octal size, got '9x'"),
        (raw_header(b"a", b"\xff" * 12), "got a negative one"),
        (raw_header(b"a", b"\x80\x01" + b"\0" * 10), "expected a size below 2\\*\\*63"),
        (raw_header(b"n", b"%o" % (2**20 + 1), b"L"), "1048577 bytes, more than max_tar_record_bytes = 1048576"),
        (raw_header(b"p", b"%o" % (2**20 + 1), b"x"), "more than max_tar_record_bytes"),
        (raw_header(b"p", b"12", b"x") + b"99 path=aa\n".ljust(BLOCK, b"\0"), "PAX record of 99 bytes does not fit"),
        (raw_header(b"p", b"12", b"x") + b"abcdefghij".ljust(BLOCK, b"\0"), "a PAX record has no length"),
        (raw_header(b"p", b"13", b"x") + b"11 pathisaa".ljust(BLOCK, b"\0"), "not of the form key=value"),
        (raw_header(b"p", b"13", b"x") + b"11 size=-1\n".ljust(BLOCK, b"\0"), "expected a number as the size"),
        (bytes(BLOCK) + raw_header(b"a.jpg", b"0"), "a lone block of zeros is followed by data"),
    ],
)
def test_damage_has_a_name(tmp_path, content, message):
    path = tmp_path / "bad.tar"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message) as caught:
        scan_tar(os.fsencode(path))
    assert str(path) in str(caught.value)


def test_missing_file_and_folder_are_os_errors(tmp_path):
    with pytest.raises(OSError, match="could not be opened: No such file"):
        scan_tar(os.fsencode(tmp_path / "none.tar"))
    with pytest.raises(OSError, match="expected a regular file"):
        scan_tar(os.fsencode(tmp_path))


def test_name_that_is_not_utf8_in_a_message(tmp_path):
    path = write(tmp_path / "a.tar", raw_header(b"\xff\xfe.jpg", b"17"))
    with pytest.raises(ValueError, match=r"expected 15 bytes of '\\xff\\xfe\.jpg', got 0"):
        scan_tar(os.fsencode(path))


def test_empty_tar_gives_empty_arrays(make_tar):
    *arrays, _ = scan_tar(os.fsencode(make_tar("a.tar", {})))
    assert [len(part) for part in arrays] == [0, 1, 0, 0, 0, 0, 0, 1, 0]


@given(damage=st.lists(st.tuples(st.integers(0, 4 * BLOCK), st.binary(min_size=1, max_size=20)), max_size=6))
def test_damaged_headers_never_point_outside(tmp_path_factory, damage):
    path = tmp_path_factory.mktemp("damaged") / "a.tar"
    data = bytearray(raw_header(b"p", b"13", b"x") + b"11 path=aa\n".ljust(BLOCK, b"\0"))
    data += (
        raw_header(b"a.jpg", b"20") + b"x" * BLOCK + raw_header(b"b.jpg", struct.pack(">BxxxQ", 0x80, 7)) + bytes(BLOCK)
    )
    for at, junk in damage:
        data[at : at + len(junk)] = junk
    path.write_bytes(data)
    try:
        _, offsets, _, at, size, check, *_ = scan_tar(os.fsencode(path))
    except ValueError:
        return
    assert len(at) == len(size) == len(check) == len(offsets) - 1
    assert (np.asarray(at) >= BLOCK).all()
    assert (at + size <= len(data)).all()


def test_ctrl_c_ends_a_scan(tmp_path):
    path = tmp_path / "a.tar"
    path.write_bytes(raw_header(b"a.jpg", b"0") * 100_000)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):  # noqa: PT012  # the alarm may come before the scan begins
            signal.setitimer(signal.ITIMER_REAL, 0.002)
            scan_tar(os.fsencode(path))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
