"""Which files are opened while batches are made: counted whatever opens them, in bounded memory."""

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

from headrace.doctor.probe.opened_files import MOST_PATHS, OpenedFiles
from headrace.doctor.session.evidence import OpenedLine
from headrace.doctor.session.evidence_reader import file_opens
from headrace.doctor.session.producers import FileOpens as Told
from headrace.doctor.session.storage import merge_opened


class Process:
    """One of those that count, and what is written of it."""

    def __init__(self) -> None:
        self.names: dict[str, int] = {}
        self.faults: list[Exception] = []
        self.opened = OpenedFiles(lambda text: self.names.setdefault(text, len(self.names)), self.faults.append)
        self.sides: list[Told] = []

    def opens(self, *paths: Any) -> Process:
        for path in paths:
            self.opened.add(path)
        return self

    def tells(self) -> Process:
        record = self.opened.record(0)
        if record is not None:
            names = {number: text for text, number in self.names.items()}
            self.sides.append(file_opens(OpenedLine(*record[1:]), names))
        return self


def told(*processes: Process) -> Told:
    return merge_opened([side for process in processes for side in process.tells().sides])


def by_path(told: Told) -> dict[str, int]:
    return {one.path: one.opens for one in told.files}


def test_files_count_by_path() -> None:
    process = Process().opens("/data/a.jpg", "/data/b.jpg", "/data/a.jpg", b"/data/c.png", Path("/more/README"), 7)
    found = told(process.opens("/proc/self/stat").tells().opens("/data/b.jpg"))
    assert by_path(found) == {"/data/a.jpg": 2, "/data/b.jpg": 2, "/data/c.png": 1, "/more/README": 1}


def test_the_first_files_of_a_process_are_listed_however_many_follow() -> None:
    process = Process().opens(*(f"/data/{number:06d}.jpg" for number in range(10_000)))
    assert [one.path for one in told(process).files] == [f"/data/{number:06d}.jpg" for number in range(MOST_PATHS)]


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
    path = str(files / name)
    read(path)
    assert probed.probe.batches.opened.record(0) is None  # no batch was made
    probed.calls(lambda: read(path))
    record = probed.probe.batches.opened.record(0)
    assert record is not None
    texts = {number: text for text, number in probed.probe.evidence.names.items()}
    assert [(texts[number], opens) for number, opens in record[2]] == [(path, 1)]
