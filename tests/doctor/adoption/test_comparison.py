"""The verdict of a trial on inspected samples: equal, different and where, or not enough seen."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from headrace.compare import Judgement
from headrace.doctor.adoption.comparison import judged
from headrace.doctor.explain.look import read_look
from headrace.doctor.probe.look.value_look import look_at_values


class Photos(Dataset[Any]):
    """Pictures of noise, each changed in some way."""

    def __init__(self, change: Callable[[torch.Tensor], torch.Tensor]) -> None:
        self.change = change

    def __len__(self) -> int:
        return 16

    def __getitem__(self, index: int) -> dict[str, Any]:
        image = torch.rand(3, 32, 32, generator=torch.Generator().manual_seed(index))
        return {"image": self.change(image), "label": index, "path": f"photos/{index}.jpg"}


def drawn(image: torch.Tensor) -> torch.Tensor:
    return image * torch.rand(1).add(1)


class MadeLoader:
    """Samples by their index, as `batches` yields them."""

    def __init__(self, sample: Callable[[int], dict[str, Any]]) -> None:
        self.sample, self.step = sample, 0

    def seek(self, epoch: int, step: int) -> None:
        self.step = step

    def __iter__(self) -> Iterator[dict[str, Any]]:
        yield self.sample(self.step)


def sample(index: int, **changes: Any) -> dict[str, Any]:
    image = torch.rand(3, 32, 32, generator=torch.Generator().manual_seed(index))[None]
    return {"image": image, "label": torch.tensor([index]), "path": [f"photos/{index}.jpg"]} | changes


def compared(
    folder: Path,
    given: Callable[[torch.Tensor], torch.Tensor] = torch.Tensor.clone,
    **changes: Callable[[dict[str, Any]], Any],
) -> Judgement:
    """Compare with a Loader whose arrays are changed so."""

    def made(index: int) -> dict[str, Any]:
        usual = sample(index)
        return usual | {name: change(usual) for name, change in changes.items()}

    look_at_values(DataLoader(Photos(given), 4), str(folder / "look"))
    return judged(read_look(folder / "look"), lambda size, shuffle: MadeLoader(made), iter)


def test_the_same_samples_are_the_same(tmp_path: Path) -> None:
    found = compared(tmp_path, image=lambda one: one["image"] + 1e-4)
    assert (found.verdict, found.samples, list(found.compared)) == ("equal", (8, 8), ["image", "label", "path.0"])


def blurred(one: dict[str, Any]) -> torch.Tensor:
    """Return a picture of the same size, of which a step of resizing was left out."""
    small = torch.nn.functional.avg_pool2d(one["image"], 2)
    return torch.nn.functional.interpolate(small, scale_factor=2)


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("label", lambda one: one["label"] + 88),
        ("label", lambda one: one["label"].float()),
        ("label", lambda one: None),
        ("image", blurred),
        ("image", lambda one: one["image"][..., :16]),
        ("image", lambda one: one["image"] * 255),
        ("image", lambda one: one["image"] + 0.015 / 0.225 * 0.2),  # a mean of 0.47 for 0.485
        ("path", lambda one: [one["path"][0].encode()]),
        ("path", lambda one: ["another.jpg"]),
    ],
)
def test_what_differs_is_named(name: str, change: Callable[[dict[str, Any]], Any], tmp_path: Path) -> None:
    found = compared(tmp_path, **{name: change})
    assert found.verdict == "different"
    assert {one.leaf for one in found.differences} == {"path.0" if name == "path" else name}


@pytest.mark.parametrize(
    ("factor", "expected"), [(1.0, set()), (9.0, {"distribution"}), (0.0, {"augmentation", "values"})]
)
def test_few_samples_of_a_drawn_image_differ_by_their_range(factor: float, expected: set[str], tmp_path: Path) -> None:
    found = compared(tmp_path, drawn, image=lambda one: factor * one["image"] * torch.rand(1).add(1))
    assert {(one.code, one.leaf) for one in found.differences} <= {(code, "image") for code in expected}
    assert found.verdict == ("different" if expected else "not enough seen")
    assert [one.leaf for one in found.unseen] == ([] if expected else ["image"])


def test_a_missing_array_and_one_too_many_are_different(tmp_path: Path) -> None:
    found = compared(tmp_path, depth=lambda one: np.zeros((1, 4), np.float32))
    assert [(one.code, one.leaf) for one in found.differences] == [("leaves", "depth")]
