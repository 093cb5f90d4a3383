"""The native reading of a zip's central directory, against `zipfile` and by hand where that does not know."""

from __future__ import annotations

import io
import os
import struct
import zipfile
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from zip_files import Stream, patched, written_by_hand, zip_members, zip_of

from headrace._core import read_zip_directory
from headrace.data import StringColumn
from headrace.data.archives.zip_reading import local_header_check

UTF8 = 0x800


def entries(path) -> list[tuple[str, int, int, int, int, int, int]]:
    """Name, size, packed, method, CRC, offset and flags of each member."""
    names, offsets, *columns, check, start = read_zip_directory(os.fsencode(path))
    assert {len(column) for column in columns} == {len(offsets) - 1} == {len(check)}
    assert start <= os.path.getsize(path)
    return list(zip(StringColumn(names, offsets), *(column.tolist() for column in columns), strict=True))


def of_zipfile(path) -> list[tuple[str, int, int, int, int, int, int]]:
    with zipfile.ZipFile(path) as archive:
        return [
            (i.filename, i.file_size, i.compress_size, i.compress_type, i.CRC, i.header_offset, i.flag_bits)
            for i in archive.infolist()
        ]


names = st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=8), max_size=8)


@given(names=names, comment=st.binary(max_size=40), program=st.binary(max_size=40), streamed=st.booleans())
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_any_zip(tmp_path_factory, names, comment, program, streamed):
    path = tmp_path_factory.mktemp("zip") / "a.zip"
    out = Stream() if streamed else io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for number, name in enumerate(names):
            info = zipfile.ZipInfo(name)
            info.compress_type = zipfile.ZIP_DEFLATED if number % 2 else zipfile.ZIP_STORED
            info.comment = comment[number:]
            archive.writestr(info, name.encode() * number)
        archive.comment = comment
    path.write_bytes(program + out.getvalue())
    try:
        expected = of_zipfile(path)
    except zipfile.BadZipFile:  # the program or the comment looks like an end record
        return
    assert entries(path) == expected


def test_every_byte_of_a_name_without_the_flag_is_code_page_437(tmp_path):
    raw = bytes(range(1, 256))
    path = written_by_hand(tmp_path / "a.zip", raw, b"x")
    assert entries(path)[0][0] == raw.decode("cp437")
    assert entries(path) == of_zipfile(path)
    checks = read_zip_directory(os.fsencode(path))[-2]
    assert checks.tolist() == [local_header_check(0, raw)]


def test_a_name_that_says_it_is_utf8_and_is_not_keeps_its_bytes(tmp_path):
    path = written_by_hand(tmp_path / "a.zip", b"caf\xe9.jpg", b"x", flags=UTF8)
    assert entries(path)[0][0] == "caf\udce9.jpg"


def test_a_name_ends_at_its_first_zero_byte(tmp_path):
    path = written_by_hand(tmp_path / "a.zip", b"a.jpg\0.txt", b"x")
    assert entries(path) == of_zipfile(path)
    assert entries(path)[0][0] == "a.jpg"


@pytest.mark.parametrize(
    ("version", "of", "expected"),
    [(1, b"gr??e.jpg", "grüße.jpg"), (1, b"another", "gr??e.jpg"), (2, b"gr??e.jpg", "gr??e.jpg")],
    ids=["its own", "of another name", "of another version"],
)
def test_info_zips_field_for_names_in_unicode(tmp_path, version, of, expected):
    field = struct.pack("<BI", version, zlib.crc32(of)) + "grüße.jpg".encode()
    extra = b"\xfe\xca\x02\x00ab" + struct.pack("<HH", 0x7075, len(field)) + field
    path = written_by_hand(tmp_path / "a.zip", b"gr??e.jpg", b"x", central_extra=extra)
    assert entries(path)[0][0] == expected


@pytest.mark.parametrize("before", [0xFFFFFFFE, 0xFFFFFFFF, 1 << 33], ids=["below 4 GiB", "at 4 GiB", "beyond 4 GiB"])
def test_places_beyond_4_gib(tmp_path, before):
    path = written_by_hand(tmp_path / "a.zip", b"a.jpg", b"far away", before=before)
    assert entries(path) == of_zipfile(path) == [("a.jpg", 8, 8, 0, zlib.crc32(b"far away"), before, 0)]


def test_no_members(tmp_path):
    assert entries(zip_members(tmp_path / "a.zip", {})) == []


