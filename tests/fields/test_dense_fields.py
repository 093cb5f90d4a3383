"""What masks, depth and normals hold in a batch, against Pillow's decode and a cut by numpy."""

from __future__ import annotations

import io

import numpy as np
import pytest
import torch
from dense_data import COLUMNS, COUNT, npy, one_sample, scene, size_of, write_tar
from loader_data import encode
from PIL import Image
from twin import dense

import headrace as hr
from headrace import _core
from headrace.errors import UsageError
from headrace.plan import UniformPlan
from headrace.views import compile_view

SEED, BATCH = 3, 8

VIEWS = {
    "Resize": hr.Resize((30, 36)),
    "Resize, flip": hr.Resize((61, 70), flip=0.5),
    "RandomResizedCrop": hr.RandomResizedCrop(32, flip=0.5),
    "RandomCrop": hr.RandomCrop((64, 72), padding=4, pad_if_needed=True, flip=0.5),
    "Letterbox": hr.Letterbox((50, 50), flip=0.5),
    "turned": [hr.Letterbox((50, 50), flip=0.5), hr.RandomQuarterTurn()],
    "turned first": [hr.RandomQuarterTurn(), hr.RandomCrop((64, 72), pad_if_needed=True, flip=0.5)],
    "both flips": [hr.Resize((40, 40)), hr.RandomHorizontalFlip(0.5), hr.RandomVerticalFlip(0.5)],
}

VIEW_COLUMNS = [column.name.lower() for column in _core.ViewColumn]


@pytest.fixture(scope="module")
def scenes(tmp_path_factory):
    return write_tar(tmp_path_factory.mktemp("dense"))


@pytest.fixture(params=VIEWS.values(), ids=VIEWS)
def view(request):
    return request.param


def load(dataset, fields, view, **options):
    given = {"batch_size": BATCH, "shuffle": True, "seed": SEED, "output": "numpy", "threads": 2, "on_error": "raise"}
    return hr.Loader(dataset, fields, view=view, **(given | options))


def cut(view, step):
    """(scene, view by name) of each sample of a batch, the sizes by what was written."""
    plan = UniformPlan(length=COUNT, batch_size=BATCH, shuffle=True, seed=SEED)
    batch = plan.batch(0, step)
    heights, widths = (np.array(side, np.int32) for side in zip(*map(size_of, batch.samples.tolist()), strict=True))
    rows = _core.sample_views(compile_view(view).ops, plan.key(0), batch.samples, batch.passes, 0, widths, heights)
    views = [dict(zip(VIEW_COLUMNS, row, strict=True)) for row in rows]
    return list(zip(map(scene, batch.samples.tolist()), views, strict=True))


def check(scenes, fields, view, name, expected, **options):
    for step, batch in enumerate(load(scenes, fields, view, **options)):
        for row, (found, cut_by) in enumerate(cut(view, step)):
            np.testing.assert_array_equal(batch[name][row], expected(found, cut_by))


def test_a_mask_holds_palette_indices_and_ignore(scenes, view):
    check(scenes, {"mask": hr.Mask()}, view, "mask", lambda s, v: dense.nearest(s.mask, v, 255))


def test_a_mapping_changes_the_values_that_it_names(scenes, view):
    def expected(found, cut_by):
        mask = found.mask.astype(np.int64)
        for old, new in ((0, -100), (3, 1), (255, -100)):
            mask[found.mask == old] = new
        return dense.nearest(mask, cut_by, -100)

    field = hr.Mask(ignore=-100, remap={0: -100, 3: 1, 255: -100}, dtype="int64")
    check(scenes, {"mask": field}, view, "mask", expected)


def test_a_sequence_has_a_new_value_for_each(scenes, view):
    table = [(7 * value) % 256 for value in range(256)]
    check(
        scenes, {"mask": hr.Mask(remap=table)}, view, "mask",
        lambda s, v: dense.nearest(np.array(table, np.uint8)[s.mask], v, 255),
    )  # fmt: skip


@pytest.mark.parametrize("dtype", ["uint8", "int16", "int32", "int64"])
def test_masks_of_every_type(scenes, dtype):
    (batch, *_) = load(scenes, {"mask": hr.Mask(dtype=dtype)}, hr.Letterbox((50, 50)), output="torch")
    assert batch["mask"].dtype == getattr(torch, dtype)
    assert tuple(batch["mask"].shape) == (BATCH, 50, 50)
    for row, (found, cut_by) in enumerate(cut(hr.Letterbox((50, 50)), 0)):
        np.testing.assert_array_equal(batch["mask"][row].numpy(), dense.nearest(found.mask.astype(dtype), cut_by, 255))


