"""COCO's annotations, against the JSON itself."""

from __future__ import annotations

import json
import pathlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
import headrace.data as data
from headrace.errors import DatasetError, EmptyDatasetError, UsageError


def image(number: int, **more: object) -> dict[str, object]:
    """With keys that no column is made of, as the real files have."""
    return {"id": number, "file_name": f"{number:012}.jpg", "width": 640, "height": 480 + number, "license": 3} | more


def box(number: int, image_id: int, category: int) -> dict[str, object]:
    return {
        "id": number, "image_id": image_id, "category_id": category, "bbox": [number, 1.5, 20, 30.25], "area": 605.0,
        "iscrowd": number % 2, "segmentation": {"counts": [1, 2], "size": [3, 4]} if number % 2 else [[1.5, 2, 3.0]],
    }  # fmt: skip


CATEGORIES = [{"id": 90, "name": "toothbrush"}, {"id": 1, "name": "person"}, {"id": 18, "name": "dog"}]
INSTANCES = {
    "info": {"year": 2017},
    "images": [image(9), image(4), image(7)],
    "annotations": [box(1, 7, 18), box(2, 9, 90), box(3, 7, 1), box(5, 7, 18)],
    "categories": CATEGORIES,
}
CAPTIONS = {
    "images": [image(9), image(4)],
    "annotations": [
        {"id": 1, "image_id": 4, "caption": "A dög."},
        {"id": 2, "image_id": 9, "caption": "two"},
        {"id": 3, "image_id": 4, "caption": 'a "quoted"\nline'},
    ],
}


@pytest.fixture
def write(tmp_path):
    def write_file(content: object, name: str = "annotations.json") -> pathlib.Path:
        path = tmp_path / name
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return path

    return write_file


def test_instances_become_lists_of_boxes_and_labels(write, tmp_path):
    (tmp_path / "val").mkdir()
    (tmp_path / "val" / f"{7:012}.jpg").write_bytes(b"seven")
    ds = data.open(write(INSTANCES), root=tmp_path / "val")
    assert ds.classes == ("person", "dog", "toothbrush")
    assert repr(ds) == (
        "Dataset: 3 samples in 3 classes, columns image (text), image_id (value), width (value), height (value), "
        "bbox (list), label (list: 3 classes), area (list), iscrowd (list), segmentation (list), category_id (list), "
        "annotation_id (list), "
        "annotations annotations.json"
    )
    seven = ds[2]
    assert ds.read("image", 2) == b"seven"
    assert (seven["__key__"], seven["image"]) == (f"{7:012}.jpg",) * 2
    assert (seven["image_id"], seven["width"], seven["height"]) == (7, 640, 487)
    assert (seven["bbox"].dtype, seven["bbox"].tolist()) == (
        np.float32, [[1, 1.5, 20, 30.25], [3, 1.5, 20, 30.25], [5, 1.5, 20, 30.25]]
    )  # fmt: skip
    assert (seven["label"].tolist(), seven["iscrowd"].tolist()) == ([1, 0, 1], [1, 1, 1])
    assert (seven["category_id"].tolist(), seven["annotation_id"].tolist()) == ([18, 1, 18], [1, 3, 5])
    assert seven["area"].tolist() == [605.0] * 3
    assert [json.loads(text) for text in seven["segmentation"]] == [{"counts": [1, 2], "size": [3, 4]}] * 3
    none = ds[1]
    assert (none["bbox"].shape, none["label"].shape, none["segmentation"]) == ((0, 4), (0,), [])
    assert json.loads(ds[0]["segmentation"][0]) == [[1.5, 2, 3.0]]


def test_captions_become_a_list_of_texts(write):
    ds = data.open(write(CAPTIONS))
    assert [ds[i]["captions"] for i in range(2)] == [["two"], ["A dög.", 'a "quoted"\nline']]
    assert ds.classes is None


def test_a_loader_hands_out_images_with_their_lists(tmp_path, write):
    from loader_data import encoded

    for number in (9, 4, 7):
        (tmp_path / f"{number:012}.jpg").write_bytes(encoded(0)[1])
    fields = {"image": hr.Image(), "boxes": hr.Raw(source="bbox"), "label": hr.Raw()}
    (batch,) = hr.Loader(write(INSTANCES), fields, view=hr.Resize((8, 8)), batch_size=3, output="numpy")
    assert batch["image"].shape == (3, 3, 8, 8)
    assert [boxes.shape for boxes in batch["boxes"]] == [(1, 4), (0, 4), (3, 4)]
    assert [labels.tolist() for labels in batch["label"]] == [[2], [], [1, 0, 1]]
    with pytest.raises(UsageError, match=r"field 'label': expected one number .* got a list column; use Raw"):
        hr.Loader(write(INSTANCES), {"label": hr.Label()}, batch_size=3)


