"""Mixing of a script's batches becomes the Loader's."""

from __future__ import annotations

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
from headrace.doctor.explain.look import read_look
from headrace.doctor.explain.samples import explain_look
from headrace.doctor.probe.look.value_look import look_at_values

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
        return hr.Loader(
            hr.open(columns),
            fields,
            view=eval(recipe.view or "None", space),
            batch=eval(recipe.mixing or "None", space),
            batch_size=batch_size,
            shuffle=shuffle,
        )

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
