"""A dataset's samples are looked at while they are made, and explained leaf by leaf from the files that they read."""

from __future__ import annotations

import io
import os
import random
import tarfile
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import torch
from picture_recipes import photograph
from PIL import Image
from torch.nn import functional
from torch.utils.data import DataLoader

from headrace.doctor.explain import Box, MaskExplanation, PictureExplanation, ValueExplanation
from headrace.doctor.explain.look import read_look
from headrace.doctor.explain.samples import explain_look
from headrace.doctor.probe.look.value_look import look_at_values

COUNT = 12


def write_pair(folder: Path, number: int) -> None:
    state = np.random.default_rng(number)
    height, width = (int(state.integers(140, 240)) for _ in range(2))
    Image.fromarray(photograph(state, height, width)).save(folder / f"{number}.png")
    Image.fromarray(state.integers(0, 60_000, (height, width), dtype=np.uint16)).save(folder / f"depth{number}.png")
    labels = np.kron(state.integers(0, 4, (height // 10 + 1, width // 10 + 1)), np.ones((10, 10)))[:height, :width]
    Image.fromarray(labels.astype(np.uint8)).save(folder / f"labels{number}.png")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("pairs")
    for number in range(COUNT):
        write_pair(made, number)
    with tarfile.open(made / "all.tar", "w") as tar:
        for path in sorted(made.glob("*.png")):
            tar.add(path, path.name)
    return made


class TarPairs:
    """A depth trainer's: members of one tar, windows by slices, OpenCV, numbers beside them."""

    def __init__(self, folder: Path) -> None:
        self.tar = tarfile.open(folder / "all.tar")  # noqa: SIM115  # the test closes it
        self.names = [f"{number}.png" for number in range(COUNT)]
        self.labels = [number % 3 for number in range(COUNT)]

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> dict[str, Any]:
        name = self.names[index]
        picture = Image.open(io.BytesIO(self.tar.extractfile(name).read())).convert("RGB")
        rgb = np.asarray(picture)
        depth = cv2.imdecode(np.frombuffer(self.tar.extractfile(f"depth{name}").read(), np.uint8), cv2.IMREAD_UNCHANGED)
        top, left = random.randint(0, rgb.shape[0] - 128), random.randint(0, rgb.shape[1] - 100)
        window = np.s_[top : top + 128, left : left + 100]
        scaled = cv2.resize(rgb[window], (64, 48), interpolation=cv2.INTER_LINEAR) / 255
        rgb = torch.from_numpy((scaled - 0.5) / 0.5).permute(2, 0, 1).float()
        return {"rgb": rgb, "depth": depth[window][None] * 0.001, "label": self.labels[index], "name": name}


class FolderPairs:
    """A segmentation trainer's: files, Pillow for pictures and labels, one flip for both, torch for the size."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        picture = Image.open(self.folder / f"{index}.png").convert("RGB")
        labels = Image.open(self.folder / f"labels{index}.png").resize((72, 56), Image.Resampling.NEAREST)
        flip = random.random() < 0.5
        pixels = torch.from_numpy(np.array(picture)).permute(2, 0, 1)[None].float() / 255
        pixels = functional.interpolate(pixels, (56, 72), mode="bilinear", antialias=True)[0]
        classes = torch.from_numpy(np.array(labels)).long()
        return (pixels.flip(-1), classes.flip(-1)) if flip else (pixels, classes)


class ScaledPairs(FolderPairs):
    """A segmentation trainer's: a random size, zeros where that is too small, and one random window of both."""

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        size = random.randint(50, 200)
        picture = (
            Image.open(self.folder / f"{index}.png").convert("RGB").resize((size, size), Image.Resampling.BILINEAR)
        )
        labels = Image.open(self.folder / f"labels{index}.png").resize((size, size), Image.Resampling.NEAREST)
        over = max(80 - size, 0)
        pads = ((over, over), (over, over))
        rgb, classes = np.pad(np.array(picture), (*pads, (0, 0))), np.pad(np.array(labels), pads)
        top, left = (random.randint(0, side - 80) for side in classes.shape)
        window = np.s_[top : top + 80, left : left + 80]
        return torch.from_numpy(rgb[window]).permute(2, 0, 1) / 255, classes[window].astype(np.int64)


def explained(dataset: Any, path: Path, collate: Any = None) -> dict[Any, Any]:
    random.seed(2)
    state = random.getstate(), torch.get_rng_state()
    assert look_at_values(DataLoader(dataset, collate_fn=collate), str(path))["ended"] == ""
    assert random.getstate() == state[0]
    assert torch.equal(torch.get_rng_state(), state[1])
    return explain_look(read_look(path))


@pytest.mark.long
def test_a_picture_is_found_by_the_view_of_its_mask(folder: Path, tmp_path: Path) -> None:
    """Padded samples and others follow no one rule of a picture's; a mask's samples are placed one by one."""
    found = explained(ScaledPairs(folder), tmp_path / "look")
    picture, mask = found[0,].by, found[1,].by
    assert isinstance(picture, PictureExplanation)
    assert isinstance(mask, MaskExplanation)
    assert (picture.filter, picture.scale) == ("triangle", pytest.approx([1 / 255] * 3, rel=0.01))
    assert [one.window for one in picture.placements] == [one.window for one in mask.placements]


@pytest.mark.long
def test_a_depth_trainers_samples(folder: Path, tmp_path: Path) -> None:
    dataset = TarPairs(folder)
    found = explained(dataset, tmp_path / "look")
    dataset.tar.close()
    rgb, depth = found["rgb",], found["depth",]
    assert isinstance(rgb.by, PictureExplanation)
    assert (rgb.input, rgb.by.filter, rgb.by.layout, rgb.is_random) == (0, "linear", "CHW", True)
    assert rgb.by.scale == pytest.approx([2 / 255] * 3, rel=1e-3)
    assert rgb.by.shift == pytest.approx([-1] * 3, abs=4e-3)
    assert isinstance(depth.by, PictureExplanation)
    assert (depth.input, depth.by.filter) == (1, None)
    assert depth.by.scale == pytest.approx([0.001])
    for one, other in zip(rgb.by.placements, depth.by.placements, strict=True):
        assert one.window == other.window
        assert one.window[2:] == (128, 100)
    assert found["label",].by == ValueExplanation("equal", "labels")
    assert found["name",].by == ValueExplanation("equal", "names")
    samples = read_look(tmp_path / "look").samples
    assert all(each.places[0] == (str(folder / "all.tar"), f"{each.index}.png") for each in samples)


def test_a_segmentation_trainers_samples(folder: Path, tmp_path: Path) -> None:
    found = explained(FolderPairs(folder), tmp_path / "look")
    picture, classes = found[0,].by, found[1,].by
    assert isinstance(picture, PictureExplanation)
    assert (picture.filter, picture.scale) == ("triangle", pytest.approx([1 / 255] * 3, rel=1e-3))
    assert isinstance(classes, MaskExplanation)
    assert classes.filter == "nearest-pillow"
    assert classes.table == {value: value for value in range(4)}
    assert [one.is_flipped for one in picture.placements] == [one.is_flipped for one in classes.placements]
    assert len({one.is_flipped for one in picture.placements}) == 2
    whole = [Box(0, 0, *one.window[2:]) for one in picture.placements]
    assert [one.window for one in picture.placements] == whole


def test_a_sample_that_raises_and_one_that_fits_nothing(folder: Path, tmp_path: Path) -> None:
    class Odd:
        def __len__(self) -> int:
            return COUNT

        def __getitem__(self, index: int) -> Any:
            if index == 0:
                raise RuntimeError("no such sample")
            with Image.open(folder / f"{index}.png") as picture:
                pixels = np.asarray(picture)
            return np.random.default_rng(index).permutation(pixels.ravel()).reshape(pixels.shape), object()

    found = explained(Odd(), tmp_path / "look", lambda samples: samples[0])
    assert (found[0,].by, found[1,].by) == (None, None)
    assert all(sample.index > 0 for sample in read_look(tmp_path / "look").samples)


class Relative:
    """Names its files as seen from the working folder."""

    def __init__(self, names: list[str]) -> None:
        self.names = names

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index: int) -> np.ndarray:
        return np.asarray(Image.open(self.names[index]))


def test_a_relative_path_is_as_datasets_write_it(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = [os.path.relpath(folder / f"{number}.png") for number in range(COUNT)]
    look_at_values(DataLoader(Relative(names), collate_fn=np.stack), str(tmp_path / "look"))
    for sample in read_look(tmp_path / "look").samples:
        ((path, _),) = sample.places
        assert path is not None
        assert path.endswith(names[sample.index])
        assert Path(path).resolve() == (folder / f"{sample.index}.png").resolve()
