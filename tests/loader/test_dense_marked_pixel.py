"""Property: whatever the view, a marked pixel lands in the same places in every field that the view cuts or moves."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from dense_data import npy, one_sample, palette_png
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from loader_data import encode
from PIL import Image
from points_data import assert_box

import headrace as hr
from headrace.data import Dataset, ListColumn

sides = st.integers(1, 40)
pairs = st.tuples(sides, sides)
flips = st.sampled_from([0.0, 0.5, 1.0])

RESIZING = st.one_of(
    st.builds(hr.Resize, pairs, flip=flips),
    st.builds(hr.Resize, sides, flip=flips),
    st.builds(hr.RandomResizedCrop, pairs, flip=flips),
)
PADDING = st.one_of(
    st.builds(hr.CenterCrop, pairs, flip=flips),
    st.builds(hr.RandomCrop, pairs, padding=st.integers(0, 5), pad_if_needed=st.just(True), flip=flips),
)
LAST = st.one_of(PADDING, st.builds(hr.Letterbox, pairs, flip=flips), st.builds(hr.RandomVerticalFlip, flips), RESIZING)
TURNED = st.tuples(st.just(hr.RandomQuarterTurn()), RESIZING, PADDING).map(list) | st.builds(
    lambda side: [hr.RandomCrop(side, pad_if_needed=True), hr.RandomQuarterTurn()], sides
)
VIEWS = st.one_of(
    TURNED, st.lists(RESIZING, max_size=2).flatmap(lambda first: LAST.map(lambda last: [*first, last])), st.just([])
)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(view=VIEWS, height=sides, width=sides, data=st.data(), seed=st.integers(0, 1 << 32), doubled=st.booleans())
def test_a_marked_pixel_lands_in_the_same_places(tmp_path, view, height, width, data, seed, doubled):
    """Also where the mask has twice the resolution. Everything else is what the source holds, or padding."""
    y, x = data.draw(st.integers(0, height - 1)), data.draw(st.integers(0, width - 1))
    marked = np.zeros((height, width), bool)
    marked[y, x] = True
    rng = np.random.default_rng(seed)
    others = rng.integers(0, 9, (height, width)).astype(np.uint8)
    mask = np.where(marked, 200, others).astype(np.uint8)
    mask = mask.repeat(2, 0).repeat(2, 1) if doubled else mask
    normals = np.where(marked[:, :, None], np.float32([0.25, 0.5, 1]), np.float32([0.5, -0.25, -1])).astype(np.float32)
    dataset = one_sample(
        tmp_path,
        rgb=encode(Image.fromarray(np.where(marked, 255, 40).astype(np.uint8)), "PNG"),
        mask=palette_png(mask),
        depth=encode(Image.fromarray(np.where(marked, 5000, 700).astype(np.uint16)), "PNG"),
        normals=npy(normals),
    )
    dataset = with_places(dataset, x, y)
    fields = {
        "rgb": hr.Image(mode="L", filter="nearest"),
        "box": hr.Boxes(min_size=0),
        "point": hr.Keypoints(),
        "mask": hr.Mask(ignore=77),
        "depth": hr.Depth(),
        "normals": hr.Normals(),
        "view": hr.Geometry(),
    }
    (batch,) = hr.Loader(
        dataset, fields, view=view, batch_size=1, seed=seed, output="numpy", threads=1, on_error="raise"
    )
    rgb, depth, found = batch["rgb"][0, 0], batch["depth"][0, 0], batch["mask"][0]
    landed, padded = rgb == 255, rgb == 0
    np.testing.assert_array_equal(found == 200, landed)
    np.testing.assert_array_equal(found == 77, padded)
    assert set(np.unique(found).tolist()) <= {*np.unique(mask).tolist(), 77}
    np.testing.assert_array_equal(depth == 5000, landed)
    np.testing.assert_array_equal(depth == 0, padded)
    np.testing.assert_array_equal(batch["depth_valid"][0, 0], ~padded)
    of_y, of_x = (0, 1) if batch["view"]["transposed"][0] else (1, 0)
    np.testing.assert_array_equal(np.abs(batch["normals"][0, of_y]) == 0.5, landed)
    np.testing.assert_array_equal(batch["normals"][0, 2], np.where(padded, 0, np.where(landed, 1, -1)))
    signs = np.unique(np.sign(batch["normals"][0, of_x][~padded]))
    assert len(signs) == (not padded.all()), "x has one sign in the whole picture"
    (boxes,), ((((*middle, visibility),),),) = batch["box"], batch["point"]
    if len(boxes):
        assert_box(boxes[0], landed)
    assert len(boxes) or not landed.any()
    if visibility:
        assert (boxes[0, :2] <= middle).all()
        assert (boxes[0, 2:] >= middle).all()


def with_places(dataset: Dataset, x: int, y: int) -> Dataset:
    """The one sample with a box around that pixel, and its middle."""
    one = np.array([0, 1], np.uint64)
    places = {
        "box": ListColumn(one, np.array([[x, y, x + 1, y + 1]], np.float32)),
        "point": ListColumn(one, np.array([[[x + 0.5, y + 0.5, 2]]], np.float32)),
    }
    return Dataset(replace(dataset.table, columns={**dataset.columns, **places}))
