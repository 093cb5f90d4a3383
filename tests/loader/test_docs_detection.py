"""The examples of docs/detection.md, run as they stand there."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from docs_pages import examples
from loader_data import encode, photograph

import headrace as hr

EXAMPLES = examples("detection.md")
IMAGES, PEOPLE, POINTS = 20, 2, 17


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Runs the examples, one after the other, beside a small COCO."""
    rng = np.random.default_rng(0)
    (tmp_path / "train2017").mkdir()
    (tmp_path / "annotations").mkdir()
    images, annotations = [], []
    for number in range(IMAGES):
        (tmp_path / "train2017" / f"{number}.jpg").write_bytes(encode(photograph(number, 160, 120), quality=90))
        images.append({"id": number, "file_name": f"{number}.jpg", "width": 160, "height": 120})
        for _ in range(PEOPLE):
            x, y = rng.integers(0, 60, 2).tolist()
            points = np.concatenate([rng.integers(0, 120, (POINTS, 2)), np.full((POINTS, 1), 2)], 1)
            annotation = {"image_id": number, "category_id": 1, "iscrowd": 0, "bbox": [x, y, 60, 50]}
            annotation["segmentation"] = [[x, y, x + 60, y, x + 60, y + 50, x, y + 50]]
            annotations.append(annotation | {"keypoints": points.reshape(-1).tolist()})
    text = json.dumps({"images": images, "annotations": annotations, "categories": [{"id": 1, "name": "person"}]})
    for kind in ("instances", "person_keypoints"):
        (tmp_path / "annotations" / f"{kind}_train2017.json").write_text(text)
    monkeypatch.chdir(tmp_path)

    def execute(count):
        names: dict[str, object] = {"torch": torch}
        for example in EXAMPLES[:count]:
            exec(example, names)
        return names

    return execute


def test_there_are_four_examples():
    assert len(EXAMPLES) == 4


def test_instance_masks_come_beside_their_boxes(run):
    names = run(3)
    loader = hr.Loader(names["data"], names["fields"], view=hr.Resize((48, 64)), batch_size=IMAGES)
    (batch,) = loader
    assert [(each.shape, each.dtype) for each in batch["masks"]] == [((PEOPLE, 48, 64), torch.uint8)] * IMAGES
    for boxes, masks in zip(batch["boxes"], batch["masks"], strict=True):
        for (x0, y0, x1, y1), mask in zip(boxes.tolist(), masks, strict=True):
            inside = mask[round(y0) : round(y1), round(x0) : round(x1)]
            assert inside.float().mean() > 0.8
            assert mask.sum() == inside.sum()


def test_targets_for_torchvision(run):
    """What its models ask for: float images [3, H, W], boxes with x1 < x2 and y1 < y2, int64 labels from 1 on."""
    names = run(1)
    assert len(names["targets"]) == IMAGES % 16
    assert all(image.shape == (3, 480, 480) and image.dtype == torch.float32 for image in names["images"])
    for target in names["targets"]:
        boxes, labels = target["boxes"], target["labels"]
        assert boxes.dtype == torch.float32
        assert boxes.shape == (len(labels), 4)
        assert (boxes[:, :2] < boxes[:, 2:]).all()
        assert labels.dtype == torch.int64
        assert (labels == 1).all()


def test_people_and_their_points(run):
    batch = next(iter(run(2)["loader"]))
    assert [tuple(points.shape) for points in batch["points"]] == [(PEOPLE, POINTS, 3)] * 16
    assert [tuple(boxes.shape) for boxes in batch["boxes"]] == [(PEOPLE, 4)] * 16
    assert all((points[..., 2] == 2).all() for points in batch["points"]), "a letterbox shows all of the image"


def test_what_is_found_on_the_output_lies_on_the_source(run):
    names = run(4)
    batch = next(iter(names["loader"]))
    assert {bool(flip) for flip in batch["view"]["flip"][:, 0]} == {True, False}
    for row in range(16):  # images of 160 x 120 in 640 x 640: four times as large, 80 rows of padding at each end
        corners = names["to_source"](torch.tensor([[0.0, 80.0], [640.0, 560.0]]), batch["view"], row, 640, 640)
        mirrored = bool(batch["view"]["flip"][row, 0])
        assert corners.tolist() == [[160.0 * mirrored, 0.0], [160.0 * (not mirrored), 120.0]]
