"""What a batch holds, against a pipeline that shares no code with the core: Pillow's decode, crop and resize."""

from __future__ import annotations

import io
from dataclasses import replace

import cv2
import numpy as np
import pytest
from loader_data import COUNT, add_member, encode, encoded, label_of, photograph, write_folder, write_tar
from PIL import Image

import headrace as hr
from headrace import _core
from headrace.plan import UniformPlan
from headrace.tools.demo_dataset import natural_image
from headrace.views import compile_view

BATCH = 16
SEED = 9

VIEW_COLUMNS = [column.name.lower() for column in _core.ViewColumn]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return hr.open(write_folder(tmp_path_factory.mktemp("pixels") / "photos"))


@pytest.fixture(scope="module")
def tar(tmp_path_factory):
    return hr.open(write_tar(tmp_path_factory.mktemp("pixels") / "photos.tar"))


def load(dataset, fields, **options):
    given = {"batch_size": BATCH, "shuffle": True, "seed": SEED, "output": "numpy", "threads": 2, "on_error": "raise"}
    return hr.Loader(dataset, fields, **(given | options))


def image(**options):
    return hr.Image(dct_scaling=False, **options)


def planned(loader, step, epoch=0):
    return UniformPlan(length=len(loader.dataset), batch_size=BATCH, shuffle=True, seed=SEED).batch(epoch, step)


def views_of(view, plan, sizes):
    """One view a sample, as numbers named by `_core.ViewColumn`."""
    key = UniformPlan(length=COUNT, batch_size=BATCH, shuffle=True, seed=SEED).key(plan.epoch)
    widths, heights = (np.array(side, np.int32) for side in zip(*sizes, strict=True))
    rows = _core.sample_views(compile_view(view).ops, key, plan.samples, plan.passes, 0, widths, heights)
    return [dict(zip(VIEW_COLUMNS, row, strict=True)) for row in rows]


def pillow_view(picture, view, resample):
    """Crop, resize, pad, flip, by Pillow and numpy. Windows of whole pixels only."""
    box = tuple(view[name] for name in ("left", "top", "right", "bottom"))
    assert box == (view["x0"], view["y0"], view["x1"], view["y1"])
    inner = (int(view["inner_width"]), int(view["inner_height"]))
    pixels = np.asarray(picture.crop(box).resize(inner, resample))
    canvas = np.zeros((int(view["height"]), int(view["width"]), *pixels.shape[2:]), np.uint8)
    top, left = int(view["inner_y"]), int(view["inner_x"])
    canvas[top : top + inner[1], left : left + inner[0]] = pixels
    canvas = canvas[:, ::-1] if view["hflip"] else canvas
    return canvas[::-1] if view["vflip"] else canvas


def reference(number, view, mode="RGB", resample=Image.Resampling.BILINEAR):
    """[C, H, W] of uint8."""
    picture = Image.open(io.BytesIO(encoded(number)[1])).convert(mode)
    pixels = pillow_view(picture, view, resample)
    return pixels.reshape(*pixels.shape[:2], -1).transpose(2, 0, 1)


def size_of(number):
    return Image.open(io.BytesIO(encoded(number)[1])).size


VIEWS = {
    "RandomResizedCrop": hr.RandomResizedCrop(32, flip=0.5),
    "Resize": hr.Resize((30, 44)),
    "RandomCrop": hr.RandomCrop((28, 36), flip=1.0),
    "Letterbox": hr.Letterbox(50),
    "flips": [hr.Resize((20, 20)), hr.RandomHorizontalFlip(), hr.RandomVerticalFlip()],
}


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
@pytest.mark.parametrize("place", ["folder", "tar"])
@pytest.mark.one_in(18)
def test_batches_equal_pillow_to_one_level(folder, tar, place, view):
    dataset = {"folder": folder, "tar": tar}[place]
    loader = load(dataset, {"image": image(), "label": hr.Label()}, view=view)
    for step, batch in enumerate(loader):
        plan = planned(loader, step)
        views = views_of(view, plan, [size_of(number) for number in plan.samples])
        assert list(batch["label"]) == [label_of(number) for number in plan.samples]
        for number, got, drawn in zip(plan.samples, batch["image"], views, strict=True):
            expected = reference(number, drawn)
            assert got.shape == expected.shape
            assert np.abs(got.astype(int) - expected).max() <= 1, f"sample {number}"


