"""Masks of instances: against a mask field of the same pixels, a twin of the even-odd rule, and pycocotools."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from pycocotools import mask as coco_masks
from scipy.ndimage import binary_dilation, binary_erosion
from twin import dense as twin

import headrace as hr
from headrace import _core
from headrace.errors import DatasetError, UsageError
from headrace.loader.decoding.instances import MaskRuns, PickedWindow, painted
from headrace.views import compile_view

sides = st.integers(1, 40)
flips = st.sampled_from([0.0, 0.5, 1.0])
views = st.one_of(
    st.builds(hr.RandomResizedCrop, st.just((31, 23)), flip=flips),
    st.builds(hr.Resize, st.tuples(sides, sides), flip=flips),
    st.builds(hr.Letterbox, st.tuples(sides, sides), flip=flips),
    st.builds(hr.CenterCrop, st.tuples(sides, sides), flip=flips),
)
places = st.floats(-10, 50, allow_nan=False)
polygons = st.lists(st.tuples(places, places), min_size=3, max_size=7)

VIEW_COLUMNS = [column.name.lower() for column in _core.ViewColumn]


def row_of(view, upside_down, width, height, key):
    ops = compile_view([view, hr.RandomVerticalFlip(upside_down)]).ops
    size = (np.array([width], np.int32), np.array([height], np.int32))
    return _core.sample_views(ops, key, np.zeros(1, np.int64), np.zeros(1, np.uint32), 0, *size)[0]


def flat(corners):
    return [float(each) for corner in corners for each in corner]


def even_odd(corners, width, height):
    """uint8 [height, width]: a ray to the left of each pixel's middle, counted one edge at a time."""
    y, x = np.mgrid[0:height, 0:width] + 0.5
    inside = np.zeros((height, width), bool)
    for (x0, y0), (x1, y1) in zip(corners, [*corners[1:], corners[0]], strict=True):
        crosses = (y0 <= y) != (y1 <= y)
        at = x0 + (y - y0) * (x1 - x0) / (y1 - y0 if y1 != y0 else 1)
        inside ^= crosses & (at <= x)
    return inside.astype(np.uint8)


def runs_of(mask):
    """Down the columns, by hand."""
    counts, now = [0], 0
    for pixel in mask.T.reshape(-1).tolist():
        if pixel != now:
            counts.append(0)
            now = pixel
        counts[-1] += 1
    return counts


@given(views, flips, sides, sides, st.integers(0, 99), st.lists(polygons, min_size=1, max_size=3))
def test_polygons_under_any_view_are_the_twin_cut_by_it(view, upside_down, width, height, key, shapes):
    row = row_of(view, upside_down, width, height, key)
    window = PickedWindow.of(row)
    made = window.on_output(painted([[flat(each) for each in shapes], [flat(shapes[0])]], window, width=1, height=1))
    whole = np.max([even_odd(each, width, height) for each in shapes], 0)
    named = dict(zip(VIEW_COLUMNS, row.tolist(), strict=True))
    np.testing.assert_array_equal(made[0], twin.nearest(whole, named, 0))
    np.testing.assert_array_equal(made[1], twin.nearest(even_odd(shapes[0], width, height), named, 0))


@given(views, flips, sides, sides, st.integers(0, 99), st.booleans())
def test_runs_under_any_view_are_their_mask_cut_by_it(view, upside_down, width, height, key, compressed):
    mask = (np.random.default_rng(key).random((height, width)) < 0.4).astype(np.uint8)
    counts = coco_masks.encode(np.asfortranarray(mask))["counts"].decode() if compressed else runs_of(mask)
    row = row_of(view, upside_down, width, height, key)
    window = PickedWindow.of(row)
    made = window.on_output(painted([MaskRuns(counts, (height, width))], window, width=width, height=height))
    named = dict(zip(VIEW_COLUMNS, row.tolist(), strict=True))
    np.testing.assert_array_equal(made[0], twin.nearest(mask, named, 0))


