"""Images whose every pixel says where it is, with boxes and points in COCO's form, and what must hold of a batch."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

import headrace as hr

COUNT = 26
POINTS = 4
PAIRS = ((0, 1), (2, 3))
STEP = 6
"""Levels between two neighbours, so that a JPEG of high quality tells them apart."""
PADDING = 255
TURNED = 6
"""An EXIF orientation: the image is turned to the right to be looked at."""


def size_of(number: int) -> tuple[int, int]:
    """Width and height."""
    return 24 + number % 15, 38 - number % 13


def coordinates(width: int, height: int) -> np.ndarray:
    """uint8 [H, W, 3]: x and y of each pixel, times STEP, and 0."""
    y, x = np.mgrid[0:height, 0:width]
    return (np.stack([x, y, np.zeros_like(x)], -1) * STEP).astype(np.uint8)


def encoded(number: int) -> tuple[str, bytes]:
    """PNG, which the core decodes, WebP, which it declines, and JPEG turned by EXIF."""
    picture, out = Image.fromarray(coordinates(*size_of(number))), io.BytesIO()
    match number % 3:
        case 0:
            picture.save(out, "PNG")
            return "png", out.getvalue()
        case 1:
            picture.save(out, "WEBP", lossless=True)
            return "webp", out.getvalue()
        case _:
            exif = Image.Exif()
            exif[0x0112] = TURNED
            picture.transpose(Image.Transpose.ROTATE_90).save(out, "JPEG", quality=100, subsampling=0, exif=exif)
            return "jpg", out.getvalue()


def instances_of(number: int) -> list[tuple[list[int], list[list[int]]]]:
    """Boxes (x, y, width, height) and their points (pixel, pixel, visibility). Some images have none."""
    rng = np.random.default_rng(number)
    width, height = size_of(number)
    found = []
    for _ in range(number % 4):
        x, y = int(rng.integers(0, width - 5)), int(rng.integers(0, height - 5))
        box = [x, y, int(rng.integers(2, width - x + 1)), int(rng.integers(2, height - y + 1))]
        points = [[int(rng.integers(width)), int(rng.integers(height)), int(rng.integers(3))] for _ in range(POINTS)]
        found.append((box, points))
    return found


def identity(number: int, instance: int) -> int:
    """What the column `area` holds, to tell which instance a batch has."""
    return 10 * number + instance


def write_coco(root: Path, count: int = COUNT, *, damaged: Sequence[int] = ()) -> Path:
    """Annotations and images; those that are `damaged` cannot be decoded."""
    root.mkdir(exist_ok=True)
    images, annotations = [], []
    for number in range(count):
        extension, content = encoded(number)
        name = f"{number:03}.{extension}"
        (root / name).write_bytes(content[:40] if number in damaged else content)
        images.append({"id": number, "file_name": name})
        for instance, (box, points) in enumerate(instances_of(number)):
            annotations.append(
                {
                    "image_id": number,
                    "category_id": instance,
                    "bbox": box,
                    "area": identity(number, instance),
                    "iscrowd": 0,
                    "keypoints": [value for point in points for value in point],
                }
            )
    categories = [{"id": each, "name": f"class {each}"} for each in range(4)]
    path = root / "annotations.json"
    path.write_text(json.dumps({"images": images, "annotations": annotations, "categories": categories}))
    return path


def fields(**options: Any) -> dict[str, Any]:
    return {
        "image": hr.Image(filter="nearest", dct_scaling=False, exif=True),
        "boxes": hr.Boxes(source="bbox", format="xywh", beside=("area", "label"), **({"min_size": 0} | options)),
        "points": hr.Keypoints(source="keypoints", flip_pairs=PAIRS, of="boxes", offset=0.5),
        "number": hr.Label(source="image_id"),
    }


def assert_over_images(batch: Mapping[str, Any]) -> int:
    """Boxes and points lie over what they lay over in the source, of which the pixels tell; how many boxes there were.
    Images have to be drawn no smaller than they are."""
    seen = 0
    for row, number in enumerate(batch["number"].tolist()):
        pixels = np.asarray(batch["image"][row]).transpose(1, 2, 0).astype(int)
        lies = pixels.max(-1) < PADDING
        where = np.rint(pixels[..., :2] / STEP).astype(int)
        boxes, points = np.asarray(batch["boxes"][row]), np.asarray(batch["points"][row])
        ids = np.asarray(batch["boxes_area"][row]).astype(int).tolist()
        assert boxes.dtype == points.dtype == np.float32
        assert boxes.shape == (len(ids), 4)
        assert points.shape == (len(ids), POINTS, 3)
        assert np.asarray(batch["boxes_label"][row]).tolist() == [each - identity(number, 0) for each in ids]
        for instance, (source, source_points) in enumerate(instances_of(number)):
            shown = _shows(where, source) & lies
            if identity(number, instance) not in ids:
                assert not shown.any()
                continue
            at = ids.index(identity(number, instance))
            assert_box(boxes[at], shown)
            assert_points(points[at], source_points, where, lies)
            seen += 1
    return seen


def _shows(where: np.ndarray, box: Sequence[int]) -> np.ndarray:
    x, y, width, height = box
    return (where[..., 0] >= x) & (where[..., 0] < x + width) & (where[..., 1] >= y) & (where[..., 1] < y + height)


def assert_box(box: np.ndarray, shown: np.ndarray, near: float = 1e-3) -> None:
    """A pixel shows what is in the box just where its middle is in the box; on the very edge it may be either."""
    y, x = np.mgrid[0 : shown.shape[0], 0 : shown.shape[1]] + 0.5
    outside = np.maximum.reduce([box[0] - x, x - box[2], box[1] - y, y - box[3]])
    assert shown[outside < -near].all()
    assert not shown[outside > near].any()


def assert_points(points: np.ndarray, sources: Sequence[Sequence[int]], where: np.ndarray, lies: np.ndarray) -> None:
    order = list(range(POINTS))
    (x_across, x_down), (y_across, y_down) = ([_rise(where[..., of], lies, axis) for axis in (1, 0)] for of in (0, 1))
    if x_across * y_down < x_down * y_across:
        for first, second in PAIRS:
            order[first], order[second] = second, first
    for point, source in zip(points, [sources[at] for at in order], strict=True):
        if point[2] > 0:
            assert point[2] == source[2]
            at = int(point[1]), int(point[0])
            assert lies[at]
            assert where[at].tolist() == source[:2]
        else:
            assert point.tolist() == [0, 0, 0]
            shown = (where == source[:2]).all(-1) & lies
            assert source[2] == 0 or not shown.any() or _touches_edge(shown, lies), "its middle is out of sight"


def _rise(values: np.ndarray, lies: np.ndarray, axis: int) -> int:
    """How the coordinates of the source rise along an axis of the output."""
    rows = values[lies.any(1)][:, lies.any(0)]
    return int(np.diff(rows.astype(int), axis=axis).sum())


def _touches_edge(shown: np.ndarray, lies: np.ndarray) -> bool:
    y, x = np.nonzero(lies)
    inner = np.zeros_like(lies)
    inner[y.min() + 1 : y.max(), x.min() + 1 : x.max()] = True
    return bool((shown & ~inner).any())
