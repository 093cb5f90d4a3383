"""What a file is, by its first bytes: files of other programs, under names that say otherwise."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import pickle
import sqlite3
import tarfile
import zipfile
from pathlib import Path
from typing import get_args

import h5py
import lmdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image, features

import headrace as hr
from headrace.data.sources.file_kind import Kind, kind_of
from headrace.errors import DatasetError, NotFoundError, UsageError

PICTURE = Image.fromarray(np.arange(3 * 8 * 8, dtype=np.uint8).reshape(8, 8, 3))
IMAGES = {"JPEG": "JPEG", "PNG": "PNG", "GIF": "GIF", "TIFF": "TIFF", "BMP": "BMP", "WEBP": "WebP", "PPM": "PNM"}
IMAGES |= {"JPEG2000": "JPEG 2000"} | ({"AVIF": "AVIF"} if features.check("avif") else {})
TABLE = pa.table({"image": ["a.jpg", "b.jpg"], "label": [1, 2]})


def picture(form: str) -> bytes:
    buffer = io.BytesIO()
    PICTURE.save(buffer, form)
    return buffer.getvalue()


def tar_of(form: int) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=form) as archive:
        member = tarfile.TarInfo("1.jpg")
        member.size = 5
        archive.addfile(member, io.BytesIO(b"12345"))
    return buffer.getvalue()


def old_tar() -> bytes:
    """Of the seventh edition: without magic, and its checksum made anew."""
    header = bytearray(tar_of(tarfile.USTAR_FORMAT))
    header[257:512] = bytes(255)
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header[:512])
    return bytes(header)


def zip_of(*names: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name in names:
            archive.writestr(name, b"12345")
    return buffer.getvalue()


def written(write) -> bytes:
    sink = io.BytesIO()
    write(sink)
    return sink.getvalue()


def arrow(new_writer) -> bytes:
    def write(sink: io.BytesIO) -> None:
        with new_writer(sink, TABLE.schema) as writer:
            writer.write_table(TABLE)

    return written(write)


def file_of(path: Path, make) -> bytes:
    make(path)
    return next(each for each in (path, path / "data.mdb") if each.is_file()).read_bytes()


def make_lmdb(path: Path) -> None:
    with lmdb.open(str(path)) as environment, environment.begin(write=True) as transaction:
        transaction.put(b"key", b"value")


def make_sqlite(path: Path) -> None:
    database = sqlite3.connect(path)
    database.execute("create table a (b)")
    database.close()


def hdf5() -> bytes:
    out = io.BytesIO()
    with h5py.File(out, "w") as file:
        file["images"] = np.zeros(3)
    return out.getvalue()


KINDS = {
    **{f"{name} image": (lambda form=form: picture(form), "image") for form, name in IMAGES.items()},
    ".npy": (lambda: written(lambda sink: np.save(sink, np.zeros(3))), "image"),
    "ustar": (lambda: tar_of(tarfile.USTAR_FORMAT), "tar"),
    "GNU tar": (lambda: tar_of(tarfile.GNU_FORMAT), "tar"),
    "pax": (lambda: tar_of(tarfile.PAX_FORMAT), "tar"),
    "old tar": (old_tar, "tar"),
    "zip": (lambda: zip_of("1.jpg"), "zip"),
    "empty zip": (zip_of, "zip"),
    "parquet": (lambda: written(lambda sink: pq.write_table(TABLE, sink)), "parquet"),
    "Arrow file": (lambda: arrow(pa.ipc.new_file), "arrow file"),
    "Arrow stream": (lambda: arrow(pa.ipc.new_stream), "arrow stream"),
    "gzip": (lambda: gzip.compress(b"x", mtime=0), "compressed"),
    "bzip2": (lambda: bz2.compress(b"x"), "compressed"),
    "xz": (lambda: lzma.compress(b"x"), "compressed"),
    "JSON": (lambda: json.dumps({"images": []}, indent=1).encode(), "json"),
    "JSON with a mark": (lambda: b"\xef\xbb\xbf\n " + json.dumps([1]).encode(), "json"),
    "HDF5": (hdf5, "arrays"),
    "pickle": (lambda: pickle.dumps([1]), "other"),
    "text": (lambda: b"a.jpg\nb.jpg\n", "other"),
    "nothing": (lambda: b"", "other"),
}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("ending", ["", ".bin", ".jpg", ".csv"])
@pytest.mark.parametrize("form", KINDS)
def test_bytes_tell(form, ending, tmp_path):
    """Whatever the name says; but a text or nothing is what it is called: a list, or an image that is damaged."""
    make, kind = KINDS[form]
    path = tmp_path / f"file{ending}"
    path.write_bytes(make())
    if ending == ".csv" and form in ("text", "nothing", "JSON", "JSON with a mark"):
        kind = "manifest"
    elif ending == ".jpg" and form in ("text", "nothing"):
        kind = "image"
    assert kind_of(str(path)).kind == kind


@pytest.mark.parametrize(
    "begin", ["BM,label\n", "P5 ,label\n", "PAR1,label\n", "{a},label\n", "GIF89a,label\n", "image\n"]
)
@pytest.mark.parametrize("ending", [".csv", ".tsv", ".txt", ".jsonl", ".odgt", ".CSV"])
def test_a_text_that_begins_as_another_format_is_a_text(begin, ending, tmp_path):
    path = tmp_path / f"list{ending}"
    path.write_text(begin + "a.jpg,1\n" * 300)
    assert kind_of(str(path)).kind == "manifest"


def test_damaged_files_have_a_kind_as_well(tmp_path):
    """Whatever is cut off or changed: no error, and a kind that is known."""
    random = np.random.default_rng(3)
    path = tmp_path / "file"
    for make, _ in KINDS.values():
        data = np.frombuffer(make()[:1100] or b"x", np.uint8)
        for _ in range(8):
            changed = data[: random.integers(1, len(data) + 1)].copy()
            changed[random.integers(0, len(changed), 3)] = random.integers(0, 256, 3)
            path.write_bytes(changed.tobytes())
            assert kind_of(str(path)).kind in get_args(Kind)


def test_zeros_are_what_they_are_called(tmp_path):
    """An empty tar is nothing else; but a zip may lie behind them."""
    for name, kind in (("a.tar", "tar"), ("a", "tar"), ("a.zip", "zip")):
        (tmp_path / name).write_bytes(bytes(10240))
        assert kind_of(str(tmp_path / name)).kind == kind


def test_a_character_cut_by_the_end_of_what_is_looked_at(tmp_path):
    for shift in range(4):
        (tmp_path / "list.csv").write_text("x" * shift + "é漢😀" * 400)
        assert kind_of(str(tmp_path / "list.csv")).kind == "manifest"


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (make_lmdb, r"got an LMDB database\. Read it in your own Dataset, with headrace\.ThreadDataLoader"),
        (make_sqlite, r"got an SQLite database\. Write the rows to a \.parquet or \.csv"),
    ],
)
def test_what_nothing_opens_is_named(make, words, tmp_path):
    (tmp_path / "data").write_bytes(file_of(tmp_path / "made", make))
    with pytest.raises(DatasetError, match=rf"data: expected a folder, tars, zips, a manifest or images, {words}"):
        hr.open(tmp_path / "data")


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        (
            "list.csv.gz",
            gzip.compress(b"image\na.jpg\n", mtime=0),
            r"got a file compressed with gzip\. Decompress it: gunzip -k list\.csv\.gz",
        ),
        ("a.pkl", pickle.dumps([1]), r"got a pickle\. Nothing is unpickled: write a \.parquet, or give the lists"),
        (
            "list.md",
            b"a.jpg\n",
            r"got a text\. Give it an ending that says how fields are separated: \.csv, \.tsv, \.txt",
        ),
        ("a.bin", b"\x01\x02\x03\x04", r"got bytes that begin with b'\\x01\\x02\\x03\\x04'\. Check the path"),
        ("empty", b"", r"got an empty file\. Check the path"),
    ],
)
def test_a_file_that_is_none_of_them(name, data, words, tmp_path):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(DatasetError, match=words):
        hr.open(tmp_path / name)


def test_files_are_opened_as_what_they_are(tmp_path):
    """A tar, a zip and a parquet file under other names, and a list of images."""
    (tmp_path / "shard").write_bytes(tar_of(tarfile.PAX_FORMAT))
    (tmp_path / "shard.tar").write_bytes(zip_of("1.jpg", "1.cls"))
    (tmp_path / "0000").write_bytes(KINDS["parquet"][0]())
    (tmp_path / "list.csv").write_bytes(KINDS["parquet"][0]())
    images = [tmp_path / f"{number}" for number in range(3)]
    for image in images:
        image.write_bytes(picture("JPEG"))
    assert list(hr.open(tmp_path / "shard").columns) == ["image", "jpg"]
    assert "zip shard.tar" in repr(hr.open(tmp_path / "shard.tar"))
    for name in ("0000", "list.csv"):
        assert hr.open(tmp_path / name).columns["label"].values.tolist() == [1, 2]
    assert hr.open(images).read("image", 1) == picture("JPEG")
    assert list(hr.open(tmp_path / "[012]").keys) == ["0", "1", "2"]


def test_kinds_do_not_mix(tmp_path):
    (tmp_path / "a.tar").write_bytes(tar_of(tarfile.PAX_FORMAT))
    (tmp_path / "b.tar").write_bytes(zip_of("1.jpg"))
    message = r"expected files of one kind, got a tar, .*a\.tar, and a zip, .*b\.tar\. Open them apart"
    with pytest.raises(UsageError, match=message):
        hr.open([tmp_path / "a.tar", tmp_path / "b.tar"])


def test_root_is_told_by_its_bytes_too(tmp_path):
    (tmp_path / "archive").write_bytes(zip_of("a.jpg", "b.jpg"))
    (tmp_path / "image").write_bytes(picture("PNG"))
    (tmp_path / "list.txt").write_text("a.jpg\nb.jpg\n")
    assert hr.open(tmp_path / "list.txt", root=tmp_path / "archive").read("image", 1) == b"12345"
    with pytest.raises(DatasetError, match=r"root: expected a folder, tars or zips, got a PNG image at .*image"):
        hr.open(tmp_path / "list.txt", root=tmp_path / "image")
    with pytest.raises(NotFoundError, match="root: expected a folder or an archive, got nothing"):
        hr.open(tmp_path / "list.txt", root=tmp_path / "nowhere")