def test_depth_in_metres(scenes, view):
    fields = {"depth": hr.Depth(1 / 1000)}
    check(scenes, fields, view, "depth", lambda s, v: dense.depth(s.depth, v, scale=1 / 1000)[0][None])
    check(scenes, fields, view, "depth_valid", lambda s, v: dense.depth(s.depth, v, scale=1 / 1000)[1][None])


def test_depth_between_near_and_far(scenes, view):
    options = {"scale": 1 / 1000, "invalid": 7, "near": 1.6, "far": 2.2}
    fields = {"depth": hr.Depth(**options)}
    check(scenes, fields, view, "depth", lambda s, v: dense.depth(s.depth, v, **options)[0][None])
    check(scenes, fields, view, "depth_valid", lambda s, v: dense.depth(s.depth, v, **options)[1][None])


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    "quantiles",
    [hr.Quantiles(), hr.Quantiles(0, 1, range=(0, 1)), hr.Quantiles(0.1, 0.5, range=(3, -2), clip=False)],
    ids=["marigold", "all", "falling, unclipped"],
)
def test_depth_normalised_by_its_own_quantiles(scenes, view, quantiles):
    """Of the whole map, whatever the view cuts from it; to the rounding of one float."""
    q = quantiles
    for step, batch in enumerate(load(scenes, {"depth": hr.Depth(1 / 1000, normalize=q)}, view)):
        for row, (found, cut_by) in enumerate(cut(view, step)):
            expected, valid = dense.depth(
                found.depth, cut_by, scale=1 / 1000, quantiles=(q.low, q.high), range=q.range, clip=q.clip
            )
            np.testing.assert_allclose(batch["depth"][row, 0], expected, rtol=2e-7, atol=3e-7)
            np.testing.assert_array_equal(batch["depth_valid"][row, 0], valid)


def test_quantiles_are_those_of_torch(tmp_path):
    """Of floats too, negative ones and those that are not numbers among them."""
    rng = np.random.default_rng(5)
    values = rng.normal(2, 3, (37, 53)).astype(np.float32)
    values[rng.random(values.shape) < 0.1] = np.nan
    values[0, :3] = np.inf, -np.inf, 0
    valid = np.isfinite(values) & (values != 0)
    low, high = torch.quantile(torch.from_numpy(values[valid]).double(), torch.tensor([0.02, 0.98]).double()).tolist()
    field = hr.Depth(normalize=hr.Quantiles(range=(0, 1), clip=False))
    (batch,) = load(one_sample(tmp_path, depth=npy(values)), {"depth": field}, None, batch_size=1)
    np.testing.assert_allclose(batch["depth"][0, 0][valid], (values[valid] - low) / (high - low), atol=1e-6)
    np.testing.assert_array_equal(batch["depth_valid"][0, 0], valid)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_halved_depth(scenes, dtype):
    whole, half = (
        next(iter(load(scenes, {"depth": hr.Depth(1 / 1000, dtype=kind)}, VIEWS["Letterbox"], output="torch")))
        for kind in ("float32", dtype)
    )
    assert torch.equal(whole["depth"].to(getattr(torch, dtype)), half["depth"])


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_depth_that_its_type_cannot_hold_is_not_valid(tmp_path, dtype):
    most = float(np.finfo(dtype).max)
    values = np.array([[1, most, np.inf, 1.1 * most], [-most, -1.1 * most, 2, 0]])
    (batch,) = load(one_sample(tmp_path, depth=npy(values)), {"depth": hr.Depth(dtype=dtype)}, None, batch_size=1)
    assert batch["depth_valid"][0, 0].tolist() == [[True, True, False, False], [True, False, True, False]]
    assert batch["depth"][0, 0].tolist() == [[1, most, 0, 0], [-most, 0, 2, 0]]


def test_what_is_invalid_is_known_again_in_a_file_of_floats(tmp_path):
    values = np.array([[1.5, -9999.9], [0.1, 0]], np.float32)
    for invalid, valid in ((-9999.9, [[True, False], [True, True]]), (0.1, [[True, True], [False, True]])):
        field = hr.Depth(invalid=invalid)
        (batch,) = load(one_sample(tmp_path, depth=npy(values)), {"depth": field}, None, batch_size=1)
        assert batch["depth_valid"][0, 0].tolist() == valid
        np.testing.assert_array_equal(batch["depth"][0, 0], values)


def test_depth_without_a_mask_of_validity(scenes):
    (batch, *_) = load(scenes, {"depth": hr.Depth(valid=False)}, VIEWS["Resize"])
    assert list(batch) == ["depth"]