def test_resize_then_center_crop_equals_pillow(folder):
    """A crop after a resize begins between pixels, so this has no window that Pillow could cut."""
    loader = load(folder, {"image": image()}, view=[hr.Resize(36), hr.CenterCrop(32)])
    for step, batch in enumerate(loader):
        for number, got in zip(planned(loader, step).samples, batch["image"], strict=True):
            picture = Image.open(io.BytesIO(encoded(number)[1])).convert("RGB")
            width, height = picture.size
            size = (36, int(36 * height / width)) if width <= height else (int(36 * width / height), 36)
            resized = picture.resize(size, Image.Resampling.BILINEAR)
            left, top = round((size[0] - 32) / 2), round((size[1] - 32) / 2)
            expected = np.asarray(resized.crop((left, top, left + 32, top + 32))).transpose(2, 0, 1)
            assert np.abs(got.astype(int) - expected).max() <= 1, f"sample {number}"


def test_nearest_equals_pillow(folder):
    """Also where a centre falls between two pixels, and the rounding of Pillow's sums decides."""
    loader = load(folder, {"image": image(filter="nearest")}, view=hr.Resize((30, 44)))
    for step, batch in enumerate(loader):
        for number, got in zip(planned(loader, step).samples, batch["image"], strict=True):
            picture = Image.open(io.BytesIO(encoded(number)[1])).convert("RGB")
            expected = np.asarray(picture.resize((44, 30), Image.Resampling.NEAREST)).transpose(2, 0, 1)
            np.testing.assert_array_equal(got, expected, err_msg=f"sample {number}")


FLIPS = {"none": (), "across": (-1,), "down": (-2,), "both": (-1, -2)}


@pytest.mark.parametrize("flips", FLIPS)
@pytest.mark.parametrize("size", [(48, 64, 30, 40), (75, 50, 30, 20), (64, 48, 13, 40), (50, 40, 105, 64)])
@pytest.mark.parametrize("kind", ["nearest", "nearest-exact", "nearest-opencv", "nearest-torch"])
def test_nearest_after_a_flip_equals_its_library(kind, size, flips):
    """Also at the scale 1.6, where every fifth centre falls between two pixels."""
    torch = pytest.importorskip("torch")
    height, width, *out = size
    values = np.random.default_rng(5).integers(1, 60000, (height, width)).astype(np.uint16)
    grey = np.ascontiguousarray(values.view("u1")[:, ::2])
    files = {name: [encode(Image.fromarray(each), "PNG")] for name, each in {"depth": values, "grey": grey}.items()}
    fields = {
        "depth": hr.Depth(valid=False, filter=kind),
        "mask": hr.Mask(source="grey", filter=kind),
        "image": image(source="grey", mode="L", filter=kind),
    }
    steps = {-1: hr.RandomHorizontalFlip(1.0), -2: hr.RandomVerticalFlip(1.0)}
    view = [*(steps[axis] for axis in FLIPS[flips]), hr.Resize(tuple(out))]
    batch = next(iter(load(hr.open(files), fields, view=view, batch_size=1)))

    def resized(of):
        flipped = np.flip(of, FLIPS[flips]).astype(np.float32)
        if kind == "nearest":
            return np.asarray(Image.fromarray(flipped).resize(out[::-1], Image.Resampling.NEAREST))
        if kind == "nearest-opencv":
            return cv2.resize(flipped, out[::-1], interpolation=cv2.INTER_NEAREST)
        given = torch.from_numpy(flipped.copy())[None, None]
        return torch.nn.functional.interpolate(given, tuple(out), mode=kind.removesuffix("-torch"))[0, 0].numpy()

    np.testing.assert_array_equal(batch["depth"][0, 0], resized(values))
    for name in ("mask", "image"):
        np.testing.assert_array_equal(batch[name].reshape(out), resized(grey))


@pytest.mark.parametrize("kind", ["nearest-opencv", "nearest-torch"])
def test_nearest_of_a_crop_after_the_resize(kind):
    """The crop's pixels are those of the resized whole. OpenCV rounds 14 columns below a whole pixel, torch 6 rows."""
    torch = pytest.importorskip("torch")
    values = np.random.default_rng(7).integers(0, 250, (130, 195)).astype(np.uint8)
    field, view = hr.Mask(filter=kind), [hr.Resize((110, 75)), hr.CenterCrop((60, 51))]
    dataset = hr.open({"mask": [encode(Image.fromarray(values), "PNG")]})
    (got,) = next(iter(load(dataset, {"mask": field}, view=view, batch_size=1)))["mask"]
    if kind == "nearest-opencv":
        resized = cv2.resize(values, (75, 110), interpolation=cv2.INTER_NEAREST)
    else:
        resized = torch.nn.functional.interpolate(torch.from_numpy(values)[None, None], (110, 75))[0, 0].numpy()
    np.testing.assert_array_equal(got, resized[25:85, 12:63])


