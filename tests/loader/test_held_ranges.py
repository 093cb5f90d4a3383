"""Ranges whose bytes the caller holds read as those in files do: the same checks, the same messages, no file opened."""

from __future__ import annotations

import io
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import headrace as hr
from headrace import _core
from headrace.data import Dataset, native_paths

SIZES = [10, 3000, 1, 700, 0, 12_345]


def picture(seed: int, size: tuple[int, int]) -> bytes:
    pixels = np.random.default_rng(seed).integers(0, 255, (*size, 3), np.uint8)
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "JPEG")
    return out.getvalue()


def members() -> dict[str, bytes]:
    return {f"{at:02}.bin": np.random.default_rng(at).bytes(size) for at, size in enumerate(SIZES)}


def tar_of(path: Path, content: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w") as tar:
        for name, data in content.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path


def zip_of(path: Path, content: dict[str, bytes], method: int) -> Path:
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, data in content.items():
            archive.writestr(name, data)
    return path


def job_of(dataset: Dataset, column: str, held: Any) -> _core.Job:
    """Read all samples' bytes in the core; the archive itself is not there."""
    at = dataset.locate(column, np.arange(len(dataset)))
    paths = native_paths(dataset.files(column))
    zipped = None if at.zipped is None else tuple(at.zipped)
    engine = _core.Engine(2, retry_waits_s=[])
    try:
        job = _core.Job(np.arange(len(dataset)), np.zeros(len(dataset), np.uint32), key=0, program=np.zeros((0, 10)))
        job.add_raw(_core.Ranges(paths, at.path_id, at.offset, at.length, at.check, zipped, held))
        engine.submit(job)
        job.wait()
        return job
    finally:
        engine.close()


def in_pieces(path: Path, cuts: list[int], samples: int) -> Any:
    """Hold a file in two pieces, which overlap at the cut; the first `samples // 2` samples are read from the first."""
    data = path.read_bytes()
    first = np.arange(samples) >= samples // 2
    return [data[: cuts[1]], memoryview(data)[cuts[0] :]], [0, cuts[0]], first.astype(np.int64)


@pytest.mark.parametrize("kind", ["tar", "stored", "deflated"])
def test_what_is_held_is_what_the_archive_has(tmp_path: Path, kind: str) -> None:
    content = members()
    if kind == "tar":
        path = tar_of(tmp_path / "a.tar", content)
    else:
        path = zip_of(tmp_path / "a.zip", content, zipfile.ZIP_STORED if kind == "stored" else zipfile.ZIP_DEFLATED)
    dataset = hr.open(path)
    at = dataset.locate("bin", np.arange(len(dataset)))
    assert at.offset is not None
    middle = int(at.offset[3])
    held = in_pieces(path, [middle - 600, middle], len(dataset))
    path.unlink()
    job = job_of(dataset, "bin", held)
    assert job.failures() == []
    assert job.raw(0) == list(content.values())


def test_bytes_that_are_not_held_are_read_from_the_file(tmp_path: Path) -> None:
    content = members()
    path = tar_of(tmp_path / "a.tar", content)
    dataset = hr.open(path)
    which = np.array([0, -1, 0, -1, -1, 0])
    job = job_of(dataset, "bin", ([path.read_bytes()], [0], which))
    assert job.raw(0) == list(content.values())
    path.unlink()
    job = job_of(dataset, "bin", ([bytes(40_000)], [0], which))
    assert {row for row, *_ in job.failures()} == {0, 1, 2, 3, 4, 5}


def test_another_tar_header_than_was_indexed_is_found(tmp_path: Path) -> None:
    path = tar_of(tmp_path / "a.tar", members())
    dataset = hr.open(path)
    data = bytearray(path.read_bytes())
    data[0] ^= 1
    job = job_of(dataset, "bin", ([bytes(data)], [0], np.zeros(len(dataset), np.int64)))
    ((row, _, _, _, why),) = job.failures()
    assert row == 0
    assert why == f"{path}: the tar header at byte 0 is not the one that was indexed; index it again"


def test_a_piece_that_ends_early_or_begins_late_says_where(tmp_path: Path) -> None:
    path = tar_of(tmp_path / "a.tar", members())
    dataset = hr.open(path)
    data, nothing = path.read_bytes(), np.zeros(len(dataset), np.int64)
    at = dataset.locate("bin", np.arange(len(dataset)))
    assert at.offset is not None
    end = int(at.offset[-1]) + 100
    ((row, _, _, _, why),) = job_of(dataset, "bin", ([data[:end]], [0], nothing)).failures()
    assert (row, why) == (
        5,
        f"{path} ends at byte {end}, 12245 bytes before the end of what was indexed; index it again",
    )
    ((row, _, _, _, why),) = job_of(dataset, "bin", ([data[1:]], [1], nothing)).failures()
    assert (row, why) == (0, f"{path}: no bytes are held before 1")


def test_loose_files_are_held_whole(tmp_path: Path) -> None:
    for at in range(3):
        (tmp_path / f"{at}.jpg").write_bytes(picture(at, (30 + at, 40)))
    dataset = hr.open(tmp_path)
    whole = [(tmp_path / f"{at}.jpg").read_bytes() for at in range(3)]
    for each in tmp_path.glob("*.jpg"):
        each.unlink()
    job = job_of(dataset, "image", (whole, [0, 0, 0], np.arange(3)))
    assert job.raw(0) == whole


@pytest.mark.parametrize(
    ("held", "error"),
    [
        (([b"x"], [0], np.array([0, 1])), "no such part is held"),
        (([b"x"], [0, 1], np.array([0, 0])), "expected as many parts as first bytes"),
        (([b"x"], [0], np.array([0])), "expected 2 values of held_in, got 1"),
    ],
)
def test_parts_that_are_not_there_are_refused(tmp_path: Path, held: Any, error: str) -> None:
    dataset = hr.open(tar_of(tmp_path / "a.tar", {"a.bin": b"1", "b.bin": b"2"}))
    with pytest.raises(ValueError, match=error):
        job_of(dataset, "bin", held)
