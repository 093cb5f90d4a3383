"""Boxes and points that do not follow their image, in the forms of datasets that people write."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fault_samples import codes_of, faults_of
from PIL import Image
from torch.utils.data import DataLoader, Dataset, IterableDataset

SIDE = 48
Change = Callable[[np.ndarray, torch.Tensor, bool], tuple[np.ndarray, torch.Tensor]]
"""Makes pixels and boxes of a sample; the last argument is True in the correct script."""


def lists(samples: list[Any]) -> tuple[Any, ...]:
    """Collate samples to lists, as scripts of detection do."""
    return tuple(zip(*samples, strict=True))


class Annotated(Dataset):
    """Pictures of three sizes with one to three boxes each."""

    def __init__(self, folder: Path, change: Change, right: bool) -> None:
        rng, self.change, self.right = np.random.default_rng(0), change, right
        self.files, self.boxes = [], []
        for number in range(12):
            width, height = 96 + 8 * (number % 3), 80
            coarse = Image.fromarray(rng.integers(0, 256, (12, 15, 3), dtype=np.uint8))
            self.files.append(str(folder / f"{number}.png"))
            coarse.resize((width, height), Image.Resampling.BICUBIC).save(self.files[-1])
            corners = np.sort(rng.uniform(0, 1, (1 + number % 3, 2, 2)), axis=1) * [width, height]
            self.boxes.append(torch.from_numpy(corners.reshape(-1, 4)).float())

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> Any:
        pixels, boxes = self.change(np.asarray(Image.open(self.files[index])), self.boxes[index].clone(), self.right)
        image = torch.from_numpy(np.ascontiguousarray(pixels)).permute(2, 0, 1) / 255
        return image, {"boxes": boxes, "labels": torch.ones(len(boxes), dtype=torch.long)}


class AnnotatedStream(IterableDataset):
    def __init__(self, *options: Any) -> None:
        self.samples = Annotated(*options)

    def __iter__(self) -> Iterator[Any]:
        return (self.samples[index] for index in range(len(self.samples)))


def flipped(pixels: np.ndarray, boxes: torch.Tensor, right: bool) -> Any:
    if torch.rand(()) < 0.5:
        pixels = pixels[:, ::-1]
        if right:
            boxes[:, [0, 2]] = pixels.shape[1] - boxes[:, [2, 0]]
    return pixels, boxes


def turned(pixels: np.ndarray, boxes: torch.Tensor, right: bool) -> Any:
    if torch.rand(()) < 0.5:
        left, top, end, bottom = boxes.T
        if right:
            boxes = torch.stack([top, pixels.shape[1] - end, bottom, pixels.shape[1] - left], 1)
        pixels = np.rot90(pixels)
    return pixels, boxes


def resized(side: int) -> Change:
    def change(pixels: np.ndarray, boxes: torch.Tensor, right: bool) -> Any:
        scale = torch.tensor([side / pixels.shape[1], side / pixels.shape[0]] * 2)
        return np.asarray(Image.fromarray(pixels).resize((side, side))), boxes * scale if right else boxes

    return change


def points(pixels: np.ndarray, boxes: torch.Tensor, right: bool) -> Any:
    both = boxes[:1].view(2, 2)
    if torch.rand(()) < 0.5:
        pixels = pixels[:, ::-1]
        if right:
            both[:, 0] = pixels.shape[1] - both[:, 0]
    return pixels, both


def cut(pixels: np.ndarray, boxes: torch.Tensor, right: bool, *, window: tuple[int, int, int] | None = None) -> Any:
    """Cut a square, by top, left and side; at random by default."""
    height, width = pixels.shape[:2]
    top, left = (int(torch.randint(side - SIDE, ())) for side in (height, width))
    top, left, side = window or (top, left, SIDE)
    if right:
        boxes = (boxes - torch.tensor([left, top, left, top])).clip(0, side)
    return pixels[top : top + side, left : left + side], boxes


def cut_and_resized(pixels: np.ndarray, boxes: torch.Tensor, right: bool) -> Any:
    top, left, side = (int(torch.randint(*ends, ())) for ends in ((0, 20), (0, 30), (30, 60)))
    _, boxes = cut(pixels, boxes, right, window=(top, left, side))
    picture = Image.fromarray(pixels).crop((left, top, left + side, top + side)).resize((SIDE, SIDE))
    return np.asarray(picture), boxes * (SIDE / side) if right else boxes


def cut_in_the_middle(pixels: np.ndarray, boxes: torch.Tensor, right: bool) -> Any:
    return cut(pixels, boxes, right, window=(16, 20, SIDE))


CHANGES = {"flip": flipped, "quarter turn": turned, "smaller": resized(SIDE), "larger": resized(256), "points": points}
CUTS = {"cut": cut, "resized cut": cut_and_resized, "cut in the middle": cut_in_the_middle}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("right", [False, True], ids=["faulty", "right"])
@pytest.mark.parametrize("kind", [Annotated, AnnotatedStream])
@pytest.mark.parametrize("change", CHANGES)
def test_boxes_beside_their_image(change: str, kind: Any, right: bool, tmp_path: Path) -> None:
    loader = DataLoader(kind(tmp_path, CHANGES[change], right), 4, collate_fn=lists)
    found = codes_of(loader, tmp_path)
    assert found == ([] if right else ["misaligned"])


@pytest.mark.one_in(3)
@pytest.mark.parametrize("right", [False, True], ids=["faulty", "right"])
@pytest.mark.parametrize("kind", [Annotated, AnnotatedStream])
@pytest.mark.parametrize("change", CUTS)
def test_boxes_beside_a_part_of_their_image(change: str, kind: Any, right: bool, tmp_path: Path) -> None:
    found = faults_of(DataLoader(kind(tmp_path, CUTS[change], right), 4, collate_fn=lists), tmp_path)
    assert [(one.code, one.certainty) for one in found] == ([] if right else [("misaligned", "unless intended")])


class WithItsWindow(Annotated):
    """Boxes of the file, and where the image was cut from it."""

    def __getitem__(self, index: int) -> Any:
        image, target = super().__getitem__(index)
        whole = np.asarray(Image.open(self.files[index]))
        shown = (image * 255).round().to(torch.uint8).permute(1, 2, 0).numpy()
        views = np.lib.stride_tricks.sliding_window_view(whole, shown.shape)[:, :, 0]
        ((top, left), *_) = np.argwhere((views == shown).all(axis=(2, 3, 4)))
        return image, target | {"at": torch.tensor([top, left])}


def test_boxes_of_the_file_with_the_window(tmp_path: Path) -> None:
    assert codes_of(DataLoader(WithItsWindow(tmp_path, cut, False), 4, collate_fn=lists), tmp_path) == []


class Rated(Annotated):
    """Four numbers beside a flipped image, which are no box."""

    def __getitem__(self, index: int) -> Any:
        image, _ = super().__getitem__(index)
        return image, torch.from_numpy(np.random.default_rng(index).integers(0, 11, 4)).float()


def test_other_rows_of_four_numbers(tmp_path: Path) -> None:
    assert codes_of(DataLoader(Rated(tmp_path, flipped, False), 4, collate_fn=lists), tmp_path) == []
