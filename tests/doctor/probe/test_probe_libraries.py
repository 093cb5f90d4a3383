"""Which calls of libraries are which stages, and that they do what they did."""

from __future__ import annotations

import csv
import io
import json
import mmap
import os
import pickle
import shutil
import tarfile
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import albumentations
import cv2
import h5py
import numpy as np
import pytest
import tokenizers
import torch
import torch.utils.data
from numpy import load as numpy_load
from PIL import Image
from probing import LibraryProbe, library_probe
from tokenizers import Tokenizer

SIDE = 32


@pytest.fixture(scope="module")
def pixels() -> Any:
    return np.random.default_rng(0).integers(0, 255, (SIDE, SIDE, 3), np.uint8)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory, pixels: Any) -> Path:
    """One picture as a file, in a tar, in a zip, and as arrays."""
    folder = tmp_path_factory.mktemp("files")
    Image.fromarray(pixels).save(folder / "a.png")
    Image.fromarray(pixels).save(folder / "a.webp", lossless=True)
    with tarfile.open(folder / "a.tar", "w") as tar:
        for number in range(5):
            tar.add(folder / "a.png", f"{number}.png")
    with zipfile.ZipFile(folder / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(folder / "a.png", "a.png")
    with h5py.File(folder / "a.h5", "w") as file:
        file["group/pixels"] = pixels
    np.save(folder / "a.npy", pixels)
    torch.save(torch.from_numpy(pixels), folder / "a.pt")
    return folder


def test_pillow_decodes_where_pixels_are_first_asked_for(probed: LibraryProbe, files: Path, pixels: Any) -> None:
    opened = Image.open(files / "a.png")
    assert probed.calls(lambda: opened.convert("L")) == {"transform:Pillow convert": 1, "decode:Pillow load": 1}
    again = Image.open(files / "a.png")
    assert probed.calls(lambda: np.asarray(again)) == {"decode:Pillow load": 1}
    assert np.array_equal(probed.result, pixels)


@pytest.mark.parametrize("name", ["a.png", "a.webp"])
def test_a_picture_is_decoded_once_however_often_it_is_asked_for(probed: LibraryProbe, files: Path, name: str) -> None:
    opened = Image.open(files / name)
    calls = probed.calls(lambda: (opened.load(), opened.convert("L"), opened.resize((8, 8)), np.asarray(opened)))
    assert calls.pop("decode:Pillow load") == 1
    assert set(calls) == {"transform:Pillow convert", "transform:Pillow resize"}


def test_tarfile_by_name_scans_once_then_looks_up(probed: LibraryProbe, files: Path) -> None:
    first = (files / "a.png").read_bytes()

    def read() -> bytes:
        file = tar.extractfile("3.png")
        assert file is not None
        return file.read()

    with tarfile.open(files / "a.tar") as tar:
        assert probed.calls(read) == {"lookup:tarfile member": 1, "scan:tarfile headers": 1, "read:tarfile": 1}
        assert probed.result == first


def test_tarfile_read_in_order(probed: LibraryProbe, files: Path) -> None:
    """As a stream of shards is read: header, then content, member by member."""

    def read() -> list[str]:
        with tarfile.open(files / "a.tar", "r|") as tar:
            return [member.name for member in tar if tar.extractfile(member).read()]  # type: ignore[union-attr]

    calls = probed.calls(read)
    assert probed.result == [f"{number}.png" for number in range(5)]
    assert calls["scan:tarfile headers"] == 6  # the last finds the end
    assert calls["lookup:tarfile member"] == 5
    assert calls["read:tarfile"] == 5


def test_zipfile(probed: LibraryProbe, files: Path) -> None:
    archive = zipfile.ZipFile(files / "a.zip")
    assert probed.calls(lambda: archive.read("a.png")) == {"read:zipfile": 1, "lookup:zipfile member": 1}
    assert probed.result == (files / "a.png").read_bytes()
    with archive.open("a.png") as file:
        assert probed.calls(file.read) == {"read:zipfile": 1}
    archive.close()
    calls = probed.calls(lambda: zipfile.ZipFile(files / "a.zip").close())
    assert calls["scan:zipfile directory"] == 1


def test_h5py(probed: LibraryProbe, files: Path, pixels: Any) -> None:
    with h5py.File(files / "a.h5") as file:
        assert probed.calls(lambda: file["group/pixels"]) == {"lookup:h5py group": 1}
        assert probed.calls(lambda: probed.result[3]) == {"read:h5py": 1}
        assert np.array_equal(probed.result, pixels[3])
    assert probed.calls(lambda: h5py.File(files / "a.h5").close()) == {"scan:h5py open": 1}


def test_opencv(probed: LibraryProbe, files: Path, pixels: Any) -> None:
    def work() -> Any:
        image = cv2.cvtColor(cv2.imread(str(files / "a.png")), cv2.COLOR_BGR2RGB)
        cv2.resize(image, (8, 8))
        return image

    found = {"decode:OpenCV imread": 1, "transform:OpenCV cvtColor": 1, "transform:OpenCV resize": 1}
    assert probed.calls(work) == found
    assert np.array_equal(probed.result, pixels)
    data = np.frombuffer((files / "a.png").read_bytes(), np.uint8)
    assert probed.calls(lambda: cv2.imdecode(data, cv2.IMREAD_COLOR)) == {"decode:OpenCV imdecode": 1}


def test_albumentations_by_transform(probed: LibraryProbe, pixels: Any) -> None:
    flips = albumentations.OneOf([albumentations.HorizontalFlip(p=1)], p=1)
    transforms = albumentations.Compose([albumentations.Resize(16, 16), flips, albumentations.Normalize()])
    calls = probed.calls(lambda: transforms(image=pixels))
    assert calls == {"transform:Resize": 1, "transform:HorizontalFlip": 1, "transform:Normalize": 1}
    assert probed.result["image"].shape == (16, 16, 3)


def test_text(probed: LibraryProbe, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("1 2")
    assert probed.calls(lambda: np.loadtxt(tmp_path / "a.txt").tolist())["parse:numpy.loadtxt"] == 1
    assert probed.result == [1.0, 2.0]
    assert probed.calls(lambda: json.loads("[1]")) == {"parse:json": 1}
    assert probed.calls(lambda: list(csv.DictReader(["a,b", "1,2"]))) == {"parse:csv.DictReader": 2}


def test_tokenizers(probed: LibraryProbe) -> None:
    words = Tokenizer(tokenizers.models.WordLevel({"a": 0, "b": 1}, unk_token="a"))
    words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    assert probed.calls(lambda: words.encode("a b").ids) == {"tokenise:tokenizers encode": 1}
    assert probed.result == [0, 1]
    assert probed.calls(lambda: words.encode_batch(["a", "b b"])) == {"tokenise:tokenizers encode_batch": 1}


def test_transformers_tokenizers_by_class(probed: LibraryProbe) -> None:
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(tokenizers.models.WordLevel({"a": 0, "b": 1}, unk_token="a"))
    words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words)
    assert probed.calls(lambda: tokenizer("a b a")["input_ids"]) == {f"tokenise:{type(tokenizer).__name__}": 1}
    assert probed.result == [0, 1, 0]


def test_arrays_and_tensors_from_files(probed: LibraryProbe, files: Path, pixels: Any) -> None:
    assert probed.calls(lambda: np.load(files / "a.npy")) == {"read:numpy load": 1}
    assert np.array_equal(probed.result, pixels)
    assert probed.calls(lambda: torch.load(files / "a.pt", weights_only=True)) == {"read:torch.load": 1}
    assert probed.calls(lambda: np.fromfile(files / "a.png", np.uint8)) == {"read:numpy fromfile": 1}
    assert probed.calls((files / "a.png").read_bytes) == {"read:file": 1}
    assert probed.result == (files / "a.png").read_bytes()


def test_names_that_were_taken_before_the_probe_came(probed: LibraryProbe, files: Path) -> None:
    """This module did `from numpy import load` long before; a notebook's cells do."""
    assert probed.calls(lambda: numpy_load(files / "a.npy")) == {"read:numpy load": 1}


def test_waiting_for_a_thread(probed: LibraryProbe) -> None:
    with ThreadPoolExecutor(1) as threads:
        future = threads.submit(int, "7")
        assert probed.calls(future.result) == {"wait:future": 1}


def test_all_is_put_back(tmp_path: Path) -> None:
    import builtins

    looked_at: list[tuple[Any, str]] = [
        (builtins, "open"),
        (Image, "open"),
        (Image.Image, "resize"),
        (cv2, "imread"),
        (np, "load"),
        (torch, "load"),
        (tarfile.TarFile, "open"),
        (tarfile.ExFileObject, "read"),
        (Tokenizer, "encode"),
        (os, "pread"),
    ]
    before = [vars(owner).get(name) for owner, name in looked_at]
    with library_probe(tmp_path):
        assert all(vars(owner).get(name) is not was for (owner, name), was in zip(looked_at, before, strict=True))
    assert [vars(owner).get(name) for owner, name in looked_at] == before
    assert io.open is open


CONTENT = bytes(range(256)) * 64


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


USES = [read_whole, read_in_parts, read_by_descriptor, read_by_numpy, read_mapped]
USES += [read_text, read_unbuffered, copy, update, unpickle]


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
