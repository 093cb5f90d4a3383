"""Whatever a list of samples holds, it opens and each row reads, or the error has a name."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import pytest
from fuzzed_files import edited_bytes, edited_texts, fuzzed
from hypothesis import given
from hypothesis import strategies as st
from manifests import WRITERS

import headrace as hr
from headrace.errors import HeadraceError

ROWS = {
    "image": [f"{number}.jpg" for number in range(5)],
    "label": [3, 1, 4, 1, 5],
    "weight": [0.5, 1.0, 2.5, -1.0, 1e9],
    "text": ["one", "a, b", 'a "b"', "é", ""],
}
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
    root = tmp_path_factory.mktemp("manifests")
    for number in range(3):  # some are missing
        (root / f"{number}.jpg").write_bytes(b"jpeg")
    return root


def open_and_read(path: Path, columns: list[str] | None = None) -> None:
    with suppress(HeadraceError):
        dataset = hr.open(path, root=path.parent, columns=columns)
        for number in range(len(dataset)):
            with suppress(HeadraceError):
                if dataset[number].get("image") and dataset.has_bytes("image"):  # "": the sample has none
                    dataset.read("image", number)


@pytest.mark.parametrize("suffix", WRITERS)
@fuzzed
@given(data=st.data())
def test_rows_of_a_manifest(folder: Path, suffix: str, data: st.DataObject) -> None:
    path = WRITERS[suffix](folder / f"list{suffix}", ROWS)
    edited = edited_bytes if suffix == ".parquet" else edited_texts
    path.write_bytes(data.draw(edited(path.read_bytes())))
    open_and_read(path, list(ROWS) if suffix == ".txt" else None)


@fuzzed
@given(data=st.data())
def test_annotations_of_coco(folder: Path, data: st.DataObject) -> None:
    path = folder / "annotations.json"
    path.write_bytes(data.draw(edited_texts(json.dumps(COCO, indent=1).encode())))
    open_and_read(path)