@pytest.mark.parametrize("counts_first", [True, False])
def test_depth_fields_of_one_file_are_each_as_alone(scenes, view, counts_first):
    fields = {
        "linear": hr.Depth(0.001, source="depth", valid=False),
        "normalised": hr.Depth(source="depth", normalize=hr.Quantiles(0.1, 0.9)),
        "near": hr.Depth(0.001, source="depth", far=3.0),
        "exact": hr.Depth(0.001, source="depth", filter="nearest-exact"),
    }
    if counts_first:
        fields = dict(reversed(fields.items()))
    together = list(load(scenes, fields, view))
    for name in fields:
        for batch, alone in zip(together, load(scenes, {name: fields[name]}, view), strict=True):
            for part in alone:
                np.testing.assert_array_equal(batch[part], alone[part])


def test_a_flat_map_becomes_the_lower_end(tmp_path):
    flat = encode(Image.fromarray(np.full((9, 11), 700, np.uint16)), "PNG")
    (batch,) = load(one_sample(tmp_path, depth=flat), {"depth": hr.Depth(normalize=hr.Quantiles())}, None, batch_size=1)
    assert (batch["depth"] == -1).all()
    assert batch["depth_valid"].all()


def normals_of(values, cut_by):
    values = values[..., [1, 0, 2]] if cut_by["transposed"] else values
    values = dense.nearest(values, cut_by, 0) * np.array(
        [-1 if cut_by["hflip"] else 1, -1 if cut_by["vflip"] else 1, 1], np.float32
    )
    return values.transpose(2, 0, 1)


def test_normals_change_signs_under_flips(scenes, view):
    check(
        scenes, {"normals": hr.Normals()}, view, "normals",
        lambda s, v: normals_of((s.normals.astype(np.float32) - np.float32(127.5)) / np.float32(127.5), v),
    )  # fmt: skip


def test_normals_of_floats(tmp_path):
    values = np.random.default_rng(2).normal(size=(31, 45, 3)).astype(np.float32)
    view = [hr.Letterbox((40, 50)), hr.RandomHorizontalFlip(1.0), hr.RandomVerticalFlip(1.0)]
    dataset = one_sample(tmp_path, normals=npy(values))
    (batch,) = load(dataset, {"normals": hr.Normals()}, view, batch_size=1)
    plan = UniformPlan(length=1, batch_size=1, shuffle=True, seed=SEED)
    sizes = np.array([45], np.int32), np.array([31], np.int32)
    ids = np.zeros(1, np.int64), np.zeros(1, np.uint32)
    row = _core.sample_views(compile_view(view).ops, plan.key(0), *ids, 0, *sizes)[0]
    cut_by = dict(zip(VIEW_COLUMNS, row, strict=True))
    np.testing.assert_array_equal(batch["normals"][0], normals_of(values, cut_by))


@pytest.mark.parametrize("dtype", [np.float32, np.uint8])
def test_normals_whose_y_points_up_turn_like_those_whose_y_points_down(tmp_path, dtype):
    down = np.random.default_rng(2).integers(1, 255, (31, 31, 3))
    up = down * [1, -1, 1] + [0, 255 if dtype is np.uint8 else 0, 0]
    files = [
        encode(Image.fromarray(each.astype(dtype)), "PNG") if dtype is np.uint8 else npy(each.astype(dtype))
        for each in (down, up)
    ]
    dataset = one_sample(tmp_path, down=files[0], up=files[1])
    fields = {"down": hr.Normals(), "up": hr.Normals(y="up"), "view": hr.Geometry()}
    views = set()
    for seed in range(20):
        (batch,) = load(dataset, fields, [hr.RandomCrop(30, flip=0.5), hr.RandomQuarterTurn()], batch_size=1, seed=seed)
        np.testing.assert_array_equal(batch["up"][0], batch["down"][0] * np.float32([1, -1, 1])[:, None, None])
        views.add((*batch["view"]["flip"][0].tolist(), bool(batch["view"]["transposed"][0])))
    assert len(views) > 6


def test_a_nearest_image_is_cut_as_its_mask(scenes, view):
    check(
        scenes, {"rgb": hr.Image(filter="nearest")}, view, "rgb",
        lambda s, v: dense.nearest(s.rgb, v, 0).transpose(2, 0, 1),
    )  # fmt: skip


def test_all_fields_at_once_in_the_order_in_which_they_were_named(scenes, view):
    fields = {"depth": hr.Depth(), "rgb": hr.Image(), "normals": hr.Normals(), "mask": hr.Mask()}
    (batch, *_) = load(scenes, fields, view)
    assert list(batch) == ["depth", "depth_valid", "rgb", "normals", "mask"]
    for row, (found, cut_by) in enumerate(cut(view, 0)):
        np.testing.assert_array_equal(batch["mask"][row], dense.nearest(found.mask, cut_by, 255))
        np.testing.assert_array_equal(batch["depth"][row, 0], dense.nearest(found.depth.astype(np.float32), cut_by, 0))


