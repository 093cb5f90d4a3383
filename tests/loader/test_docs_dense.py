"""The examples of docs/dense-prediction.md and docs/variable-sizes.md, run as they stand there but for the sizes."""

from __future__ import annotations

import re
import sys

import numpy as np
import pytest
import torch
from docs_pages import DOCS, examples
from PIL import Image

import headrace as hr

SMALLER = {"(300, 375, 450, 525, 600), long_max=1000": "(30, 45, 60), long_max=100"}


def examples_of(page, before=""):
    found = examples(page, before=before)
    for large, small in SMALLER.items():
        found = [text.replace(large, small) for text in found]
    return found


def sizes():
    return examples_of("variable-sizes.md", before="Buckets and budgets")


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Runs an example, in a folder that has what it opens."""
    monkeypatch.syspath_prepend(str(DOCS.parent / "examples"))
    from make_scenes import write_pairs, write_segmentation

    write_pairs(tmp_path, 6, 24)
    write_segmentation(tmp_path, 8, 24)
    rng = np.random.default_rng(0)
    (tmp_path / "annotations").mkdir()
    for image in (tmp_path / "images").iterdir():
        with Image.open(image) as opened:
            width, height = opened.size
        mask = rng.integers(0, 151, (height, width)).astype(np.uint8)
        mask[0, :2] = 0, 150
        Image.fromarray(mask).save(tmp_path / "annotations" / f"{image.stem}.png")
    Image.fromarray(np.array([[(70, 70, 70), (0, 0, 0), (9, 9, 9)]], np.uint8)).save(tmp_path / "coloured.png")
    monkeypatch.chdir(tmp_path)

    def execute(*examples):
        names = {"__name__": "__main__", "hr": hr}
        for example in examples:
            exec(example, names)
        return names

    yield execute
    for name in ("make_scenes", "scenes", "rays"):
        sys.modules.pop(name, None)


def test_pages_have_the_examples_that_are_run():
    assert [len(found) for found in (examples_of("dense-prediction.md"), sizes())] == [4, 2]


def test_depth_out_of_a_tar(run):
    names = run(examples_of("dense-prediction.md")[0])
    batch = names["batch"]
    assert batch["rgb"].shape == (2, 3, 480, 640)
    assert batch["depth"].shape == batch["depth_valid"].shape == (2, 1, 480, 640)
    valid = batch["depth"][batch["depth_valid"]]
    assert (valid.min(), valid.max()) == (-1, 1)
    assert set(batch["depth"][~batch["depth_valid"]].tolist()) == {0.0}
    assert torch.isfinite(names["loss"])


@pytest.mark.long
def test_segmentation_of_classes_from_0(run):
    batch = run(examples_of("dense-prediction.md")[1])["batch"]
    assert batch["mask"].shape == (8, 512, 512)
    assert batch["mask"].dtype == torch.int64
    values = set(batch["mask"].unique().tolist())
    assert values <= {*range(150), 255}
    assert len(values) > 100


def test_images_of_more_than_8_bits(run):
    names = run(examples_of("dense-prediction.md")[2])
    found = {name: (names[name].channel_count, names[name].wide) for name in ("scans", "bands", "cutouts", "grey")}
    assert found == {"scans": (1, True), "bands": (6, True), "cutouts": (4, True), "grey": (1, False)}


def test_coloured_masks_become_indices(run):
    run(examples_of("dense-prediction.md")[3])
    assert np.asarray(Image.open("mask.png")).tolist() == [[2, 0, 255]]


@pytest.mark.long
def test_a_training_on_images_of_many_sizes(run, capsys):
    names = run(*sizes())
    shapes = capsys.readouterr().out.splitlines()
    assert len(shapes) == len(names["loader"]) == 4
    assert len(set(shapes)) > 1
    assert all(int(side) % 8 == 0 for line in shapes for side in re.findall(r"\d+", line.split("torch.Size")[2])[1:])


@pytest.mark.parametrize("name", ["dense-batch.png", "rank-shapes.png"])
def test_pictures_are_there_and_small(name):
    assert (DOCS / name).stat().st_size <= 150_000
