"""Pictures by transforms of known libraries, mixing included: which makes which leaf, and views of one file."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import headrace as hr
from headrace.doctor.adoption import LoaderRecipe
from headrace.doctor.adoption.comparison import verified
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


COUNT, CLASSES = 9, 3


class Labelled:
    def __init__(self, folder: Path) -> None:
        self.paths = [str(folder / f"{number}.png") for number in range(COUNT)]
        self.targets = [number % CLASSES for number in range(COUNT)]
        for number, path in enumerate(self.paths):
            pixels = np.random.default_rng(number).integers(0, 256, (40, 50, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(path)

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> Any:
        with Image.open(self.paths[index]) as picture:
            pixels = np.array(picture.resize((32, 24), Image.Resampling.BILINEAR))
        return torch.from_numpy(pixels).permute(2, 0, 1).float() / 255, self.targets[index]


class MixUp:
    """Stand-in of torchvision's, which blends each sample with the one before it."""

    __module__ = "torchvision.transforms.v2._augment"

    def __init__(self) -> None:
        self.alpha, self.num_classes = 0.2, CLASSES

    def __call__(self, images: torch.Tensor, labels: torch.Tensor) -> Any:
        share = float(torch.distributions.Beta(self.alpha, self.alpha).sample())
        whole = torch.nn.functional.one_hot(labels, CLASSES).float()
        return tuple(share * one + (1 - share) * one.roll(1, 0) for one in (images, whole))


def looked(folder: Path, mix: Any) -> tuple[LoaderRecipe, Any]:
    def collate(samples: list[Any]) -> Any:
        return mix(*torch.utils.data.default_collate(samples))

    loader: Any = torch.utils.data.DataLoader(Labelled(folder), batch_size=4, collate_fn=collate)  # type: ignore[arg-type]
    look_at_values(loader, str(folder / "look"))
    look = read_look(folder / "look")
    return explained_recipe(look, explain_look(look)), look


def test_a_mixing_of_a_known_library_is_the_loaders(tmp_path: Path) -> None:
    recipe, look = looked(tmp_path, MixUp())
    assert recipe.left == {}
    assert recipe.mixing == "hr.MixUp(alpha=0.2, num_classes=3, field='image', labels='label')"
    assert [part.certainty for part in recipe.parts] == ["differs"]
    space = {"hr": hr, "torch": torch}
    names = next(name for name in recipe.columns if name.endswith("__path"))
    columns = {names: list(recipe.columns[names]), "label": list(recipe.columns["label"])}

    def make_loader(batch_size: int, *, shuffle: bool) -> hr.Loader:
        fields = {name: eval(code, space) for name, code in recipe.fields.items()}
        view, batch = (eval(one or "None", space) for one in (recipe.view, recipe.mixing))
        return hr.Loader(hr.open(columns), fields, view=view, batch=batch, batch_size=batch_size, shuffle=shuffle)

    def batches(loader: hr.Loader) -> Any:
        return (eval(recipe.output, {"batch": batch, **space}) for batch in loader)

    assert verified(look, make_loader, batches) == {"0": "same", "1": "same"}
    images, labels = next(iter(batches(make_loader(4, shuffle=False))))
    assert images.shape == (4, 3, 24, 32)
    assert labels.sum(1) == pytest.approx(1.0)
    assert ((labels > 0) & (labels < 1)).any()  # mixed outside of the comparison


def test_a_mixing_of_the_scripts_own_stays_there(tmp_path: Path) -> None:
    mix = MixUp()
    recipe, _ = looked(tmp_path, lambda *given: MixUp.__call__(mix, *given))
    assert recipe.mixing is not None  # reached through the function
    own = type("Own", (), {"__call__": lambda self, images, labels: (images.mean(0, keepdim=True) + images, labels)})()
    recipe, _ = looked(tmp_path, own)
    assert recipe.mixing is None
    assert set(recipe.left) >= {"0"}
