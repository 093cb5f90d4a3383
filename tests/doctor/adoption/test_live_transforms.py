"""Pictures by transforms of known libraries: which transform makes which leaf, and that views of one file differ."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from headrace.doctor.adoption import LoaderRecipe
from headrace.doctor.adoption.explained_recipe import explained_recipe
from headrace.doctor.adoption.view_codes import fits
from headrace.doctor.explain.look import LiveTransform, read_look
from headrace.doctor.explain.samples import explain_look
from headrace.doctor.probe.look.value_look import look_at_values

COUNT = 9
SEVEN, EIGHT, SMALL = (
    LiveTransform("hr.Image()", (f"hr.RandomResizedCrop({size})",), (f"hr.RandomGrayscale({share})",), ())
    for size, share in ((32, 0.7), (32, 0.8), (16, 0.9))
)
FIXED = LiveTransform("hr.Image()", ("hr.Resize(40)", "hr.CenterCrop(32)"), (), ())


class Views:
    """Views of each picture, with noise that no window explains."""

    def __init__(self, folder: Path, sides: tuple[int, ...]) -> None:
        self.sides = sides
        self.paths = [str(folder / f"{number}.png") for number in range(COUNT)]
        for number, path in enumerate(self.paths):
            pixels = np.random.default_rng(number).integers(0, 256, (70, 90, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(path)

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> Any:
        with Image.open(self.paths[index]) as picture:
            pixels = np.asarray(picture.convert("RGB"))
        made = [pixels[:side, :side] ^ np.random.randint(0, 256, (side, side, 3), np.uint8) for side in self.sides]
        return [torch.from_numpy(each).permute(2, 0, 1) for each in made]


def recipe_of(folder: Path, sides: tuple[int, ...], *transforms: LiveTransform) -> LoaderRecipe:
    look_at_values(torch.utils.data.DataLoader(Views(folder, sides)), str(folder / "look"))
    look = replace(read_look(folder / "look"), transforms=transforms)
    return explained_recipe(look, explain_look(look))


def shares(recipe: LoaderRecipe) -> list[str]:
    """Return the share of grey pictures of each field, which tells its transform."""
    found = (re.search(r"RandomGrayscale\(([0-9.]+)", code) for code in recipe.fields.values())
    return [each[1] if each else "" for each in found]


def test_each_view_of_one_file_is_drawn_by_itself(tmp_path: Path) -> None:
    recipe = recipe_of(tmp_path, (32, 32), SEVEN)
    assert recipe.covered == ("0", "1")
    assert (recipe.view, recipe.augment) == ("hr.RandomResizedCrop(32)", "hr.RandomGrayscale(0.7)")
    first, second = recipe.fields.values()
    assert "view=" not in first
    assert second.endswith("view=hr.RandomResizedCrop(32), augment=hr.RandomGrayscale(0.7))")


def test_as_many_transforms_as_leaves_make_them_in_their_order(tmp_path: Path) -> None:
    recipe = recipe_of(tmp_path, (32, 32, 16), SEVEN, SMALL, EIGHT, FIXED)
    assert recipe.covered == ("0", "1", "2")
    assert recipe.augment == "hr.RandomGrayscale(0.7)"
    assert shares(recipe)[1:] == ["0.8", "0.9"]


def test_a_leaf_of_several_transforms_is_left(tmp_path: Path) -> None:
    recipe = recipe_of(tmp_path, (32, 32, 32), SEVEN, EIGHT)
    assert recipe.covered == ()
    assert all("2 transforms" in part.note for part in recipe.parts)


@pytest.mark.parametrize(
    ("steps", "is_fitting"),
    [(("hr.Resize(40)", "hr.RandomHorizontalFlip(0.5)"), True), (("hr.RandomHorizontalFlip(0.5)",), False)],
    ids=["short side", "flip alone"],
)
def test_a_transform_without_a_size_makes_the_sizes_that_follow(steps: tuple[str, ...], is_fitting: bool) -> None:
    transform = LiveTransform("hr.Image()", steps, (), ())
    assert fits(transform, (40, 60), (), [(80, 120, 3)]) == is_fitting
    assert not fits(transform, (40, 60))
