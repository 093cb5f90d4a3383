"""Whatever COCO's annotations hold, they open and each image's reads, or the error has a name."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import pytest
from fuzzed_files import edited_texts, fuzzed
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.errors import HeadraceError

COCO = {
    "images": [{"id": number, "file_name": f"{number}.jpg", "width": 64, "height": 48} for number in range(3)],
    "annotations": [
        {"id": 1, "image_id": 2, "category_id": 7, "bbox": [1, 2.5, 3, 4], "area": 12.0, "iscrowd": 0},
        {"id": 2, "image_id": 0, "category_id": 5, "bbox": [0, 0, 1, 1], "segmentation": [[1, 2.5]]},
    ],
    "categories": [{"id": 7, "name": "dog"}, {"id": 5, "name": "cat"}],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some of the images."""
    root = tmp_path_factory.mktemp("coco")
    for number in range(2):
        (root / f"{number}.jpg").write_bytes(b"jpeg")
    return root


@fuzzed
@given(data=st.data())
def test_annotations(folder: Path, data: st.DataObject) -> None:
    path = folder / "annotations.json"
    path.write_bytes(data.draw(edited_texts(json.dumps(COCO, indent=1).encode())))
    with suppress(HeadraceError):
        dataset = hr.open(path, root=folder)
        for number in range(len(dataset)):
            with suppress(HeadraceError):
                assert dataset[number]
                dataset.read("image", number)