@given(st.lists(st.tuples(st.integers(0, 5), st.text(max_size=5)), max_size=20))
@pytest.mark.long
def test_annotations_belong_to_their_images_in_their_order(tmp_path_factory, pairs):
    annotations = [{"id": i, "image_id": owner, "caption": text} for i, (owner, text) in enumerate(pairs)]
    path = tmp_path_factory.mktemp("coco") / "captions.json"
    path.write_text(json.dumps({"images": [image(number) for number in (3, 0, 4)], "annotations": annotations}))
    ds = data.open(path)
    for i, number in enumerate((3, 0, 4)):
        expected = [text for owner, text in pairs if owner == number]
        assert ds[i].get("captions", []) == expected
    strays = sum(owner not in (3, 0, 4) for owner, _ in pairs)
    assert ds.skipped == ({"annotations without an image": strays} if strays else {})


def test_sizes_that_some_images_lack_are_no_column(write):
    bare = {"id": 1, "file_name": "1.jpg"}
    ds = data.open(write({"images": [bare, image(2)], "annotations": []}))
    assert list(ds.fields) == ["image", "image_id"]


def test_test_images_come_without_annotations(write):
    """As in COCO's image_info_test2017.json."""
    ds = data.open(write({"images": [image(1), image(2)], "categories": CATEGORIES}))
    assert (list(ds.fields), len(ds)) == (["image", "image_id", "width", "height"], 2)


def test_images_of_lvis_have_a_url_instead_of_a_name(write):
    """As in lvis_v1_train.json: the folder of COCO's split is part of the path."""
    urls = [f"http://images.cocodataset.org/{split}/{n:012}.jpg" for n, split in enumerate(("train2017", "val2017"))]
    images = [{"id": n, "coco_url": url, "width": 640, "height": 480} for n, url in enumerate(urls)]
    ds = data.open(write({"images": images, "annotations": []}))
    assert ds.column("image") == ["train2017/000000000000.jpg", "val2017/000000000001.jpg"]
    named = [each | {"file_name": f"{each['id']}.jpg"} for each in images]
    assert data.open(write({"images": named, "annotations": []})).column("image") == ["0.jpg", "1.jpg"]


def test_a_byte_order_mark_is_passed_over(write):
    path = write(INSTANCES)
    expected = data.open(path).fingerprint
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert data.open(path).fingerprint == expected


def without(annotation: dict[str, object], key: str) -> dict[str, object]:
    return {name: value for name, value in annotation.items() if name != key}


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("{", "expected COCO's annotations, an object with images and annotations, got otherwise: "),
        ([1], "got otherwise: Expected `object`"),
        ({"annotations": []}, "missing required field `images`"),
        ({"images": [{"id": 1}]}, r"missing required field `file_name` - at `\$\.images\[0\]`"),
        ({"images": [image(1)], "annotations": [{"image_id": "x"}]}, r"Expected `int`, got `str`"),
        (INSTANCES | {"images": [image(1), image(1)]}, "expected an id of its own for each image"),
        (INSTANCES | {"categories": CATEGORIES * 2}, "expected an id of its own for each category"),
        ({"images": [image(2**63)]}, r"Expected `int` .* at `\$\.images\[0\]\.id`"),
        ({"images": [image(1, width=-(2**70))]}, r"Expected `int` .* at `\$\.images\[0\]\.width`"),
        ({"images": [image(1)], "annotations": [box(1, 1, 1) | {"area": 1e39}]}, r"Expected `float` .*\.area"),
        ({"images": [image(1)], "annotations": [box(1, 1, 1) | {"iscrowd": 2**64}]}, r"Expected `int` .*\.iscrowd"),
        # Python 3.14 and later read that much.
        ('{"images": [], "more": ' + "[" * 100_000 + "]" * 100_000 + "}", "recursion|expected images"),
        (INSTANCES | {"categories": []}, r"expected the ids of categories \(0 of them\), got 90"),
        (
            INSTANCES | {"annotations": [box(1, 9, 1), without(box(2, 7, 1), "bbox")]},
            "expected 'bbox' in every annotation, since some have it, got none in one of image 7",
        ),
    ],
    ids=[
        "cut",
        "list",
        "no images",
        "no name",
        "text id",
        "same id",
        "same category",
        "long id",
        "width",
        "area",
        "crowd",
        "deep",
        "category",
        "bbox",
    ],
)
def test_what_is_not_coco_is_named(write, content, says):
    with pytest.raises(DatasetError, match=rf"annotations\.json: .*{says}"):
        data.open(write(content))


def test_no_images_are_an_empty_dataset(write):
    with pytest.raises(EmptyDatasetError, match="expected images, got an empty list"):
        data.open(write({"images": [], "annotations": []}))