def test_a_mask_of_another_resolution_takes_the_same_window(tmp_path):
    """Twice the size: the crop of the image, times two."""
    mask = np.random.default_rng(0).integers(0, 50, (80, 120)).astype(np.uint8)
    rgb = encode(Image.fromarray(mask[::2, ::2]), "PNG")
    dataset = one_sample(tmp_path, rgb=rgb, mask=encode(Image.fromarray(mask), "PNG"))
    fields = {"rgb": hr.Image(mode="L", filter="nearest"), "mask": hr.Mask()}
    (batch,) = load(dataset, fields, hr.CenterCrop((20, 30)), batch_size=1)
    np.testing.assert_array_equal(batch["rgb"][0, 0], mask[20:60:2, 30:90:2])
    np.testing.assert_array_equal(batch["mask"][0], mask[21:60:2, 31:90:2])  # centres fall on the second of two


def test_bytes_handed_out_are_what_the_fields_say(scenes):
    fields = {"rgb": hr.Image(), "depth": hr.Depth(), "mask": hr.Mask(), "normals": hr.Normals(dtype="float16")}
    (batch, *_) = load(scenes, fields, hr.Resize((10, 20)))
    assert {name: values.nbytes for name, values in batch.items()} == {
        "rgb": 3 * 200 * BATCH, "depth": 4 * 200 * BATCH, "depth_valid": 200 * BATCH, "mask": 200 * BATCH,
        "normals": 6 * 200 * BATCH,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: hr.Mask(ignore=256), "expected ignore to be an int from 0 to 255 for dtype='uint8', got 256"),
        (lambda: hr.Mask(remap={3: -1}), "expected remap to be an int from 0 to 255"),
        (lambda: hr.Mask(remap={-3: 1}), "expected remap to change values from 0 to 65535"),
        (lambda: hr.Mask(remap="12"), "expected remap to be a mapping or a sequence of ints, got str"),
        (lambda: hr.Mask(dtype="float32"), "expected dtype to be one of"),
        (lambda: hr.Depth(0), "expected scale to be a finite number above 0, got 0"),
        (lambda: hr.Depth(invalid=float("nan")), "NaN is never valid"),
        (lambda: hr.Depth(near=3, far=2), "expected near below far"),
        (lambda: hr.Depth(normalize=(0.02, 0.98)), "expected normalize to be None or Quantiles(low, high)"),
        (lambda: hr.Depth(dtype="uint8"), "expected dtype to be one of"),
        (lambda: hr.Quantiles(0.9, 0.1), "expected 0 <= low < high <= 1"),
        (lambda: hr.Quantiles(range=(0, float("inf"))), "expected range to be two finite numbers"),
        (lambda: hr.Normals(dtype="uint8"), "expected dtype to be one of"),
        (lambda: hr.Mask(dtype="int64", ignore=-1 << 63), "expected ignore to be an int from -9223372036854775807"),
        (lambda: hr.Depth(10**400), "expected scale to be a finite number above 0"),
        (lambda: hr.Depth(valid="no"), "Depth: expected valid to be True or False, got 'no'"),
        (
            lambda: hr.Depth(dtype="float16", normalize=hr.Quantiles(range=(0, 1e5))),
            "within what dtype='float16' holds",
        ),
        (lambda: hr.Depth(dtype="float16", invalid=65535), "expected invalid to be within what dtype='float16' holds"),
        (lambda: hr.Quantiles(range=(1, 1)), "expected range to be two different numbers"),
        (lambda: hr.Quantiles(clip=None), "Quantiles: expected clip to be True or False, got None"),
    ],
    ids=range(20),
)
def test_wrong_descriptions(make, text):
    with pytest.raises(UsageError) as error:
        make()
    assert text in str(error.value)


def test_a_field_may_not_have_the_name_of_a_mask_of_validity(scenes):
    with pytest.raises(UsageError, match="field 'depth_valid': expected a name of its own"):
        load(scenes, {"depth": hr.Depth(), "depth_valid": hr.Mask(source="mask")}, None)


def test_pictures_are_still_pillows(scenes):
    """The same tar, decoded by Pillow."""
    names = scenes.columns["rgb"]
    assert list(scenes.columns) == COLUMNS
    assert names.kind == "text"
    for index in range(3):
        pixels = np.asarray(Image.open(io.BytesIO(scenes.read("rgb", index))))
        np.testing.assert_array_equal(pixels, scene(index).rgb)
