"""Files opened while a batch is made are what they were, and outside of a batch nothing is changed."""

from __future__ import annotations

import io
import mmap
import os
import pickle
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch.utils.data  # noqa: F401  # the hook comes with it
from library_probe import LibraryProbe, library_probe

CONTENT = bytes(range(256)) * 64


@pytest.fixture
def probed(tmp_path: Path) -> Iterator[LibraryProbe]:
    with library_probe(tmp_path / "session") as probed:
        yield probed


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "content"
    path.write_bytes(CONTENT)
    return path


def opened(path: Path) -> Any:
    return open(path, "rb")


def read_whole(path: Path) -> Any:
    with open(path, "rb") as file:
        return file.read()


def read_in_parts(path: Path) -> Any:
    with open(path, "rb") as file:
        parts = [file.read(1000), file.read1(10), file.peek(1)[:1], file.readline(), file.read(8000)]
        buffer = bytearray(20)
        return parts, file.readinto(buffer), buffer, file.tell(), file.seek(5), file.read(None)


def read_by_descriptor(path: Path) -> Any:
    with open(path, "rb") as file:
        return os.pread(file.fileno(), 10, 3), file.name, file.mode, file.raw.read(7), file.isatty(), file.seekable()


def read_by_numpy(path: Path) -> Any:
    with open(path, "rb") as file:
        file.read(16)
        return np.fromfile(file, np.uint16, 100).tolist(), file.tell()


def read_mapped(path: Path) -> Any:
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        return mapped[5:50]


def read_text(path: Path) -> Any:
    with open(path, encoding="latin-1", newline="") as file:
        return type(file), file.encoding, file.read()


def read_unbuffered(path: Path) -> Any:
    with open(path, "rb", buffering=0) as file:
        return type(file), file.read()


def copy(path: Path) -> Any:
    target = path.with_suffix(".copy")
    with open(path, "rb") as source, open(target, "wb") as to:
        shutil.copyfileobj(source, to)
    return target.read_bytes()


def update(path: Path) -> Any:
    with open(path, "r+b") as file:
        file.write(b"new")
        file.seek(0)
        return type(file), file.read(5)


def unpickle(path: Path) -> Any:
    path.write_bytes(pickle.dumps([CONTENT, {"a": list(range(1000))}]) + pickle.dumps("second"))
    with open(path, "rb") as file:
        return pickle.load(file), pickle.load(file)


USES = [
    read_whole,
    read_in_parts,
    read_by_descriptor,
    read_by_numpy,
    read_mapped,
    read_text,
    read_unbuffered,
    copy,
    update,
    unpickle,
]


@pytest.mark.one_in(2)
@pytest.mark.parametrize("use", USES, ids=[use.__name__ for use in USES])
def test_a_use_gives_in_a_batch_what_it_gives_outside(probed: LibraryProbe, path: Path, use: Any) -> None:
    expected = use(path)
    path.write_bytes(CONTENT)
    calls = probed.calls(lambda: use(path))
    assert probed.result == expected
    assert calls["read:file"] >= 1


def test_opening_and_reading_are_reads(probed: LibraryProbe, path: Path) -> None:
    assert probed.calls(lambda: read_whole(path)) == {"read:file": 2}


def test_small_reads_are_a_part_of_what_asks_for_them(probed: LibraryProbe, path: Path) -> None:
    with open(path, "rb") as file:
        assert probed.calls(lambda: [file.read(4) for _ in range(100)]) == {}


def test_a_file_is_a_buffered_reader_with_the_usual_buffer(probed: LibraryProbe, path: Path) -> None:
    with open(path, "rb") as usual:
        expected = len(usual.peek())
    probed.calls(lambda: opened(path))
    with probed.result as file:
        assert isinstance(file, io.BufferedReader)
        assert len(file.peek()) == expected


def test_a_file_may_outlive_its_batch(probed: LibraryProbe, path: Path) -> None:
    probed.calls(lambda: opened(path))
    with probed.result as file:
        assert file.read(5000) == CONTENT[:5000]
        assert probed.calls(lambda: file.read(5000)) == {"read:file": 1}
        assert probed.result == CONTENT[5000:10000]


def test_a_file_left_open_is_still_warned_of(probed: LibraryProbe, path: Path) -> None:
    with pytest.warns(ResourceWarning, match="unclosed file"):
        probed.calls(lambda: opened(path) and None)


def test_open_is_still_found_by_its_name(probed: LibraryProbe) -> None:
    assert pickle.loads(pickle.dumps(open)) is io.open
    assert open.__name__ == "open"

    class Holder:
        opener = open

    with pytest.raises(FileNotFoundError):
        Holder().opener("/nonexistent")
