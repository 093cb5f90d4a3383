"""Geometric augmentations of a sample: every field of it moves alike, and what comes from outside is padding."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from dense_data import npy, palette_png
from loader_data import encode
from PIL import Image
from twin import augment_pixels as twin

import headrace as hr
from headrace import _core
from headrace.augment import compile_augment
from headrace.data import Dataset, ListColumn
from headrace.errors import UsageError

COUNT, WIDTH, HEIGHT, BLOCK = 20, 57, 49, 9
FILL, IGNORE, INVALID = 9, 77, -1.0
AFFINE = hr.RandomAffine(180, translate=(0.2, 0.2), scale=(0.6, 1.6), shear=(-20, 20, -20, 20), fill=FILL)
CHAINS = {
    "affine": [AFFINE],
    "rotation and shear": [hr.RandomRotation(40, fill=FILL), hr.RandomAffine(0, shear=30, fill=FILL)],
    "perspective": [hr.RandomPerspective(0.6, p=1.0, fill=FILL)],
    "elastic": [hr.ElasticTransform(80.0, 6.0, fill=FILL)],
    "random ones": [
        hr.RandomApply([hr.ElasticTransform(40.0, 5.0, fill=FILL)], p=0.5),
        hr.RandomChoice([hr.RandomAffine(0, translate=(0.3, 0.3), fill=FILL), hr.RandomPerspective(0.3, fill=FILL)]),
    ],
}
VIEWS = {"whole": None, "padded": hr.CenterCrop((HEIGHT + 8, WIDTH - 6)), "flipped": hr.RandomHorizontalFlip(0.5)}


@pytest.fixture(scope="module")
def data():
    """Each sample has one marked block, which its box, its point and its outline tell of."""
    rng = np.random.default_rng(3)
    columns = {name: [] for name in ("rgb", "mask", "depth", "normals")}
    boxes, points, outlines = [], [], []
    for _ in range(COUNT):
        x, y = int(rng.integers(0, WIDTH - BLOCK)), int(rng.integers(0, HEIGHT - BLOCK))
        marked = np.zeros((HEIGHT, WIDTH), bool)
        marked[y : y + BLOCK, x : x + BLOCK] = True
        normals = np.where(marked[:, :, None], np.float32([0.6, 0, 0.8]), np.float32([0, 0, -1])).astype(np.float32)
        columns["rgb"].append(encode(Image.fromarray(np.where(marked, 255, 40).astype(np.uint8)), "PNG"))
        columns["mask"].append(palette_png(np.where(marked, 200, 3).astype(np.uint8)))
        columns["depth"].append(encode(Image.fromarray(np.where(marked, 5000, 700).astype(np.uint16)), "PNG"))
        columns["normals"].append(npy(normals))
        corners = [x, y, x + BLOCK, y + BLOCK]
        boxes.append(corners)
        points.append([x + BLOCK / 2, y + BLOCK / 2, 2])
        a, b, c, d = corners
        outlines.append([json.dumps([[a, b, c, b, c, d, a, d]])])
    found = hr.open(columns)
    found = found.with_column("box", boxes).with_column("outline", outlines)
    column = ListColumn(np.arange(COUNT + 1, dtype=np.uint64), np.array(points, np.float32)[:, None])
    return Dataset(replace(found.table, columns={**found.columns, "point": column}))


def fields(**given):
    return {
        "rgb": hr.Image(mode="L"),
        "mask": hr.Mask(ignore=IGNORE, dtype="int16"),
        "depth": hr.Depth(invalid=INVALID),
        "normals": hr.Normals(**given),
        "box": hr.Boxes(min_size=0),
        "point": hr.Keypoints(),
        "outline": hr.InstanceMasks(),
    }


def nearest(augmentation):
    """The same augmentation, of nearest pixels in images too."""
    if hasattr(augmentation, "transforms"):
        return replace(augmentation, transforms=[nearest(each) for each in augmentation.transforms])
    return replace(augmentation, interpolation="nearest")


def only_batch(data, taken=None, **given):
    options = {"batch_size": len(data), "seed": 4, "output": "numpy", "threads": 1, "on_error": "raise"}
    (batch,) = hr.Loader(data, taken or fields(), **options | given)
    return batch


@pytest.mark.one_in(4)
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("chain", CHAINS)
def test_a_marked_block_moves_in_every_field(data, chain, view):
    batch = only_batch(data, view=VIEWS[view], augment=[nearest(each) for each in CHAINS[chain]])
    rgb, depth, mask = batch["rgb"][:, 0], batch["depth"][:, 0], batch["mask"]
    landed, outside = rgb == 255, (rgb == FILL) | (rgb == 0)
    assert landed.any((1, 2)).sum() > COUNT // 2
    assert outside.any()
    assert set(np.unique(rgb)) <= {0, FILL, 40, 255}
    np.testing.assert_array_equal(mask == 200, landed)
    np.testing.assert_array_equal(mask == IGNORE, outside)
    np.testing.assert_array_equal(depth == 5000, landed)
    np.testing.assert_array_equal(depth == INVALID, outside)
    np.testing.assert_array_equal(batch["depth_valid"][:, 0], ~outside)
    normals = batch["normals"]
    np.testing.assert_allclose(normals[:, 2], np.where(outside, 0, np.where(landed, 0.8, -1)), atol=1e-6)
    np.testing.assert_allclose(np.hypot(normals[:, 0], normals[:, 1]), np.where(landed, 0.6, 0), atol=1e-6)
    bends = any(isinstance(each, hr.ElasticTransform | hr.RandomApply) for each in CHAINS[chain])
    for row in range(COUNT):
        assert_followed(batch, row, landed[row], near=2.5 if bends else 1e-3)


def assert_followed(batch, row, landed, *, near):
    """Boxes hold all that landed (those of displacements nearly so), points lie in it, outlines are it."""
    y, x = np.nonzero(landed)
    boxes, points, outlines = batch["box"][row], batch["point"][row][0, 0], batch["outline"][row]
    np.testing.assert_array_equal(outlines[0] == 1, landed)
    if len(x):
        left, top, right, bottom = boxes[0]
        assert left <= x.min() + 0.5 + near
        assert top <= y.min() + 0.5 + near
        assert right >= x.max() + 0.5 - near
        assert bottom >= y.max() + 0.5 - near
    if points[2]:
        assert landed[int(points[1]), int(points[0])]
    elif len(x):  # the middle is outside, and so is part of the block
        height, width = landed.shape
        assert min(x.min(), y.min(), width - 1 - x.max(), height - 1 - y.max()) <= 0 or landed.sum() < BLOCK


def test_boxes_are_cut_and_filtered_by_what_is_left(data):
    shift = [hr.RandomAffine(0, translate=(0.5, 0.5))]
    every, some = (
        only_batch(data, {"rgb": hr.Image(), "box": hr.Boxes(min_size=0, min_visible=share)}, augment=shift)["box"]
        for share in (0.0, 0.6)
    )
    sides = [tuple(box[0, 2:] - box[0, :2]) if len(box) else (0, 0) for box in every]
    assert max(max(side) for side in sides) <= BLOCK
    for (across, down), kept in zip(sides, some, strict=True):
        assert len(kept) == (across * down >= 0.6 * BLOCK * BLOCK)
    assert 0 < sum(map(len, some)) < COUNT


def test_keypoints_and_boxes_are_those_of_the_drawn_map(data):
    """Against the inverse of the drawn 3 x 3, in numpy."""
    chain = [hr.RandomAffine(30, scale=(0.8, 1.2), shear=10)]
    batch = only_batch(data, {"rgb": hr.Image(), "box": hr.Boxes(min_size=0), "point": hr.Keypoints()}, augment=chain)
    loader = hr.Loader(data, {"rgb": hr.Image()}, augment=chain, batch_size=COUNT, seed=4, output="numpy")
    key = loader._feed.recipe.plan.key(0)
    native = compile_augment("augment", chain).native
    for row in range(COUNT):
        ((_, args),) = _core.draw_chain(native, key, row, 0, width=WIDTH, height=HEIGHT)
        forward = np.linalg.inv(np.array(args[4:13]).reshape(3, 3))
        x, y, x_1, y_1 = data.columns["box"].take(np.array([row]))[0]
        places = np.array([[x, y, 1], [x_1, y, 1], [x_1, y_1, 1], [x, y_1, 1]]) @ forward.T
        low, high = places[:, :2].min(0), places[:, :2].max(0)
        if (low >= 0).all() and (high <= [WIDTH, HEIGHT]).all():
            np.testing.assert_allclose(batch["box"][row][0], [*low, *high], atol=1e-3)
        point = forward @ [(x + x_1) / 2, (y + y_1) / 2, 1]
        if batch["point"][row][0, 0, 2]:
            np.testing.assert_allclose(batch["point"][row][0, 0, :2], point[:2], atol=1e-3)


@pytest.mark.parametrize("y", ["down", "up"])
def test_normals_are_turned_with_the_image(data, y):
    """By a quarter: what points to the right points down in the image after a clockwise turn."""
    quarter = [hr.RandomAffine((90, 90), interpolation="nearest")]
    for dtype in ("float32", "float16", "bfloat16"):
        taken = {"rgb": hr.Image(mode="L"), "normals": hr.Normals(y=y, dtype=dtype)}
        batch = only_batch(data, taken, augment=quarter, output="torch")
        landed = batch["rgb"][:, 0].numpy() == 255
        across, down, out = (batch["normals"][:, axis].float().numpy()[landed] for axis in range(3))
        np.testing.assert_allclose(across, 0, atol=1e-3)
        np.testing.assert_allclose(down, 0.6 if y == "down" else -0.6, atol=3e-3)
        np.testing.assert_allclose(out, 0.8, atol=3e-3)


def test_a_shear_turns_normals_by_the_rotation_nearest_to_it(data):
    shear = [hr.RandomAffine(0, shear=(30, 30, 0, 0), interpolation="nearest")]
    batch = only_batch(data, {"rgb": hr.Image(mode="L"), "normals": hr.Normals()}, augment=shear)
    left, _, right = np.linalg.svd(np.linalg.inv(twin.affine_map((1, 1), 0, (0, 0), 1, (30, 0)))[:2, :2])
    landed = batch["rgb"][:, 0] == 255
    expected = left @ right @ [0.6, 0]
    for axis in (0, 1):
        np.testing.assert_allclose(batch["normals"][:, axis][landed], expected[axis], atol=1e-6)


def assert_alike(one, other):
    for name, values in one.items():
        pairs = [(values, other[name])] if isinstance(values, np.ndarray) else zip(values, other[name], strict=True)
        assert all(np.array_equal(first, second) for first, second in pairs), name


def test_every_level_makes_the_same(data):
    chain = [*CHAINS["affine"], *CHAINS["perspective"], *CHAINS["elastic"]]
    found = [only_batch(data, augment=chain, instruction_set=level) for level in _core.levels()]
    for other in found[1:]:
        assert_alike(found[0], other)


def test_the_cache_holds_what_comes_before_the_draw(data):
    given = {"view": hr.Resize((24, 31), flip=0.5), "augment": CHAINS["affine"], "batch_size": 5, "seed": 1}
    given |= {"output": "numpy", "shuffle": True}
    plain, cached = hr.Loader(data, fields(), **given), hr.Loader(data, fields(), cache="ram:20MB", **given)
    for _ in range(2):
        for one, other in zip(plain, cached, strict=True):
            assert_alike(one, other)


def test_an_image_of_its_own_augmentation_moves_alone(data):
    taken = {"rgb": hr.Image(mode="L", augment=hr.RandomRotation((90, 90))), "mask": hr.Mask()}
    moved, still = only_batch(data, taken), only_batch(data, {"rgb": hr.Image(mode="L"), "mask": hr.Mask()})
    np.testing.assert_array_equal(moved["mask"], still["mask"])
    assert not np.array_equal(moved["rgb"], still["rgb"])


def test_masks_without_images_move_too(data):
    (one,) = hr.Loader(data, {"mask": hr.Mask(ignore=IGNORE)}, augment=AFFINE, batch_size=COUNT, output="numpy")
    assert (one["mask"] == IGNORE).any()
    with pytest.raises(UsageError, match="augment: expected a field of images, got none"):
        hr.Loader(data, {"mask": hr.Mask()}, augment=hr.ColorJitter(0.4), batch_size=2)


def test_wide_images_are_refused_before_anything_is_read(data):
    with pytest.raises(UsageError, match="augment: expected images of 8 bits a channel, got field 'rgb' of more"):
        hr.Loader(data, {"rgb": hr.Image(dtype="uint16")}, augment=AFFINE, batch_size=2)
