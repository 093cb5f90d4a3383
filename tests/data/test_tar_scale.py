"""What a tar of many members costs, in counts: bytes kept, reads, memory. A cut of a million members."""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from member_headers import write_headers
from processes import run_python

import headrace as hr
import headrace.data as data
from headrace._core import scan_tar
from headrace.data import table
from headrace.data.archives import archive_columns
from headrace.data.storage import safetensors, strings

PHOTO_BYTES = 79_872

COUNT = 2**14 + 1
"""The smallest number of its size at which the hash table of names is as large as it gets."""
MANY = 2**20 + 1
"""And a million's."""

LAYOUTS: dict[str, Callable[[int], str]] = {
    "images": lambda number: f"{number:07d}.jpg",
    "images and labels": lambda number: f"{number // 2:07d}.{('jpg', 'cls')[number % 2]}",
    "nine to a sample": lambda number: f"{number // 9:07d}.{number % 9}",
    "each of another kind": lambda number: f"{number:07d}.{number % 200}",
}


def many(path: Path, count: int, name_of: Callable[[int], str]) -> Path:
    return write_headers(path, ((name_of(number), 0) for number in range(count)))


def bytes_beyond_names(path: Path) -> int:
    kept = f"{path}.headrace"
    return os.path.getsize(kept) - safetensors.read_arrays(kept)[0]["names.blob"].nbytes


@pytest.mark.parametrize(
    "layout", [one if one == "each of another kind" else pytest.param(one, marks=pytest.mark.long) for one in LAYOUTS]
)
@pytest.mark.long
def test_a_sidecar_takes_at_most_64_bytes_a_member(tmp_path, layout):
    path = many(tmp_path / "a.tar", COUNT, LAYOUTS[layout])
    data.open(path)
    names = safetensors.read_arrays(f"{path}.headrace")[0]["names.blob"].nbytes
    assert names == sum(len(LAYOUTS[layout](number)) for number in range(COUNT))
    assert bytes_beyond_names(path) <= 64 * COUNT


def reads_of_scan(path: Path) -> int:
    def reads() -> int:
        return int(Path("/proc/self/io").read_text().partition("syscr: ")[2].split()[0])

    before = reads()
    own = reads() - before  # what it takes to ask
    before = reads()
    scan_tar(os.fsencode(path))
    return reads() - before - own


def test_one_read_a_large_member(tmp_path):
    path = write_headers(tmp_path / "a.tar", ((f"{number}.jpg", PHOTO_BYTES) for number in range(300)))
    assert reads_of_scan(path) <= 300 + 3  # and those at the end mark


def test_one_read_a_large_member_and_its_label(tmp_path):
    members = [part for number in range(300) for part in ((f"{number}.jpg", PHOTO_BYTES), (f"{number}.cls", 3))]
    assert reads_of_scan(write_headers(tmp_path / "a.tar", members)) <= 300 + 4


def test_one_read_a_large_member_and_its_pax_records(tmp_path):
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as tar:
        for number in range(100):
            info = tarfile.TarInfo(f"é{number}.jpg")
            info.size = PHOTO_BYTES
            tar.addfile(info, io.BytesIO(bytes(PHOTO_BYTES)))
    assert reads_of_scan(path) <= 100 + 4


def test_small_members_are_read_many_at_once(tmp_path):
    path = write_headers(tmp_path / "a.tar", ((f"{number}.txt", 700) for number in range(20_000)))
    assert reads_of_scan(path) <= path.stat().st_size / 2**18 + 20


MEMORY = """
import sys
import headrace as hr

def anonymous():
    return int(open("/proc/self/status").read().partition("RssAnon:")[2].split()[0]) * 1024

dataset = hr.open(sys.argv[1])  # the first time it is scanned
hr.open(sys.argv[2])  # what opening costs whatever is opened
before = anonymous()
dataset = hr.open(sys.argv[1])
opened = anonymous() - before
fields = {"image": hr.Raw(), "label": hr.Raw()}
loader = hr.Loader(dataset, fields, batch_size=64, shuffle=True, threads=1, output="numpy")
taken = iter(loader)
for _ in range(20):
    next(taken)
loader.state_dict()
print(opened, anonymous() - before)
taken.close()
"""


