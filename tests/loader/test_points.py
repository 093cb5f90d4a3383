"""Boxes and keypoints: held to pixels, to a twin in plain Python, to albumentations, and against bad annotations."""

from __future__ import annotations

import importlib.util
import json

import core_images
import numpy as np
import points_data
import pytest
from hypothesis import given
from hypothesis import strategies as st
from points_data import COUNT, assert_over_images, fields, write_coco
from twin import points as twin

import headrace as hr
from headrace import _core
from headrace.data import ListColumn
from headrace.errors import ChangedError, DatasetError, UsageError
from headrace.loader.decoding.detection import BatchViews, boxes_on_output, points_on_output
from headrace.views import compile_view

NO_PAIRS = np.empty((0, 2), np.int64)

# --- any view, against the pixels of an image that it makes ---

sides = st.integers(1, 40)
flips = st.sampled_from([0.0, 0.5, 1.0])
enlarging = st.one_of(
    st.builds(hr.RandomResizedCrop, st.just((64, 53)), flip=flips),
    st.builds(hr.Resize, st.tuples(st.integers(40, 70), st.integers(40, 70)), flip=flips),
    st.builds(hr.Letterbox, st.tuples(st.integers(40, 70), st.integers(40, 70)), flip=flips),
    st.builds(hr.CenterCrop, st.tuples(sides, sides), flip=flips),
    st.builds(hr.RandomCrop, st.tuples(sides, sides), pad_if_needed=st.just(True), flip=flips),
)
shrinking = st.builds(hr.Resize, st.tuples(sides, sides), flip=flips)


def view_of(view: object, upside_down: float, width: int, height: int, key: int) -> np.ndarray:
    """[1, 16], as the core draws it."""
    ops = compile_view([view, hr.RandomVerticalFlip(upside_down)]).ops
    size = (np.array([width], np.int32), np.array([height], np.int32))
    return _core.sample_views(ops, key, np.zeros(1, np.int64), np.zeros(1, np.uint32), 0, *size)


