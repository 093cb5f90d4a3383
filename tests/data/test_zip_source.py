"""Zips through a loader: the core's reading against `zipfile` and the dataset's own; sound, damaged, replaced."""

from __future__ import annotations

import os
import struct
import zipfile
from pathlib import Path

import battery
import numpy as np
import pytest
from bad_loads import JPEG, PNG, fails, load, says
from hypothesis import given
from hypothesis import strategies as st
from loader_data import COUNT, encode, photograph, write_zip
from zip_files import (
    CENTRAL,
    DAMAGE,
    DAMAGED_CONTENT,
    LOCAL,
    READABLE,
    Stream,
    patched,
    sized,
    written_by_hand,
    zip_members,
)

import headrace as hr
from headrace.errors import ChangedError, DatasetError, DecodeError, HeadraceError, LimitError


def raw_loader(path, **options) -> hr.Loader:
    return load(path, {"image": hr.Raw()}, view=None, **({"batch_size": 1, "on_error": "raise"} | options))


def read_all(path) -> list[bytes]:
    return [content for batch in raw_loader(path, batch_size=3) for content in batch["image"]]


CONTENTS = {f"{number}.jpg": bytes(range(number)) * (number * number) for number in range(40)}
"""Of 0 to 59,319 bytes."""


@pytest.mark.parametrize("method", READABLE)
def test_reads_what_zipfile_does(tmp_path, method):
    path = zip_members(tmp_path / "a.zip", CONTENTS, method)
    with zipfile.ZipFile(path) as reference:
        assert read_all(path) == [reference.read(name) for name in CONTENTS]


@given(
    contents=st.lists(st.binary(max_size=3000), min_size=1, max_size=8), streamed=st.booleans(), level=st.integers(0, 9)
)
def test_reads_any_content(tmp_path_factory, contents, streamed, level):
    path = tmp_path_factory.mktemp("zip") / "a.zip"
    out = Stream()
    with zipfile.ZipFile(out if streamed else path, "w", zipfile.ZIP_DEFLATED, compresslevel=level) as archive:
        for number, content in enumerate(contents):
            with archive.open(f"{number}.jpg", "w", force_zip64=number % 3 == 2) as file:
                file.write(content)
    if streamed:
        path.write_bytes(out.getvalue())
    assert read_all(path) == contents


@pytest.mark.one_in(2)
@pytest.mark.parametrize("extra_bytes", [0, 400, 511, 512, 513, 60_000])
@pytest.mark.parametrize("gap", [0, 1, 700], ids=lambda gap: f"gap of {gap}")
def test_local_extra_fields_of_any_length(tmp_path, extra_bytes, gap):
    """The directory knows nothing of them: where they are longer than what was read ahead, it reads again."""
    extra = struct.pack("<HH", 0xCAFE, extra_bytes) + bytes(extra_bytes) if extra_bytes else b""
    path = written_by_hand(tmp_path / "a.zip", b"a.jpg", b"found", local_extra=extra)
    whole = path.read_bytes()
    at = whole.index(CENTRAL)
    start = struct.unpack_from("<I", whole, len(whole) - 6)[0]
    # Bytes between the member and the directory that belong to neither.
    path.write_bytes(whole[:at] + bytes(gap) + whole[at:-6] + struct.pack("<IH", start + gap, 0))
    assert read_all(path) == [b"found"]


def test_beyond_4_gib(tmp_path):
    assert read_all(written_by_hand(tmp_path / "a.zip", b"a.jpg", b"far", before=5 << 30)) == [b"far"]


# --- damage ---


@pytest.mark.parametrize(("changes", "error", "message"), DAMAGE.values(), ids=DAMAGE)
def test_what_is_wrong_has_a_name(tmp_path, changes, error, message):
    path = zip_members(tmp_path / "a.zip", {"1.jpg": DAMAGED_CONTENT})
    loader = raw_loader(patched(path, changes))
    with pytest.raises(error, match=message) as caught:
        list(loader)
    says(caught, "sample '1', field 'image'", str(path))


def test_damaged_members_are_replaced_and_counted(tmp_path):
    path = write_zip(tmp_path / "a.zip")
    with zipfile.ZipFile(path) as archive:
        info = archive.getinfo("0005.png")
    with path.open("r+b") as file:
        file.seek(info.header_offset + 30 + len(info.filename) + 40)
        file.write(b"\xff" * 20)
    loader = load(path, {"image": hr.Image(), "text": hr.Raw()}, max_bad=0.5, quarantine=tmp_path / "bad.jsonl")
    texts = [text for batch in loader for text in batch["text"]]
    assert len(texts) == COUNT
    assert b"number 5" not in texts
    assert (loader.stats().bad, loader.stats().replaced) == (1, 1)
    assert f'"shard": "{path}", "offset": {info.header_offset}' in (tmp_path / "bad.jsonl").read_text()


def test_a_bomb_takes_no_more_memory_than_it_says(tmp_path):
    path = sized(zip_members(tmp_path / "a.zip", {"1.jpg": bytes(50_000_000)}), 1000)
    fails(DecodeError, raw_loader(path), "expected 1000 bytes, got more")