def memory_of_use(path: Path, few: Path) -> tuple[int, int]:
    """Bytes by which a fresh process grows when it opens the tar, and when it has loaded batches; without pages of the
    sidecar, which all processes share and the kernel may drop."""
    code, out, error = run_python(MEMORY, path, few)
    assert code == 0, error
    opened, loaded = map(int, out.split())
    return opened, loaded


@pytest.mark.parametrize("count", [COUNT, pytest.param(MANY, marks=[pytest.mark.long, pytest.mark.timeout(600)])])
@pytest.mark.long
def test_memory_does_not_grow_with_the_members(tmp_path, count):
    layout = LAYOUTS["images and labels"]
    path, few = many(tmp_path / "a.tar", count, layout), many(tmp_path / "few.tar", 10, layout)
    data.open(path)  # not in the process that is looked at: the scan takes more
    opened, loaded = memory_of_use(path, few)
    assert opened < 1 << 20
    assert loaded < 16 << 20
    assert bytes_beyond_names(path) <= 64 * count


def reference_digest(ds: data.Dataset) -> str:
    """The identity as it is defined, over all samples at once."""
    state = hashlib.blake2b(digest_size=16)
    outline = {name: ["bytes", None] for name in ds.columns}
    keys = [key.encode("utf-8", "surrogateescape") for key in ds.keys]
    arrays = [np.frombuffer(b"".join(keys), np.uint8), np.array([len(key) for key in keys], "<i8")]
    for name in sorted(ds.columns):
        at = ds.locate(name, np.arange(len(ds)))
        arrays += [at.length.astype("<i8"), at.check.astype("<u4")]
    state.update(json.dumps(["headrace table 1", outline], sort_keys=True).encode())
    for array in arrays:
        state.update(array.nbytes.to_bytes(8, "little") + b"\1" + array.tobytes())
    return hashlib.blake2b(state.hexdigest().encode(), digest_size=16).hexdigest()


def test_the_digest_that_is_kept_is_that_of_the_samples(make_tar):
    ds = data.open(
        make_tar("a.tar", {"1.png": b"P", "1.jpg": b"J", "é/2.jpg": b"", "2.cls": b"7", "1.x": b"", ".h": b""})
    )
    assert ds.table.known_digest is not None
    assert ds.fingerprint == reference_digest(ds)


def test_the_digest_of_several_tars_is_that_of_one_with_all(tmp_path, monkeypatch):
    """And does not depend on how many samples are looked at in one piece."""
    names = [f"{number:06d}.{extension}" for number in range(1000) for extension in ("jpg", "cls")]
    whole = data.open(write_headers(tmp_path / "whole.tar", ((name, 0) for name in names)))
    monkeypatch.setattr(strings, "_PIECE", 300)
    monkeypatch.setattr(archive_columns, "_SAMPLES_AT_ONCE", 300)
    parts = data.open(
        [
            write_headers(tmp_path / f"{start}.tar", ((name, 0) for name in names[start : start + 800]))
            for start in range(0, len(names), 800)
        ]
    )
    assert parts.table.known_digest is None
    assert whole.fingerprint == parts.fingerprint == reference_digest(whole)


def test_a_state_does_not_look_at_the_samples(make_tar, monkeypatch):
    path = make_tar("a.tar", {"1.jpg": b"J", "2.jpg": b"J"})
    loader = hr.Loader(path, {"image": hr.Raw()}, batch_size=1, output="numpy")
    expected = loader.state_dict()["dataset"]
    monkeypatch.setattr(table, "table_digest", None)
    assert hr.Loader(path, {"image": hr.Raw()}, batch_size=1, output="numpy").state_dict()["dataset"] == expected
    with pytest.raises(TypeError):  # of two tars together nothing is kept
        _ = data.open([path, path]).fingerprint


def test_several_tars_are_not_joined_in_memory(make_tar):
    paths = [make_tar(f"{number}.tar", {f"{number}.jpg": b"x", f"{number}.cls": b"0"}) for number in range(3)]
    image = data.open(paths).columns["image"]
    for path, names, samples, size in zip(
        paths, image.samples.names, image.samples.samples, image.places.joined["size"].parts, strict=True
    ):
        alone = data.open(path).columns["image"]
        np.testing.assert_array_equal(size, alone.places.joined["size"].parts[0])
        assert not any(array.flags.owndata for array in (names.blob, samples.first, samples.member, size))