def test_nearest_exact_of_a_window_between_pixels(folder):
    """A depth map of half the image's size is cut at half pixels; without ties, both rules pick the same."""
    values = np.random.default_rng(6).integers(1, 60000, (45, 61)).astype(np.uint16)
    files = {
        "image": [encode(photograph(0, 122, 90), "PNG")] * 40,
        "depth": [encode(Image.fromarray(values), "PNG")] * 40,
    }
    fields = {
        "image": image(),
        "one": hr.Depth(source="depth", valid=False),
        "other": hr.Depth(source="depth", valid=False, filter="nearest-exact"),
    }
    for batch in load(hr.open(files), fields, view=hr.RandomResizedCrop(17, scale=(0.3, 0.9)), batch_size=20):
        assert (batch["one"] == batch["other"]).mean() > 0.98


def test_grey_mode_equals_pillow(folder):
    view = hr.RandomResizedCrop(32)
    loader = load(folder, {"image": image(mode="L")}, view=view)
    for step, batch in enumerate(loader):
        plan = planned(loader, step)
        views = views_of(view, plan, [size_of(number) for number in plan.samples])
        assert batch["image"].shape[1:] == (1, 32, 32)
        for number, got, drawn in zip(plan.samples, batch["image"], views, strict=True):
            assert np.abs(got.astype(int) - reference(number, drawn, "L")).max() <= 2, f"sample {number}"


