"""Which files are opened while first batches are made: noted whatever opens them, in bounded memory."""

from __future__ import annotations

import gzip
import io
import os
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import h5py
import numpy as np
import pytest
import torch
from PIL import Image
from probing import LibraryProbe

from headrace.doctor.probe.batch_production import MOST_NOTED, OpenedFiles


def test_paths_are_noted_while_somebody_asks() -> None:
    faults: list[Exception] = []
    opened = OpenedFiles(faults.append)
    opened.add("/data/before.jpg")
    opened.noted = []
    for path in ("/data/a.jpg", b"/data/c.png", Path("/more/README"), 7, "/proc/self/stat", "/data/a.jpg"):
        opened.add(path)
    assert opened.noted == ["/data/a.jpg", "/data/c.png", "/more/README", "/data/a.jpg"]
    for number in range(1_000):
        opened.add(f"/data/{number}.jpg")
    assert len(opened.noted) == MOST_NOTED
    assert faults == []


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    (folder / "a.bin").write_bytes(b"content" * 100)
    np.save(folder / "a.npy", np.arange(9))
    Image.effect_noise((8, 8), 50).save(folder / "a.png")
    torch.save({"a": 1}, folder / "a.pt")
    with gzip.open(folder / "a.gz", "wb") as file:
        file.write(b"text")
    with tarfile.open(folder / "a.tar", "w") as tar:
        tar.add(folder / "a.bin", "a.bin")
    with zipfile.ZipFile(folder / "a.zip", "w") as archive:
        archive.write(folder / "a.bin", "a.bin")
    with h5py.File(folder / "a.h5", "w") as hdf5:
        hdf5["a"] = [1, 2]
    return folder


def by_descriptor(path: str) -> None:
    os.close(os.open(path, os.O_RDONLY))


def by_text(path: str) -> None:
    with open(file=path, encoding="latin-1") as file:
        file.readline()


def by_io(path: str) -> None:
    with io.open(path, "rb") as file:  # noqa: UP020
        file.read()


def by_gzip(path: str) -> None:
    with gzip.open(path) as file:
        file.read()


def by_zip(path: str) -> None:
    with zipfile.ZipFile(path) as archive:
        archive.read("a.bin")


READS: list[tuple[str, Callable[[str], Any]]] = [
    ("a.bin", lambda path: open(path, "rb").close()),
    ("a.bin", by_text),
    ("a.bin", by_io),
    ("a.bin", by_descriptor),
    ("a.bin", lambda path: Path(path).read_bytes()),
    ("a.bin", lambda path: Path(path).open().close()),
    ("a.bin", lambda path: np.fromfile(path, np.uint8)),
    ("a.bin", lambda path: np.memmap(path, mode="r")[0]),
    ("a.npy", lambda path: np.load(path)),
    ("a.png", lambda path: Image.open(path).load()),
    ("a.png", lambda path: cv2.imread(path)),
    ("a.pt", lambda path: torch.load(path, weights_only=True)),
    ("a.gz", by_gzip),
    ("a.tar", lambda path: tarfile.open(path, "r:").close()),
    ("a.zip", by_zip),
    ("a.h5", lambda path: h5py.File(path).close()),
]


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize(("name", "read"), READS)
def test_each_way_to_open_counts_once(probed: LibraryProbe, files: Path, name: str, read: Callable[[str], Any]) -> None:
    path, opened = str(files / name), probed.probe.batches.opened
    opened.noted = []
    read(path)
    assert opened.noted == []  # no batch was made
    probed.calls(lambda: read(path))
    assert opened.noted == [path]
