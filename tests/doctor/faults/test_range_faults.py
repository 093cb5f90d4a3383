"""Values that lose the range of their files are found in forms that people write; correct depth raises no alarm."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import torch
from fault_samples import Samples, looked
from PIL import Image
from torch.utils.data import DataLoader

from headrace.doctor.explain.samples import explain_look
from headrace.doctor.faults import find_faults
from headrace.doctor.session.after_run import DataFault

COUNT, HEIGHT, WIDTH = 24, 72, 96


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pictures, and depth maps of 16 bits in millimetres, of which some pixels are unknown."""
    made = tmp_path_factory.mktemp("ranges")
    for number in range(COUNT):
        state = np.random.default_rng(number)
        coarse = state.integers(0, 256 if number % 3 else 120, (12, 16, 3), dtype=np.uint8)
        Image.fromarray(coarse).resize((WIDTH, HEIGHT), Image.Resampling.BICUBIC).save(made / f"{number}.png")
        coarse = (12_000 * state.random((6, 8)) ** 3).astype(np.float32)
        depth = cv2.resize(coarse, (WIDTH, HEIGHT), interpolation=cv2.INTER_LINEAR).round().astype(np.uint16)
        depth += state.integers(1, 40, depth.shape, dtype=np.uint16)
        depth[state.random((HEIGHT, WIDTH)) < 0.05] = 0
        Image.fromarray(depth).save(made / f"depth{number}.png")
        Image.fromarray((depth.astype(np.uint32) * 5).clip(0, 65535).astype(np.uint16)).save(made / f"scan{number}.png")
    return made


def pixels_of(folder: Path, index: int) -> np.ndarray:
    with Image.open(folder / f"{index}.png") as picture:
        return np.array(picture).astype(np.float32)


def depth_of(folder: Path, index: int, name: str = "depth") -> np.ndarray:
    with Image.open(folder / f"{name}{index}.png") as picture:
        return np.array(picture)


def pair(folder: Path, index: int, depth: Any, **more: Any) -> Any:
    return {"image": pixels_of(folder, index) / 255, "depth": depth, **more}


def opened_as_grey(folder: Path, index: int) -> Any:
    return pair(folder, index, cv2.imread(str(folder / f"depth{index}.png"), cv2.IMREAD_GRAYSCALE) / np.float32(255))


def opened_as_colour(folder: Path, index: int) -> Any:
    return pair(folder, index, torch.from_numpy(cv2.imread(str(folder / f"depth{index}.png"))).permute(2, 0, 1) / 255)


def resized_as_grey(folder: Path, index: int) -> Any:
    grey = cv2.imread(str(folder / f"depth{index}.png"), cv2.IMREAD_GRAYSCALE)
    return pair(folder, index, cv2.resize(grey, (64, 48)).astype(np.float32) / 255)


def converted(folder: Path, index: int) -> Any:
    with Image.open(folder / f"depth{index}.png") as picture:
        return pair(folder, index, np.array(picture.convert("L")).astype(np.float32) / 255)


def cast(folder: Path, index: int) -> Any:
    return pair(folder, index, depth_of(folder, index).astype(np.uint8))


def cast_and_flipped(folder: Path, index: int) -> Any:
    depth = torch.from_numpy(depth_of(folder, index).astype(np.uint8)).float() / 255
    image = torch.from_numpy(pixels_of(folder, index)).permute(2, 0, 1) / 255
    if torch.rand(()) < 0.5:
        image, depth = image.flip(2), depth.flip(1)
    return {"image": image, "depth": depth[None]}


def clipped_at_255(folder: Path, index: int) -> Any:
    return pair(folder, index, depth_of(folder, index).clip(0, 255).astype(np.float32) / 255)


def sometimes_undivided(folder: Path, index: int) -> Any:
    pixels = pixels_of(folder, index)
    return {"image": pixels / 255 if pixels.max() > 150 else pixels, "label": index % 2}


def sometimes_normalised_undivided(folder: Path, index: int) -> Any:
    pixels = torch.from_numpy(pixels_of(folder, index)).permute(2, 0, 1)
    return (pixels / (1 if index % 4 == 0 else 255) - 0.5) / 0.5, index % 2


def metres(folder: Path, index: int) -> Any:
    return pair(folder, index, depth_of(folder, index) / np.float32(1000))


def clamped_metres(folder: Path, index: int) -> Any:
    return pair(folder, index, (depth_of(folder, index) / np.float32(1000)).clip(0, 6))


def clamped_with_a_mask(folder: Path, index: int) -> Any:
    depth = depth_of(folder, index) / np.float32(1000)
    return pair(folder, index, depth.clip(0, 6), valid=(depth > 0) & (depth < 6))


def windowed(folder: Path, index: int) -> Any:
    return pair(folder, index, (depth_of(folder, index).astype(np.float32).clip(2000, 8000) - 2000) / 6000)


def whole_metres(folder: Path, index: int) -> Any:
    return pair(folder, index, torch.from_numpy(depth_of(folder, index) // 1000).long())


def scaled_by_sample(folder: Path, index: int) -> Any:
    pixels = pixels_of(folder, index)
    return {"image": (pixels - pixels.mean()) / pixels.std(), "label": index % 2}


def brightened(folder: Path, index: int) -> Any:
    pixels = pixels_of(folder, index) * torch.empty(()).uniform_(0.6, 1.4).item()
    return {"image": pixels.clip(0, 255).astype(np.uint8), "label": index % 2}


def full_scan_as_grey(folder: Path, index: int) -> Any:
    return cv2.imread(str(folder / f"scan{index}.png"), cv2.IMREAD_GRAYSCALE)[None] / np.float32(255), index % 2


def faults_of(make: Any, folder: Path, made: Path) -> list[DataFault]:
    def sample(samples: Samples, index: int) -> Any:
        return make(folder, index % COUNT)

    look = looked(DataLoader(Samples(folder, sample), batch_size=6, shuffle=True), made)
    return find_faults(look, explain_look(look, most_s=60), {})


@pytest.mark.one_in(9)
@pytest.mark.parametrize(
    ("make", "what"),
    [
        (opened_as_grey, "high bytes"),
        (opened_as_colour, "high bytes"),
        (resized_as_grey, "high bytes"),
        (converted, "saturates at the file's value 255"),
        (clipped_at_255, "saturates at the file's value 255"),
        (cast, "modulo 256"),
        (cast_and_flipped, "modulo 256"),
        (sometimes_undivided, "255 times the scale"),
        (sometimes_normalised_undivided, "255 times the scale"),
    ],
)
def test_a_lost_range_is_found(make: Any, what: str, folder: Path, tmp_path: Path) -> None:
    (found,) = faults_of(make, folder, tmp_path)
    assert (found.code, found.certainty) == ("clipped", "certain")
    assert what in found.evidence


@pytest.mark.parametrize("make", [clamped_metres, full_scan_as_grey])
def test_what_may_be_intended(make: Any, folder: Path, tmp_path: Path) -> None:
    assert [(one.code, one.certainty) for one in faults_of(make, folder, tmp_path)] == [("clipped", "unless intended")]


@pytest.mark.one_in(4)
@pytest.mark.parametrize("make", [metres, clamped_with_a_mask, windowed, whole_metres, scaled_by_sample, brightened])
def test_a_correct_range_raises_no_alarm(make: Any, folder: Path, tmp_path: Path) -> None:
    assert faults_of(make, folder, tmp_path) == []