@pytest.mark.parametrize("normalize", [None, hr.IMAGENET], ids=["plain", "normalized"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_floats_equal_arithmetic_on_the_bytes(folder, dtype, normalize):
    import torch

    fields = {
        "bytes": image(source="image"),
        "floats": image(source="image", dtype=dtype, normalize=normalize),
    }
    for batch in load(folder, fields, view=hr.RandomResizedCrop(24), output="torch"):
        exact = batch["bytes"].numpy().astype(np.float64) / 255
        if normalize is not None:
            mean, std = (np.array(part)[:, None, None] for part in (normalize.mean, normalize.std))
            exact = (exact - mean) / std
        got = batch["floats"]
        assert got.dtype == getattr(torch, dtype)
        # Floats are made of the resampled values before they are rounded to bytes: half a level, and the type's step.
        half_level = 0.51 / 255 / (1 if normalize is None else min(normalize.std))
        step = torch.finfo(got.dtype).eps * np.abs(exact).max()
        assert np.abs(got.double().numpy() - exact).max() <= half_level + step


def test_float16_and_bfloat16_are_float32_rounded(folder):
    import torch

    fields = {dtype: image(source="image", dtype=dtype) for dtype in ("float32", "float16", "bfloat16")}
    for batch in load(folder, fields, view=hr.Resize((24, 24)), output="torch"):
        for dtype in ("float16", "bfloat16"):
            assert torch.equal(batch[dtype], batch["float32"].to(getattr(torch, dtype))), dtype


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_memory_layout_changes_strides_only(folder, dtype, mode):
    fields = {
        "last": image(source="image", dtype=dtype, mode=mode),
        "planar": image(source="image", dtype=dtype, mode=mode, channels_last=False),
    }
    channels = 3 if mode == "RGB" else 1
    for batch in load(folder, fields, view=hr.RandomResizedCrop((20, 28))):
        last, planar = batch["last"], batch["planar"]
        assert last.shape == planar.shape == (len(last), channels, 20, 28)
        assert planar.flags.c_contiguous
        assert last.transpose(0, 2, 3, 1).flags.c_contiguous
        np.testing.assert_array_equal(last, planar)


def test_torch_images_are_channels_last(folder):
    import torch

    batch = next(iter(load(folder, {"image": image()}, view=hr.Resize((20, 28)), output="torch")))
    assert batch["image"].is_contiguous(memory_format=torch.channels_last)


def test_images_of_one_sample_share_their_view(tmp_path):
    """The second image is the first one at twice the size: the same window of both shows the same, to its blur."""
    import tarfile

    with tarfile.open(tmp_path / "pairs.tar", "w") as tar:
        for number in range(12):
            small = photograph(number, 60, 48)
            add_member(tar, f"{number:04}.a.png", encode(small, "PNG"))
            add_member(tar, f"{number:04}.b.png", encode(small.resize((120, 96), Image.Resampling.NEAREST), "PNG"))
    fields = {"a": image(source="a.png", filter="nearest"), "b": image(source="b.png", filter="nearest")}
    view = hr.RandomResizedCrop(20, flip=0.5)
    for batch in load(hr.open(tmp_path / "pairs.tar"), fields, view=view, batch_size=6):
        np.testing.assert_array_equal(batch["a"], batch["b"])
    # The view is drawn from the first, or from the field that view_from names; its size decides what is drawn.
    first = next(iter(load(hr.open(tmp_path / "pairs.tar"), fields, view=hr.RandomCrop(20), view_from="a")))
    assert first["a"].shape == (12, 3, 20, 20)


def test_keys_follow_the_plan(tar):
    loader = load(tar, {"text": hr.Raw()})
    for step, batch in enumerate(loader):
        assert batch["text"] == [f"number {number}".encode() for number in planned(loader, step).samples]


def test_a_selection_keeps_each_samples_view(folder):
    """Draws are keyed by the base id: what a sample looks like does not depend on what else is selected."""
    view = hr.RandomResizedCrop(24, flip=0.5)
    whole = next(iter(load(folder, {"image": image()}, view=view, batch_size=COUNT, shuffle=False)))["image"]
    some = [31, 4, 17]
    part = next(iter(load(folder.select(some), {"image": image()}, view=view, batch_size=3, shuffle=False)))["image"]
    np.testing.assert_array_equal(part, whole[some])


def test_without_a_view_images_come_whole(tmp_path):
    pictures = [photograph(number, 36, 28) for number in range(6)]
    for number, picture in enumerate(pictures):
        picture.save(tmp_path / f"{number}.png")
    batch = next(iter(load(hr.open(tmp_path), {"image": image()}, batch_size=6, shuffle=False)))
    np.testing.assert_array_equal(batch["image"], np.stack([np.asarray(p).transpose(2, 0, 1) for p in pictures]))


def test_dct_scaling_by_request_changes_little(tmp_path):
    for number in range(4):
        photograph(number, 400, 300).save(tmp_path / f"{number}.jpg", quality=92)
    fields = {"fast": hr.Image(source="image", dct_scaling=True), "exact": image(source="image")}
    batch = next(iter(load(hr.open(tmp_path), fields, view=hr.Resize((37, 50)), batch_size=4)))
    difference = np.abs(batch["fast"].astype(int) - batch["exact"])
    assert difference.max() > 0, "nothing was scaled"
    assert difference.mean() < 2
    assert difference.max() <= 24


@pytest.mark.parametrize(("resize", "crop"), [(256, 224), (180, 160), (128, 112)])
@pytest.mark.one_in(4)
def test_evaluation_is_pillows_within_one_level_by_default(tmp_path, resize, crop):
    """torchvision's Resize and CenterCrop over Pillow, as scripts write it for validation."""
    expected = []
    for number in range(4):
        path = tmp_path / f"{number}.jpg"
        Image.fromarray(natural_image(500, 375, seed=number)).save(path, quality=92)
        whole = Image.open(path)
        small = whole.resize((resize * whole.width // whole.height, resize), Image.Resampling.BILINEAR)
        left, top = round((small.width - crop) / 2), (resize - crop) // 2
        expected.append(np.asarray(small.crop((left, top, left + crop, top + crop))).transpose(2, 0, 1))
    view = [hr.Resize(resize), hr.CenterCrop(crop)]
    (batch,) = load(hr.open(tmp_path), {"image": hr.Image()}, view=view, batch_size=4, shuffle=False)
    assert np.abs(batch["image"].astype(int) - np.stack(expected)).max() <= 1


@pytest.mark.long
def test_a_large_original_is_within_two_levels_by_default(tmp_path):
    """Large enough that the default decodes at half size."""
    for number in range(4):
        Image.fromarray(natural_image(1500, 1200, seed=number)).save(tmp_path / f"{number}.jpg", quality=92)
    fields = {"default": hr.Image(source="image"), "full": image(source="image")}
    (batch,) = load(hr.open(tmp_path), fields, view=[hr.Resize(150), hr.CenterCrop(144)], batch_size=4)
    difference = np.abs(batch["default"].astype(int) - batch["full"])
    assert difference.max() > 0, "nothing was scaled"
    assert np.quantile(difference, 0.999) <= 2


def test_a_replacement_has_the_view_of_its_own_pass(tmp_path):
    """Sample and pass as the plan draws them for the bad one's position; so a sample that comes twice differs."""
    bad, view = 14, hr.RandomResizedCrop(32, flip=0.5)
    path = next(write_folder(tmp_path / "photos").glob(f"*/{bad:04}.*"))
    path.write_bytes(b"")
    loader = load(hr.open(tmp_path / "photos"), {"image": image()}, view=view, on_error="replace")
    plan = UniformPlan(length=COUNT, batch_size=BATCH, shuffle=True, seed=SEED)
    for step, batch in enumerate(loader):
        planned_batch = plan.batch(0, step)
        for row in np.flatnonzero(planned_batch.samples == bad):
            number, pass_ = plan.replacement(0, int(planned_batch.positions[row]), 0)
            assert number != bad, "choose another seed"
            stand_in = replace(planned_batch, samples=np.array([number]), passes=np.array([pass_], np.uint32))
            (drawn,) = views_of(view, stand_in, [size_of(number)])
            assert np.abs(batch["image"][row].astype(int) - reference(number, drawn)).max() <= 1
            return
    raise AssertionError("the bad sample never came")
