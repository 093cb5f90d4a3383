"""Which calls of libraries are which stages, and that they do what they did."""

from __future__ import annotations

import io
import os
import tarfile
import zipfile
from collections.abc import Iterator
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
from library_probe import LibraryProbe, library_probe
from numpy import load as numpy_load
from PIL import Image
from tokenizers import Tokenizer

SIDE = 32


@pytest.fixture
def probed(tmp_path: Path) -> Iterator[LibraryProbe]:
    with library_probe(tmp_path / "session") as probed:
        yield probed


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
def test_a_picture_is_decoded_once_however_often_it_is_asked_for_its_pixels(
    probed: LibraryProbe, files: Path, name: str
) -> None:
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

    assert probed.calls(work) == {
        "decode:OpenCV imread": 1,
        "transform:OpenCV cvtColor": 1,
        "transform:OpenCV resize": 1,
    }
    assert np.array_equal(probed.result, pixels)
    data = np.frombuffer((files / "a.png").read_bytes(), np.uint8)
    assert probed.calls(lambda: cv2.imdecode(data, cv2.IMREAD_COLOR)) == {"decode:OpenCV imdecode": 1}


def test_albumentations_by_transform(probed: LibraryProbe, pixels: Any) -> None:
    transforms = albumentations.Compose(
        [
            albumentations.Resize(16, 16),
            albumentations.OneOf([albumentations.HorizontalFlip(p=1)], p=1),
            albumentations.Normalize(),
        ]
    )
    calls = probed.calls(lambda: transforms(image=pixels))
    assert calls == {"transform:Resize": 1, "transform:HorizontalFlip": 1, "transform:Normalize": 1}
    assert probed.result["image"].shape == (16, 16, 3)


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
