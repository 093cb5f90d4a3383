"""Pictures that a dataset holds in memory become a column of files, of a Subset those that it takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, Subset

from headrace.doctor.adoption.explained_recipe import explained_recipe
from headrace.doctor.explain.look import read_look
from headrace.doctor.explain.samples import explain_look
from headrace.doctor.probe.look.held_objects import held_pictures
from headrace.doctor.probe.look.value_look import look_at_values

COUNT = 20


class Memory(Dataset[Any]):
    def __init__(self, shape: tuple[int, ...], *, as_tensor: bool = False) -> None:
        state = np.random.default_rng(0)
        data = np.kron(
            state.integers(0, 256, (COUNT, *(side // 4 for side in shape[:2]), *shape[2:])),
            np.ones((4, 4)) if len(shape) == 2 else np.ones((4, 4, 1)),
        )
        self.data = torch.from_numpy(data.astype(np.uint8)) if as_tensor else data.astype(np.uint8)
        self.targets = [number % 3 for number in range(COUNT)]

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> Any:
        pixels = np.asarray(self.data[index]).reshape(*self.data.shape[1:3], -1)
        return torch.from_numpy(pixels.copy()).permute(2, 0, 1).float() / 255, self.targets[index]


@pytest.mark.parametrize(("shape", "as_tensor"), [((32, 28, 3), False), ((28, 28), True)], ids=["colours", "grey"])
@pytest.mark.parametrize("indices", [None, [3, 5, 8, 13, 2]], ids=["all", "subset"])
def test_pictures_in_memory_are_a_column_of_files(
    shape: tuple[int, ...], as_tensor: bool, indices: list[int] | None, tmp_path: Path
) -> None:
    memory = Memory(shape, as_tensor=as_tensor)
    dataset = memory if indices is None else Subset(memory, indices)
    look_at_values(DataLoader(dataset), str(tmp_path / "look"))
    look = read_look(tmp_path / "look")
    recipe = explained_recipe(look, explain_look(look))
    assert recipe.left == {}
    files = recipe.columns["image__path"]
    assert len(files) == len(dataset)  # type: ignore[arg-type]
    assert all(bytes(file).startswith(b"\x89PNG") for file in files)
    assert list(recipe.columns["label"]) == [memory.targets[index] for index in indices or range(COUNT)]


def test_only_arrays_of_bytes_a_picture_a_sample_are_held() -> None:
    assert held_pictures(Memory((28, 28)), COUNT) is not None
    for other in (np.zeros((COUNT, 8, 8)), np.zeros((COUNT - 1, 8, 8), np.uint8), np.zeros((COUNT, 8), np.uint8)):
        memory = Memory((28, 28))
        memory.data = other
        assert held_pictures(memory, COUNT) is None