def test_max_file_bytes_is_of_the_inflated_data(tmp_path):
    path = zip_members(tmp_path / "a.zip", {"1.jpg": bytes(100_001)})
    assert path.stat().st_size < 1000
    loader = raw_loader(path, limits=hr.Limits(max_file_bytes=100_000))
    fails(LimitError, loader, "100001 bytes, more than max_file_bytes=100000", "raise it with limits=")
    assert len(next(iter(raw_loader(path, limits=hr.Limits(max_file_bytes=100_001))))["image"][0]) == 100_001


def test_what_a_size_cannot_be_is_refused_before_memory_is_taken(tmp_path):
    """A member of some bytes that says it holds a gigabyte."""
    path = sized(zip_members(tmp_path / "a.zip", {"1.jpg": b"x" * 100}), 1 << 30)
    fails(DecodeError, raw_loader(path), "more than they can hold")


@given(damage=st.lists(st.tuples(st.integers(0, 330), st.binary(min_size=1, max_size=8)), min_size=1, max_size=4))
@pytest.mark.long
def test_odd_bytes_are_to_the_core_what_they_are_to_python(tmp_path_factory, damage):
    path = zip_members(tmp_path_factory.mktemp("odd") / "a.zip", {"a.jpg": b"abc" * 30, "b.jpg": b"xyz" * 30})
    raw = bytearray(path.read_bytes())
    for at, junk in damage:
        raw[at : at + len(junk)] = junk
    path.write_bytes(raw)
    try:
        dataset = hr.open(path)
    except DatasetError:
        return
    for number in range(len(dataset) if "image" in dataset.columns else 0):
        alone = dataset.select([number])
        assert outcome(lambda: next(iter(raw_loader(alone)))["image"][0]) == outcome(lambda: alone.read("image", 0))  # noqa: B023


def outcome(read) -> bytes | type[Exception]:
    try:
        return read()
    except KeyError:  # what Python calls a member that is not there; to a loader such a sample is bad
        return DecodeError
    except HeadraceError as error:
        return type(error)


# --- zips that change ---


def rewritten(path: Path, members: dict[str, bytes]) -> None:
    """Another zip in its place, under the same name."""
    os.replace(zip_members(path.with_name("new"), members, zipfile.ZIP_STORED), path)


def test_a_zip_that_was_replaced(tmp_path):
    path = zip_members(tmp_path / "a.zip", {f"{number}.jpg": JPEG for number in range(9)}, zipfile.ZIP_STORED)
    loader = load(path, {"image": hr.Image()})
    rewritten(path, {f"{number}.jpg": PNG for number in reversed(range(9))})
    fails(ChangedError, loader, "sample '", str(path), "local header is not the one that was indexed; index it again")


def test_a_zip_replaced_by_one_of_the_same_names_and_sizes(tmp_path):
    """Every header lies where it lay; only the CRC tells."""
    other = encode(photograph(2, 64, 48), quality=90)
    size = max(len(JPEG), len(other))
    first, second = (content.ljust(size, b"\0") for content in (JPEG, other))
    path = zip_members(tmp_path / "a.zip", {f"{number}.jpg": first for number in range(5)}, zipfile.ZIP_STORED)
    status = path.stat()
    loader = load(path, {"image": hr.Image()})
    rewritten(path, {f"{number}.jpg": second for number in range(5)})
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert path.stat().st_size == status.st_size
    fails(ChangedError, loader, str(path), "local header is of other data than was indexed; index it again")


def test_a_zip_that_became_shorter(tmp_path):
    path = write_zip(tmp_path / "a.zip")
    dataset = hr.open(path)
    os.truncate(path, path.stat().st_size // 2)
    fails(ChangedError, load(dataset), "sample '", str(path), "ends at byte", "index it again")


def test_a_zip_that_is_replaced_under_its_reader(tmp_path):
    """An open descriptor keeps the old file: a pass that has begun ends well, the next one notices."""
    path = write_zip(tmp_path / "a.zip")
    loader = load(hr.open(path), batch_size=4, prefetch=1)
    expected = battery.kept(loader)
    loader.set_epoch(0)
    iterator = iter(loader)
    got = battery.kept([next(iterator)])
    rewritten(path, {"x.jpg": JPEG})
    battery.assert_equal(got + battery.kept(iterator), expected, "replaced while it was read")
    fails(ChangedError, loader, str(path))


def test_a_zip_written_over_in_place(tmp_path):
    """Same file, other content: what is read of it is an error, never another sample's data."""
    path = write_zip(tmp_path / "a.zip")
    loader = load(hr.open(path), {"image": hr.Image()})
    with path.open("r+b") as file:
        content = file.read().replace(LOCAL, b"PK\x03\x05")
        file.seek(0)
        file.write(content)
    fails(ChangedError, loader, str(path), "local header is not the one that was indexed")


# --- what Pillow decodes ---


def test_what_the_core_leaves_to_pillow_is_read_out_of_the_zip(tmp_path):
    images = {f"{number}.bmp": encode(photograph(number, 30, 20), "BMP") for number in range(4)}
    loader = load(zip_members(tmp_path / "a.zip", images), {"image": hr.Image()}, view=None, on_error="raise")
    (batch,) = loader
    expected = np.stack([np.asarray(photograph(number, 30, 20)).transpose(2, 0, 1) for number in range(4)])
    np.testing.assert_array_equal(batch["image"], expected)
    assert loader.stats().declined == 4