@given(enlarging, flips, sides, sides, st.integers(0, 1000))
def test_every_pixels_middle_lies_where_the_pixel_does(view, upside_down, width, height, key):
    row = view_of(view, upside_down, width, height, key)
    y, x = np.mgrid[0:height, 0:width]
    places = np.stack([x, y], -1).reshape(-1, 2)
    points = np.concatenate([places + 0.5, np.full((len(places), 1), 2)], 1)[None]
    seen = points_on_output(points, BatchViews(row, np.array([[width, height]], np.int32), np.ones(1, int)), NO_PAIRS)[
        0
    ]
    image = core_images.run(points_data.coordinates(width, height), row, filter="nearest", fill=[255] * 3)
    visible = seen[:, 2] > 0
    at = seen[visible].astype(int)
    np.testing.assert_array_equal(image[at[:, 1], at[:, 0], :2], places[visible] * points_data.STEP)
    assert (seen[~visible] == 0).all()
    shown = {tuple(each) for each in (image[image.max(-1) < 255][:, :2] // points_data.STEP).tolist()}
    inside = {tuple(each) for each in places[visible].tolist()}
    assert inside <= shown
    assert len(inside) >= len(shown) - 2 * (width + height), "only pixels at the edge may be seen without their middle"


@given(st.one_of(enlarging, shrinking), flips, sides, sides, st.integers(0, 1000), st.data())
def test_a_box_has_just_the_pixels_of_what_it_marks(view, upside_down, width, height, key, data):
    left, top = data.draw(st.integers(0, width - 1)), data.draw(st.integers(0, height - 1))
    right, bottom = data.draw(st.integers(left + 1, width)), data.draw(st.integers(top + 1, height))
    row = view_of(view, upside_down, width, height, key)
    source = np.zeros((height, width, 3), np.uint8)
    source[top:bottom, left:right] = 255
    shown = core_images.run(source, row, filter="nearest", fill=[0] * 3)[..., 0] == 255
    boxes = np.array([[left, top, right, bottom]], np.float64)
    views = BatchViews(row, np.array([[width, height]], np.int32), np.ones(1, int))
    seen, kept = boxes_on_output(boxes, views, min_size=0, min_visible=0)
    if kept[0]:
        points_data.assert_box(seen[0], shown)
    else:
        assert not shown.any()


rows = st.tuples(st.one_of(enlarging, shrinking), flips, sides, sides, st.integers(0, 1000))
numbers = st.floats(-20, 60, width=32)
ANY_BOX = st.tuples(numbers, numbers, numbers, numbers)


@given(rows, ANY_BOX, st.sampled_from([0, 0.5, 1, 3.3]), st.sampled_from([0, 0.1, 0.5, 1]))
def test_boxes_are_their_twins(drawn, corners, min_size, min_visible):
    view, upside_down, width, height, key = drawn
    row = view_of(view, upside_down, width, height, key)
    views = BatchViews(row, np.array([[width, height]], np.int32), np.ones(1, int))
    seen, kept = boxes_on_output(np.array([corners], np.float64), views, min_size=min_size, min_visible=min_visible)
    # On the very edge between kept and dropped, rounding may fall on either side.
    near = [
        twin.box(row[0], (width, height), corners, min_size=min_size + by, min_visible=min_visible * (1 + by))
        for by in (-1e-6, 1e-6)
    ]
    if (near[0] is None) == (near[1] is None):
        expected = twin.box(row[0], (width, height), corners, min_size=min_size, min_visible=min_visible)
        assert kept[0] == (expected is not None)
        if expected is not None:
            np.testing.assert_allclose(seen[0], expected, rtol=1e-5, atol=1e-4)


@given(rows, numbers, numbers, st.sampled_from([0, 1, 2]))
def test_points_are_their_twins(drawn, x, y, visibility):
    view, upside_down, width, height, key = drawn
    row = view_of(view, upside_down, width, height, key)
    views = BatchViews(row, np.array([[width, height]], np.int32), np.ones(1, int))
    seen = points_on_output(np.array([[[x, y, visibility]]], np.float64), views, NO_PAIRS)
    expected = twin.point(row[0], x, y, visibility)
    if (seen[0, 0, 2] > 0) == (expected[2] > 0):
        np.testing.assert_allclose(seen[0, 0], expected, rtol=1e-5, atol=1e-4)
    else:  # it lies on an edge of what is seen
        assert min(abs(twin.place(row[0], 0, x) - edge) for edge in edges(row[0], 0)) < 1e-4 or (
            min(abs(twin.place(row[0], 1, y) - edge) for edge in edges(row[0], 1)) < 1e-4
        )


def edges(row, axis):
    begin = row[8 + axis] - row[10 + axis] - row[12 + axis] if row[14 + axis] else row[10 + axis]
    return begin, begin + row[12 + axis]


@pytest.mark.parametrize("transposed", [0, 1])
@pytest.mark.parametrize(("hflip", "vflip"), [(0, 0), (1, 0), (0, 1), (1, 1)])
def test_pairs_change_places_in_a_mirror(hflip, vflip, transposed):
    """Upside down and mirrored is a turn: what was left stays left. So are a swap of x and y and one mirror."""
    row = core_images.view_row((0, 0, 8, 8), (0, 0, 8, 8), (8, 8), hflip=hflip, vflip=vflip, transposed=transposed)
    swapped = (hflip + vflip + transposed) % 2
    points = np.array([[[1.0, 2.0, 1], [5.0, 3.0, 2], [4.0, 4.0, 2]]])
    views = BatchViews(row, np.array([[8, 8]], np.int32), np.ones(1, int))
    seen, alone = (points_on_output(points, views, pairs) for pairs in (np.array([[0, 1]]), NO_PAIRS))
    np.testing.assert_array_equal(seen, alone[:, [1, 0, 2]] if swapped else alone)


@pytest.mark.skipif(importlib.util.find_spec("albumentations") is None, reason="albumentations is not installed")
@pytest.mark.parametrize(("hflip", "vflip"), [(False, False), (True, False), (False, True)])
def test_albumentations_agrees(hflip, vflip):
    import albumentations

    rng = np.random.default_rng(0)
    size, window = (80, 60), (11, 7, 61, 52)
    begin = rng.uniform(0, 70, (200, 2)) * (1, 0.7)
    boxes = np.concatenate([begin, np.minimum(begin + rng.uniform(2, 40, (200, 2)), size)], 1)
    places = rng.uniform(0, 1, (200, 2)) * size
    steps = [albumentations.Crop(*window), albumentations.Resize(135, 100)]
    steps += [albumentations.HorizontalFlip(p=1)] * hflip + [albumentations.VerticalFlip(p=1)] * vflip
    theirs = albumentations.Compose(
        steps,
        bbox_params=albumentations.BboxParams("pascal_voc", label_fields=["ids"], min_visibility=0.3),
        keypoint_params=albumentations.KeypointParams("xy", label_fields=["names"]),
    )(
        image=np.zeros((60, 80, 3), np.uint8),
        bboxes=boxes,
        ids=np.arange(200),
        keypoints=places,
        names=np.arange(200),
    )
    row = core_images.view_row(window, window, (100, 135), hflip=hflip, vflip=vflip)
    views = BatchViews(row, np.array([size], np.int32), np.ones(1, int))
    seen, kept = boxes_on_output(boxes, views.of(np.zeros(200, np.int64)), min_size=0, min_visible=0.3)
    assert np.flatnonzero(kept).tolist() == np.asarray(theirs["ids"]).astype(int).tolist()
    np.testing.assert_allclose(seen[kept], theirs["bboxes"], atol=1e-2)
    points = points_on_output(np.concatenate([places, np.ones((200, 1))], 1)[None], views, NO_PAIRS)[0]
    names = np.asarray(theirs["names"]).astype(int)
    assert np.flatnonzero(points[:, 2]).tolist() == names.tolist()
    # Theirs are indices of pixels: what lies at 0 of 100 comes to 99, not to 100.
    np.testing.assert_allclose(points[names, :2], theirs["keypoints"] + [hflip, vflip], atol=1e-2)


# --- through the loader ---


@pytest.fixture(scope="module")
def coco(tmp_path_factory):
    return hr.open(write_coco(tmp_path_factory.mktemp("points") / "good"))


@pytest.fixture(scope="module")
def damaged(tmp_path_factory):
    return hr.open(write_coco(tmp_path_factory.mktemp("points") / "bad", damaged=(0, 3, 7, 14)))


VIEWS = {
    "random crops": hr.RandomResizedCrop(44, flip=0.5),
    "letterbox": [hr.Letterbox((50, 64), fill=255, flip=0.5), hr.RandomVerticalFlip(0.5)],
    "padded crops": hr.RandomCrop((30, 41), pad_if_needed=True, fill=255, flip=0.5),
    "whole": hr.Resize((61, 47)),
    "turned": [hr.RandomResizedCrop(44, flip=0.5), hr.RandomQuarterTurn()],
    "turned first": [hr.RandomQuarterTurn(), hr.RandomCrop((30, 41), pad_if_needed=True, fill=255)],
}


def over_images(loader):
    batches = list(loader)
    assert sum(map(assert_over_images, batches)) > 20
    return batches


@pytest.mark.one_in(2)
@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
@pytest.mark.parametrize("output", ["torch", "numpy"])
def test_boxes_and_points_lie_over_their_images(coco, view, output):
    loader = hr.Loader(coco, fields(), view=view, batch_size=8, shuffle=True, output=output)
    batches = over_images(loader)
    assert [len(batch["boxes"]) for batch in batches] == [8, 8, 8, 2]
    assert list(batches[0]) == ["image", "boxes", "boxes_area", "boxes_label", "points", "number"]
    kind = np.ndarray if output == "numpy" else __import__("torch").Tensor
    assert all(isinstance(each, kind) for name in ("boxes", "points", "boxes_area") for each in batches[0][name])


def test_rows_that_are_mended_have_their_own_views(damaged):
    loader = hr.Loader(
        damaged,
        fields(),
        view=VIEWS["random crops"],
        batch_size=8,
        shuffle=True,
        max_bad=0.5,
        output="numpy",
    )
    batches = over_images(loader)
    assert sum(len(batch["number"]) for batch in batches) == COUNT


@pytest.mark.parametrize("rank", [0, 1])
def test_in_buckets_of_random_scales(coco, rank):
    """Where images differ in size still, the smaller are centred on padding."""
    view = hr.RandomScale(short_sides=(40, 48, 56), long_max=90, flip=0.5, fill=255)
    buckets = hr.Buckets(by="aspect", count=2)
    given = {"batch_size": 4, "shuffle": True, "output": "numpy", "rank": rank, "world_size": 2}
    batches = list(hr.Loader(coco, fields(), view=view, buckets=buckets, **given))
    assert sum(map(assert_over_images, batches)) > 10
    assert len({batch["image"].shape[2:] for batch in batches}) > 2


def other_points(sample, rng):
    """Leaves the boxes, and gives back other points."""
    keep = sample["points"][: 1 + int(rng.integers(2))]
    return sample | {"points": keep, "count": len(keep)}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("output", ["torch", "numpy"])
@pytest.mark.parametrize("map_workers", [0, 2])
def test_what_map_returns_stays_a_list(coco, output, map_workers):
    given = {"view": VIEWS["random crops"], "batch_size": 8, "output": output}
    plain = list(hr.Loader(coco, fields(), **given))
    mapped = list(hr.Loader(coco, fields(), **given, map=other_points, map_workers=map_workers))
    for before, after in zip(plain, mapped, strict=True):
        assert [len(each) for each in after["points"]] == after["count"].tolist()
        for name in ("boxes", "boxes_area", "points"):
            assert isinstance(after[name], list)
            assert type(after[name][0]) is type(before[name][0])
            for mine, theirs in zip(after[name], before[name], strict=True):
                np.testing.assert_array_equal(mine, theirs[: len(mine)])


def test_an_empty_part(coco):
    """Of nine samples in global batches of eight, one rank has none in the last."""
    given = {"view": VIEWS["whole"], "batch_size": 4, "world_size": 2}
    *_, last = hr.Loader(coco[:9], fields(), rank=0, **given)
    *_, other = hr.Loader(coco[:9], fields(), rank=1, **given)
    empty, one = sorted((last, other), key=lambda batch: len(batch["number"]))
    assert assert_over_images(one) == len(points_data.instances_of(8))
    assert empty["boxes"] == empty["points"] == empty["boxes_area"] == []


def test_without_a_view(coco):
    one = next(number for number in range(COUNT) if len(points_data.instances_of(number)) == 3)
    batch = next(iter(hr.Loader(coco[one : one + 1], fields(), batch_size=1, output="numpy")))
    expected = [[x, y, x + w, y + h] for (x, y, w, h), _ in points_data.instances_of(one)]
    np.testing.assert_array_equal(batch["boxes"][0], expected)


# --- what lists may be ---


def manifest(root, rows):
    """Images of 30x20 pixels beside what the rows say."""
    for number in range(len(rows)):
        (root / f"{number}.jpg").write_bytes(core_images.jpeg(core_images.photograph(20, 30, number)))
    path = root / "list.jsonl"
    path.write_text("\n".join(json.dumps({"image": f"{at}.jpg"} | row) for at, row in enumerate(rows)))
    return hr.open(path)


def first(dataset, **named):
    return next(iter(hr.Loader(dataset, {"image": hr.Image(), **named}, batch_size=len(dataset), output="numpy")))


FORMS = {
    "nested": [[1, 2, 5, 6], [3, 4, 7, 9]],
    "in a row": [1, 2, 5, 6, 3, 4, 7, 9],
}


@pytest.mark.parametrize("form", FORMS)
def test_boxes_of_a_manifest(tmp_path, form):
    dataset = manifest(tmp_path, [{"b": FORMS[form], "name": ["x", "y"]}, {"b": [], "name": []}, {"name": []}])
    batch = first(dataset, b=hr.Boxes(beside=["name"]))
    assert [each.tolist() for each in batch["b"]] == [[[1, 2, 5, 6], [3, 4, 7, 9]], [], []]
    assert [each.shape for each in batch["b"]] == [(2, 4), (0, 4), (0, 4)]
    assert batch["b_name"] == [["x", "y"], [], []]


def test_forms_of_a_box(tmp_path):
    dataset = manifest(tmp_path, [{"xyxy": [[1, 2, 5, 10]], "xywh": [[1, 2, 4, 8]], "cxcywh": [[3, 6, 4, 8]]}])
    batch = first(dataset, **{name: hr.Boxes(format=name) for name in ("xyxy", "xywh", "cxcywh")})
    assert [batch[name][0].tolist() for name in ("xyxy", "xywh", "cxcywh")] == [[[1, 2, 5, 10]]] * 3


@pytest.mark.parametrize("form", [[[[1, 2], [3, 4]]], [[[1, 2, 2], [3, 4, 2]]], [[1, 2, 2, 3, 4, 2]]], ids=str)
def test_forms_of_points(tmp_path, form):
    batch = first(manifest(tmp_path, [{"p": form}, {"p": []}]), p=hr.Keypoints())
    assert batch["p"][0].tolist() == [[[1, 2, 2], [3, 4, 2]]]
    assert batch["p"][1].shape == (0, 2, 3)


def test_a_selection_has_its_own_boxes(coco):
    part = coco.select([5, 2, 9])
    assert assert_over_images(next(iter(hr.Loader(part, fields(), view=VIEWS["whole"], batch_size=3)))) == 4


def test_lists_on_end_are_the_lists(coco):
    ids = np.array([7, 0, 7, 3, 1])
    for name in ("bbox", "keypoints"):
        column = coco.columns[name]
        items, counts = column.take_joined(ids)
        lists = column.take(ids)
        assert counts.tolist() == [len(each) for each in lists] == [3, 0, 3, 3, 1]
        assert [list(each) for each in items] == [list(item) for each in lists for item in each]


@pytest.mark.parametrize("offsets", [[0, 4], [2, 1], [1, 2**63]])
def test_lists_out_of_a_damaged_index(offsets):
    column = ListColumn(np.array(offsets, np.uint64), np.arange(3.0))
    for take in (column.take, column.take_joined):
        with pytest.raises(ChangedError, match=r"expected a list within 3 items.*Remove it, and open again"):
            take(np.array([0]))


# --- annotations that are wrong ---

OUTSIDE = {
    "clipped": ([-5, -5, 10, 50], [[0, 0, 10, 20]]),
    "outside": ([40, 0, 50, 10], []),
    "reversed": ([10, 10, 5, 15], []),
    "no area": ([10, 10, 10, 15], []),
    "below the smallest side": ([10, 10, 10.9, 15], []),
}


@pytest.mark.parametrize("case", OUTSIDE)
def test_boxes_that_are_clipped_or_dropped(tmp_path, case):
    box, expected = OUTSIDE[case]
    batch = first(manifest(tmp_path, [{"b": [box], "n": [7]}]), b=hr.Boxes(beside=("n",)))
    assert batch["b"][0].tolist() == expected
    assert batch["b_n"][0].tolist() == [7] * len(expected)


def test_little_of_a_box_is_left(coco, tmp_path):
    dataset = manifest(tmp_path, [{"b": [[0, 0, 10, 20], [0, 0, 20, 20]]}])  # of which the crop shows 5 and 15 columns
    options = {"view": hr.CenterCrop(20), "batch_size": 1, "output": "numpy"}
    for share, count in ((0.5, 2), (0.51, 1), (0.76, 0)):
        loader = hr.Loader(dataset, {"image": hr.Image(), "b": hr.Boxes(min_visible=share)}, **options)
        assert len(next(iter(loader))["b"][0]) == count


BAD_LISTS = {
    "no number": ({"b": [[1, 2, 3, None]]}, r"expected finite numbers, got the box \[1\.0, 2\.0, 3\.0, nan\]"),
    "three numbers": ({"b": [[1, 2, 3]]}, r"expected lists of 4 numbers a box, got '\[\[1,2,3\]\]'"),
    "no numbers": ({"b": [["x", "y", "z", "w"]]}, "expected lists of 4 numbers a box"),
    "of unequal lengths": ({"b": [[1, 2, 3, 4], [1]]}, "expected lists of 4 numbers a box"),
}


@pytest.mark.parametrize("case", BAD_LISTS)
def test_lists_of_another_form(tmp_path, case):
    row, says = BAD_LISTS[case]
    with pytest.raises(DatasetError, match=rf"field 'b', column 'b' of sample '0\.jpg': {says}.*leave the sample out"):
        first(manifest(tmp_path, [row]), b=hr.Boxes())


def test_a_box_that_is_not_finite(tmp_path):
    """Which JSON cannot say; a column of floats can."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    (tmp_path / "0.jpg").write_bytes(core_images.jpeg(core_images.photograph(20, 30)))
    table = pa.table({"image": ["0.jpg"], "b": pa.array([[1.0, 2.0, 3.0, float("nan")]])})
    pq.write_table(table, tmp_path / "list.parquet")
    with pytest.raises(DatasetError, match=r"expected finite numbers, got the box \[1\.0, 2\.0, 3\.0, nan\]"):
        first(hr.open(tmp_path / "list.parquet"), b=hr.Boxes())


def test_lists_of_another_length_beside(tmp_path):
    dataset = manifest(tmp_path, [{"b": [[1, 2, 3, 4]], "n": [1]}, {"b": [[1, 2, 3, 4]], "n": [1, 2]}])
    with pytest.raises(
        DatasetError, match=r"sample '1\.jpg': expected an item of column 'n' for each of 1 boxes, got 2"
    ):
        first(dataset, b=hr.Boxes(beside=("n",)))


def test_points_of_other_boxes(tmp_path):
    dataset = manifest(tmp_path, [{"b": [[1, 2, 3, 4]], "p": [[1, 2, 2]]}, {"b": [[1, 2, 3, 4]], "p": []}])
    with pytest.raises(DatasetError, match=r"sample '1\.jpg': expected points of each of 1 boxes of field 'b', got 0"):
        first(dataset, b=hr.Boxes(), p=hr.Keypoints(of="b"))


def test_points_of_another_number(tmp_path):
    dataset = manifest(tmp_path, [{"p": [[1, 2, 2]]}, {"p": [[1, 2, 2, 3, 4, 2]]}])
    with pytest.raises(
        DatasetError, match=r"sample '1\.jpg': expected lists of \[1, 3\], \[1, 2\] or 3 numbers an instance"
    ):
        first(dataset, p=hr.Keypoints())


def test_a_point_that_is_not_finite_is_not_labelled():
    row = core_images.view_row((0, 0, 8, 8), (0, 0, 8, 8), (8, 8))
    points = np.array([[[np.nan, 2.0, 2], [2.0, np.inf, 2], [1.0, 1.0, np.nan], [1.0, 1.0, 1]]])
    seen = points_on_output(points, BatchViews(row, np.array([[8, 8]], np.int32), np.ones(1, int)), NO_PAIRS)
    assert seen[0].tolist() == [[0, 0, 0]] * 3 + [[1, 1, 1]]


BAD_FIELDS = {
    "no image": ({"b": hr.Boxes(source="bbox")}, "field 'b': expected an image field with it"),
    "no such column": ({"b": hr.Boxes()}, "column 'b': expected a column of the dataset, got 'b'; it has image, "),
    "no list": ({"b": hr.Boxes(source="image_id")}, "expected a column of lists, got 'image_id', one of value"),
    "no JSON": ({"b": hr.Boxes(source="image")}, "expected lists of 4 numbers a box, got '000.png'"),
    "no boxes": ({"b": hr.Boxes(source="area")}, "expected lists of 4 numbers a box"),
    "beside what": (
        {"b": hr.Boxes(source="bbox", beside=("image_id",))},
        "field 'b': beside: expected a column of lists, got 'image_id', one of value",
    ),
    "beside twice": (
        {"b": hr.Boxes(source="bbox", beside=("area", "area"))},
        "expected beside= to give new names, got 'b_area' twice",
    ),
    "of what": (
        {"b": hr.Boxes(source="bbox"), "p": hr.Keypoints(source="keypoints", of="boxes")},
        r"field 'p': expected of= to name a field of Boxes, one of \['b'\], got 'boxes'",
    ),
    "pairs of what": (
        {"p": hr.Keypoints(source="keypoints", flip_pairs=[(0, 4)])},
        "field 'p': expected flip_pairs of points 0 to 3, got 4",
    ),
    "points of boxes": ({"p": hr.Keypoints(source="bbox")}, r"expected lists of \[K, 3\].*got items of \(4,\)"),
}


@pytest.mark.parametrize("case", BAD_FIELDS)
def test_fields_that_do_not_fit_the_dataset(coco, case):
    given, says = BAD_FIELDS[case]
    given = given if case == "no image" else {"image": hr.Image(), **given}
    with pytest.raises((UsageError, DatasetError), match=says):
        hr.Loader(coco, given, batch_size=4)


BAD_ARGUMENTS = {
    "format": (lambda: hr.Boxes(format="yxyx"), "expected format to be one of"),
    "min_size": (lambda: hr.Boxes(min_size=-1), "expected min_size to be a number of pixels of at least 0"),
    "min_visible": (lambda: hr.Boxes(min_visible=1.1), "expected min_visible to be a share from 0 to 1"),
    "beside": (lambda: hr.Boxes(beside="label"), r"expected beside to be names of columns, such as \('label',\)"),
    "flip_pairs": (lambda: hr.Keypoints(flip_pairs=[(1,)]), r"expected flip_pairs to be pairs of indices"),
    "a point twice": (lambda: hr.Keypoints(flip_pairs=[(0, 1), (1, 2)]), "to name each point once at most"),
    "offset": (lambda: hr.Keypoints(offset=float("nan")), "expected offset to be a finite number of pixels"),
}


@pytest.mark.parametrize("case", BAD_ARGUMENTS)
def test_arguments_that_are_wrong(case):
    make, says = BAD_ARGUMENTS[case]
    with pytest.raises(UsageError, match=says):
        make()