@given(st.integers(0, 10**6), st.integers(1, 300), st.integers(1, 300), st.floats(0, 1))
def test_compressed_runs_are_read_as_pycocotools_writes_them(seed, width, height, share):
    rng = np.random.default_rng(seed)
    mask = (np.repeat(rng.random(width * height // 7 + 1), 7)[: width * height] < share).reshape(height, width)
    text = coco_masks.encode(np.asfortranarray(mask.astype(np.uint8)))["counts"].decode()
    assert _core.parse_runs(text).tolist() == runs_of(mask)


@pytest.mark.parametrize("text", ["/", "p", "Q", "0@", "oooooooooo0", "é"])
def test_texts_that_are_no_runs_are_refused(text):
    with pytest.raises(ValueError, match=r"a run of|runs that COCO's text cannot have"):
        _core.parse_runs(text)


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # pycocotools' own
def test_polygons_are_those_of_pycocotools_but_for_edges():
    rng = np.random.default_rng(0)
    for _ in range(50):
        angles = np.sort(rng.random(rng.integers(4, 30)) * 2 * np.pi)
        radii = rng.uniform(20, 90, len(angles))
        corners = np.stack([120 + radii * np.cos(angles), 100 + radii * np.sin(angles)], 1)
        window = PickedWindow.of(row_of(hr.Resize((200, 240)), 0.0, 240, 200, 0))
        (ours,) = painted([[flat(corners)]], window, width=240, height=200)
        theirs = coco_masks.decode(coco_masks.frPyObjects([flat(corners)], 200, 240))[..., 0]
        edge = binary_dilation(theirs, np.ones((3, 3))) & ~binary_erosion(theirs, np.ones((3, 3)))
        assert ((ours != theirs) & ~edge).sum() <= 3, "a spike's thin end may be longer by some pixels"
        assert (ours & theirs).sum() / (ours | theirs).sum() > 0.98


# --- through a loader ---

COUNT = 12


@pytest.fixture(scope="module")
def scenes(tmp_path_factory):
    """Images with up to three objects, the same in COCO's form and as PNG masks of one object each."""
    root = tmp_path_factory.mktemp("scenes")
    images, annotations, rows = [], [], []
    for number in range(COUNT):
        rng = np.random.default_rng(number)
        width, height = 30 + number, 44 - number
        Image.fromarray(rng.integers(0, 255, (height, width, 3), np.uint8)).save(root / f"{number}.png")
        images.append({"id": number, "file_name": f"{number}.png", "width": width, "height": height})
        objects = []
        for which in range(3):
            corners = rng.uniform(0, [width, height], (5, 2))
            mask = even_odd(corners.tolist(), width, height)
            objects.append(mask)
            polygon, runs = [flat(corners)], {"counts": runs_of(mask), "size": [height, width]}
            packed = coco_masks.encode(np.asfortranarray(mask))
            packed = {"counts": packed["counts"].decode(), "size": packed["size"]}
            low, high = corners.min(0), corners.max(0)
            annotations.append(
                {
                    "id": 100 * number + which, "image_id": number, "category_id": 7,
                    "bbox": [*low.tolist(), *(high - low).tolist()],
                    "segmentation": (polygon, runs, packed)[(number + which) % 3], "iscrowd": 0, "area": 1.0,
                }
            )  # fmt: skip
            Image.fromarray(mask).save(root / f"{number}-{which}.png")
        rows.append(",".join([f"{number}.png", *(f"{number}-{which}.png" for which in range(3))]))
    categories = [{"id": 7, "name": "blob"}]
    content = {"images": images, "annotations": annotations, "categories": categories}
    (root / "instances.json").write_text(json.dumps(content))
    (root / "masks.csv").write_text("image,a,b,c\n" + "\n".join(rows))
    return root


VIEWS = [
    hr.RandomResizedCrop((24, 32), flip=0.5),
    [hr.Letterbox(40), hr.RandomVerticalFlip(0.5)],
    hr.CenterCrop(36, flip=1.0),
    [hr.CenterCrop(36, flip=0.5), hr.RandomQuarterTurn()],
]


@pytest.mark.parametrize("view", VIEWS, ids=["crop", "letterbox", "centre", "turned"])
def test_instance_masks_are_mask_fields_of_the_same_pixels(scenes, view):
    given = {"view": view, "batch_size": 5, "shuffle": True, "seed": 3, "output": "numpy"}
    fields = {"image": hr.Image(), "masks": hr.InstanceMasks(source="segmentation")}
    masks = {name: hr.Mask(ignore=0) for name in "abc"}
    ours = hr.Loader(hr.open(scenes / "instances.json", root=scenes), fields, **given)
    theirs = hr.Loader(hr.open(scenes / "masks.csv"), {"image": hr.Image(), **masks}, **given)
    for got, expected in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(got["image"], expected["image"])
        assert [each.dtype for each in got["masks"]] == [np.uint8] * len(got["masks"])
        stacked = np.stack(got["masks"])
        np.testing.assert_array_equal(stacked, np.stack([expected[name] for name in "abc"], 1))
        assert stacked.any()


def test_masks_of_dropped_boxes_are_dropped(scenes):
    fields = {
        "image": hr.Image(),
        "boxes": hr.Boxes(source="bbox", format="xywh", min_visible=0.3, beside=("annotation_id",)),
        "masks": hr.InstanceMasks(source="segmentation", of="boxes"),
        "all": hr.InstanceMasks(source="segmentation"),
        "image_id": hr.Label(),
    }
    view = hr.RandomResizedCrop(32, scale=(0.1, 0.4), flip=0.5)
    loader = hr.Loader(hr.open(scenes / "instances.json", root=scenes), fields, view=view, batch_size=COUNT)
    (batch,) = loader
    dropped = 0
    for number, ids, masks, every in zip(
        batch["image_id"].tolist(), batch["boxes_annotation_id"], batch["masks"], batch["all"], strict=True
    ):
        assert (masks.dtype.__str__(), len(every)) == ("torch.uint8", 3)
        assert masks.tolist() == every[[each - 100 * number for each in ids.tolist()]].tolist()
        dropped += 3 - len(masks)
    assert dropped


def write_jsonl(path, root, segmentations):
    lines = [{"image": f"{number}.png", "segmentation": each} for number, each in enumerate(segmentations)]
    path.write_text("\n".join(map(json.dumps, lines)))
    return hr.open(path, root=root)


def load(dataset, **options):
    fields = {"image": hr.Image(), "masks": hr.InstanceMasks(source="segmentation")}
    return hr.Loader(dataset, fields | options, view=hr.Resize((8, 8)), batch_size=1, output="numpy")


def test_a_manifests_nested_lists(scenes, tmp_path):
    square = [[0, 0, 15, 0, 15, 22, 0, 22]]
    (batch, none) = load(write_jsonl(tmp_path / "a.jsonl", scenes, [[square, [[0, 0, 30, 0, 30, 44]]], []]))
    assert batch["masks"][0].shape == (2, 8, 8)
    np.testing.assert_array_equal(batch["masks"][0][0], np.pad(np.ones((4, 4)), ((0, 4), (0, 4))))
    assert none["masks"][0].shape == (0, 8, 8)


@pytest.mark.parametrize(
    ("segmentation", "message"),
    [
        ([[[1, 2, 3, 4]]], "expected x and y of at least three corners, got 4 numbers"),
        ([[[1, 2, 3, 4, 5, 6, 7]]], "expected x and y of at least three corners, got 7 numbers"),
        ([[[-1e308, -1e308, 1e308, 1e308, 5, 20]]], r"expected corners within 2\^31 pixels of the image's first"),
        ([[[1, 2, 3, 4, 5, -2147483649]]], r"expected corners within 2\^31 pixels of the image's first"),
        ([{"counts": [1], "size": [3, 3]}], "expected runs of the image's 44 rows and 30 columns, got 3 and 3"),
        ([{"counts": [9999], "size": [44, 30]}], "expected runs of at most 1,320 pixels, got 9,999"),
        ([{"counts": [-1, 1], "size": [44, 30]}], "expected runs of 0 pixels or more"),
        ([{"counts": "//", "size": [44, 30]}], "runs that COCO's text cannot have"),
        ([[["a"]]], r"expected polygons .* or runs .* an instance, got"),
    ],
)
def test_damaged_outlines_name_their_sample(scenes, tmp_path, segmentation, message):
    with pytest.raises(DatasetError, match=rf"field 'masks', column 'segmentation' of sample '0.*': {message}"):
        list(load(write_jsonl(tmp_path / "bad.jsonl", scenes, [segmentation])))


def test_fields_that_cannot_be_are_refused(scenes):
    dataset = hr.open(scenes / "instances.json", root=scenes)
    with pytest.raises(UsageError, match="expected a column of lists of JSON texts, got 'bbox', one of lists of num"):
        load(dataset, masks=hr.InstanceMasks(source="bbox"))
    with pytest.raises(UsageError, match="expected a column of the dataset, got 'masks'"):
        load(dataset, masks=hr.InstanceMasks())
    with pytest.raises(UsageError, match=r"expected of= to name a field of Boxes, one of \[\], got 'boxes'"):
        load(dataset, masks=hr.InstanceMasks(source="segmentation", of="boxes"))