def test_a_directory_larger_than_the_window_that_it_is_read_through(tmp_path):
    """Entries that lie across two windows, and one that is nearly as large as an entry can be."""
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for number in range(300):
            info = zipfile.ZipInfo(f"{number}" + "n" * (number * 97 % 6000))
            info.extra = struct.pack("<HH", 0xCAFE, number * 13 % 9000) + bytes(number * 13 % 9000)
            info.comment = b"c" * (65_535 if number == 150 else number)
            archive.writestr(info, b"")
    assert os.path.getsize(path) > 2 << 20
    assert entries(path) == of_zipfile(path)


SIGNATURE, END = b"PK\1\2", b"PK\5\6"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({(END, 0, "<B"): 0}, "expected a zip, got a file without the end record of one"),
        ({(END, 12, "<I"): 1 << 30}, "its central directory does not lie before its end record"),
        ({(END, 16, "<I"): 1 << 30}, "its central directory does not lie before its end record"),
        ({(END, 4, "<H"): 1}, r"it is one part of a zip that was split; join them with `zip -s 0`"),
        ({(SIGNATURE, 0, "<B"): 0}, "expected an entry of the central directory at byte"),
        ({(SIGNATURE, 28, "<H"): 60_000}, "its central directory ends within an entry"),
        ({(SIGNATURE, 24, "<I"): 0xFFFFFFFF}, "a ZIP64 field without the size that it has to give"),
        ({(SIGNATURE, 30, "<H"): 4, (SIGNATURE, 28, "<H"): 1}, "an extra field that is longer than all of them"),
    ],
    ids=["no end", "too long", "elsewhere", "split", "signature", "long name", "ZIP64", "extra"],
)
def test_damage_is_named(tmp_path, changes, message):
    path = zip_members(tmp_path / "a.zip", {"abcde": b"x"})
    if "ZIP64" in message:
        path = written_by_hand(path, b"a", b"x", central_extra=struct.pack("<HH", 1, 0))
    with pytest.raises(ValueError, match=rf"a\.zip: .*{message}"):
        read_zip_directory(os.fsencode(patched(path, changes)))


def test_what_is_no_file(tmp_path):
    with pytest.raises(OSError, match="could not be opened: No such file"):
        read_zip_directory(os.fsencode(tmp_path / "a.zip"))
    with pytest.raises(OSError, match="expected a regular file"):
        read_zip_directory(os.fsencode(tmp_path))


def test_a_directory_that_promises_as_much_as_a_terabyte_takes_no_memory(tmp_path):
    """A sparse file, whose end record says that nearly all of it is the directory."""
    path = tmp_path / "a.zip"
    size = 1 << 40
    large = b"PK\6\6" + struct.pack("<QHHIIQQQQ", 44, 45, 45, 0, 0, 1, 1, size, 0)
    locator = b"PK\6\7" + struct.pack("<IQI", 0, size, 1)
    with path.open("wb") as file:
        file.seek(size)
        file.write(large + locator + b"PK\5\6" + struct.pack("<HHHHIIH", 0, 0, 1, 1, 0xFFFFFFFF, 0xFFFFFFFF, 0))
    with pytest.raises(ValueError, match="expected an entry of the central directory at byte 0"):
        read_zip_directory(os.fsencode(path))


@given(damage=st.lists(st.tuples(st.integers(0, 400), st.binary(min_size=1, max_size=8)), min_size=1, max_size=5))
def test_odd_bytes_are_an_error_or_what_zipfile_says(tmp_path_factory, damage):
    path = zip_of(tmp_path_factory.mktemp("odd") / "a.zip", b"abc" * 30)
    data = bytearray(path.read_bytes())
    for at, junk in damage:
        data[at : at + len(junk)] = junk
    path.write_bytes(data)
    try:
        found = entries(path)
    except ValueError:
        return
    try:
        expected = of_zipfile(path)
    except (zipfile.BadZipFile, NotImplementedError, UnicodeDecodeError, ValueError):
        return  # what zipfile refuses besides: versions to come, names that are not UTF-8
    assert found == expected


def test_numbers_fit_the_index(tmp_path):
    names, offsets, size, packed, method, crc, offset, flags, check, _ = read_zip_directory(
        os.fsencode(zip_of(tmp_path / "a.zip", b"x"))
    )
    types = [array.dtype for array in (names, offsets, size, packed, method, crc, offset, flags, check)]
    int64, uint32 = np.dtype(np.int64), np.dtype(np.uint32)
    assert types == [np.uint8, np.uint64, int64, int64, uint32, uint32, int64, uint32, uint32]
