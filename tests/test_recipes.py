"""docs/recipes: each file on made data, and its contact sheet as `headrace peek --recipe` draws it."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import numpy as np
import PIL.Image
import pytest
import torch
from loader_data import encode, photograph
from typer.testing import CliRunner

import headrace as hr
from headrace.tools.command_line import app

RECIPES = Path(__file__).parents[1] / "docs" / "recipes"
NAMES = sorted(path.stem for path in RECIPES.glob("*.py"))
SAMPLES = 8


def recipe(name):
    spec = importlib.util.spec_from_file_location(name, RECIPES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """The folders that the recipes name, of the same eight pictures: classes, pairs with masks, and COCO."""
    root = tmp_path_factory.mktemp("recipes")
    names = ("classes/cat", "classes/dog", "ade/images/training", "ade/annotations/training", "coco")
    classes, (images, masks), coco = names[:2], names[2:4], names[4]
    for name in names:
        (root / name).mkdir(parents=True)
    entries = {"images": [], "annotations": [], "categories": [{"id": 7, "name": "thing"}, {"id": 9, "name": "stuff"}]}
    for number in range(SAMPLES):
        picture = encode(photograph(number, 160, 120), quality=90)
        for name in (classes[number % 2], images, coco):
            (root / name / f"{number}.jpg").write_bytes(picture)
        values = np.zeros((120, 160), np.uint8)
        values[30:, 40:] = 1 + number
        PIL.Image.fromarray(values).save(root / masks / f"{number}.png")
        entries["images"].append({"id": number, "file_name": f"{number}.jpg", "width": 160, "height": 120})
        box = {"bbox": [40, 30, 60, 50], "area": 3000, "iscrowd": 0, "category_id": 7 + 2 * (number % 2)}
        entries["annotations"].append({"id": number, "image_id": number, **box})
    (root / coco / "annotations.json").write_text(json.dumps(entries))
    return root


FOLDERS = {"segmentation": "ade", "detection_mosaic": "coco"}


def batch_of(name, data, **options):
    loader = recipe(name).make_loader(str(data / FOLDERS.get(name, "classes")), batch_size=4, **options)
    iterator = iter(loader)
    batch = next(iterator)
    iterator.close()
    return batch


@pytest.mark.parametrize("policy", ["ta_wide", "ra", "augmix", "imagenet"])
def test_torchvision_classification(data, policy):
    batch = batch_of("torchvision_classification", data, auto_augment=policy)
    assert batch["image"].shape == (4, 3, 176, 176)
    torch.testing.assert_close(batch["label"].sum(1), torch.ones(4))


def test_timm(data):
    batch = batch_of("timm_imagenet", data)
    assert batch["image"].shape == (4, 3, 224, 224)
    torch.testing.assert_close(batch["label"].sum(1), torch.ones(4))
    assert (batch["label"] >= 0.05 - 1e-6).all(), "smoothed: 0.1 spread over two classes"


def test_simclr_has_two_different_views(data):
    first, second = batch_of("simclr", data)["image"].unbind(1)
    assert first.shape == second.shape == (4, 3, 224, 224)
    assert (first != second).flatten(1).any(1).all()


def test_dino_has_ten_crops(data):
    batch = batch_of("dino", data)
    assert batch["first"].shape == batch["second"].shape == (4, 3, 224, 224)
    assert batch["local"].shape == (4, 8, 3, 96, 96)


def test_mae(data):
    assert batch_of("mae", data)["image"].shape == (4, 3, 224, 224)


def test_segmentation_numbers_its_classes_from_0_and_ignores_other(data):
    batch = batch_of("segmentation", data)
    assert batch["image"].shape == (4, 3, 512, 512)
    assert batch["mask"].shape == (4, 512, 512)
    assert set(batch["mask"].unique().tolist()) <= {*range(SAMPLES), 255}


def test_mosaic_moves_boxes_with_their_pixels(data):
    batch = batch_of("detection_mosaic", data, size=64)
    assert batch["image"].shape == (4, 3, 64, 64)
    assert len(batch["boxes"]) == len(batch["boxes_label"]) == 4
    for boxes, labels in zip(batch["boxes"], batch["boxes_label"], strict=True):
        assert len(boxes) == len(labels)
        assert ((boxes >= 0) & (boxes <= 64)).all()
    mosaic = recipe("detection_mosaic").mosaic
    plain = torch.zeros(2, 3, 64, 64, dtype=torch.uint8)
    plain[:, :, 10:40, 20:50] = 255
    box = torch.tensor([[20.0, 10.0, 50.0, 40.0]])
    made = mosaic(
        {"image": plain, "boxes": [box, box], "boxes_label": [torch.tensor([1])] * 2}, np.random.default_rng(3)
    )
    for image, boxes in zip(made["image"], made["boxes"], strict=True):
        painted = torch.zeros(64, 64, dtype=torch.bool)
        for left, top, right, bottom in boxes.long().tolist():
            painted[top:bottom, left:right] = True
        assert (painted == (image[0] > 0)).float().mean() > 0.97, "all but slivers, which are dropped"


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.one_in(6)
def test_each_has_a_sheet_of_what_comes_out(name, data, tmp_path):
    out = tmp_path / "sheet.png"
    folder = data / FOLDERS.get(name, "classes")
    options = ["--recipe", RECIPES / f"{name}.py", "--out", out, "--sheet", 4, "--size", 32, "--json", "-"]
    result = CliRunner().invoke(app, ["peek", str(folder), *map(str, options)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    pictures = {"simclr": 2, "dino": 10, "segmentation": 2}.get(name, 1)
    assert json.loads(result.stdout) == {"samples": 4, "pictures": pictures, "sheet": str(out)}
    with PIL.Image.open(out) as sheet:
        across = 10 if name == "dino" else 2 * pictures
        assert sheet.size == (across * 38 + 6, 4 * pictures // across * 52 + 6)
    assert (RECIPES / f"{name}.png").stat().st_size < 150_000


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "expected a Python file with a function make_loader, got "),
        ("loader = 1", r"expected a function make_loader\(path, …\) that returns a loader, and there is none"),
        ("def make_loader(path):\n    return 3", "expected make_loader to return a loader, got a int"),
    ],
)
def test_a_file_without_a_loader_is_refused(data, tmp_path, text, message):
    file = tmp_path / "recipe.py"
    if text is not None:
        file.write_text(text)
    with pytest.raises(hr.errors.UsageError, match=message):
        CliRunner().invoke(app, ["peek", str(data), "--recipe", str(file)], catch_exceptions=False)
