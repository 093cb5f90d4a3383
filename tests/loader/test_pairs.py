"""Pairs of two resolutions, and quarter turns, against Pillow's crops and numpy's turns of the files."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import battery
import numpy as np
import pytest
from docs_pages import DOCS
from PIL import Image, ImageOps

import headrace as hr
from headrace.errors import UsageError, ViewError

COUNT = 12
CROP = 16
D4 = list(itertools.product(range(4), (False, True)))
VIEW = [hr.RandomCrop(CROP, flip=0.5), hr.RandomVerticalFlip(), hr.RandomQuarterTurn()]


def size_of(number: int) -> tuple[int, int]:
    """Width and height of the small image."""
    return 21 + 5 * (number % 4), 19 + 3 * (number % 5)


def write(root: Path, scale: int, **options: object) -> hr.Dataset:
    """Pairs of PNGs. A pixel of the small image is its own x, y and number."""
    for folder in ("small", "large"):
        (root / folder).mkdir()
    for number in range(COUNT):
        width, height = size_of(number)
        y, x = np.mgrid[:height, :width]
        small = np.stack([x, y, np.full_like(x, number)], -1).astype(np.uint8)
        large = np.random.default_rng(number).integers(0, 256, (scale * height, scale * width, 3)).astype(np.uint8)
        Image.fromarray(small).save(root / "small" / f"{number}.png")
        Image.fromarray(large).save(root / "large" / f"{number}.png")
    return hr.open({"small": root / "small", "large": root / "large"})


def load(dataset: hr.Dataset, scale: int, **options: object) -> hr.Loader:
    fields = {"large": hr.Image(scale=scale), "small": hr.Image(), "key": hr.Key()}
    given = {"fields": fields, "view": VIEW, "batch_size": 4, "output": "numpy", "on_error": "raise", "seed": 3}
    return hr.Loader(dataset, **(given | options))


def turned(pixels: np.ndarray, turn: tuple[int, bool]) -> np.ndarray:
    """[H, W, C], turned by quarters, then mirrored."""
    quarters, mirrored = turn
    return np.rot90(pixels, quarters)[:, :: -1 if mirrored else 1]


def cut_of(small: np.ndarray, large: np.ndarray, root: Path, key: str, scale: int) -> tuple[int, bool]:
    """Return the single turn by which [C, H, W] of both are the same window of both files."""
    found = []
    files = [Image.open(root / folder / f"{key}.png") for folder in ("small", "large")]
    for turn in D4:
        undone = small.transpose(1, 2, 0)[:, :: -1 if turn[1] else 1]
        left, top = (int(each) for each in np.rot90(undone, -turn[0])[0, 0, :2])
        box = left, top, left + CROP, top + CROP
        if np.array_equal(turned(np.asarray(files[0].crop(box)), turn), small.transpose(1, 2, 0)):
            found.append(turn)
            expected = turned(np.asarray(files[1].crop(tuple(scale * edge for edge in box))), turn)
            np.testing.assert_array_equal(large.transpose(1, 2, 0), expected)
    (turn,) = found
    return turn


@pytest.mark.parametrize("scale", [2, 3, 4, 8])
def test_both_are_the_same_window_of_their_files(tmp_path, scale):
    loader = load(write(tmp_path, scale), scale)
    turns = set()
    for batch in (*loader, *loader):
        assert batch["large"].shape == (4, 3, scale * CROP, scale * CROP)
        rows = zip(batch["small"], batch["large"], batch["key"], strict=True)
        turns |= {cut_of(*images, tmp_path, key, scale) for *images, key in rows}
    assert len(turns) > 5


def test_an_exif_orientation_and_a_turn_make_one_turn(tmp_path):
    dataset = write(tmp_path, 2)
    for number in range(COUNT):  # displayed as before
        for path in (tmp_path / "small" / f"{number}.png", tmp_path / "large" / f"{number}.png"):
            exif = Image.Exif()
            exif[0x0112] = 1 + number % 8
            shown = Image.open(path)
            stored = next(
                each
                for method in (None, *Image.Transpose)
                for each in [shown if method is None else shown.transpose(method)]
                if np.array_equal(_displayed(each, exif), np.asarray(shown))
            )
            stored.save(path.with_suffix(".out"), "PNG", exif=exif)
            shown.close()
    for path in tmp_path.glob("*/*.out"):
        (tmp_path / f"plain {path.parent.name}").mkdir(exist_ok=True)
        path.with_suffix(".png").rename(tmp_path / f"plain {path.parent.name}" / f"{path.stem}.png")
        path.rename(path.with_suffix(".png"))
    plain = hr.open({"small": tmp_path / "plain small", "large": tmp_path / "plain large"})
    dataset = hr.open({"small": tmp_path / "small", "large": tmp_path / "large"})
    for seed in range(4):
        got, expected = (battery.kept(load(each, 2, seed=seed)) for each in (dataset, plain))
        battery.assert_equal(got, expected, "orientations")


def _displayed(stored: Image.Image, exif: Image.Exif) -> np.ndarray:
    stored = stored.copy()
    stored.info["exif"] = exif.tobytes()
    stored.getexif()[0x0112] = exif[0x0112]
    return np.asarray(ImageOps.exif_transpose(stored))


@pytest.mark.parametrize(("name", "filter"), [("nearest", "NEAREST"), ("triangle", "BILINEAR")])
def test_a_turn_before_a_resize_is_that_of_the_turned_file(tmp_path, name, filter):
    view = [hr.RandomQuarterTurn(), hr.Resize((13, 32))]
    fields = {"large": hr.Image(filter=name), "view": hr.Geometry(), "key": hr.Key()}
    (batch,) = load(write(tmp_path, 2), 2, fields=fields, view=view, batch_size=COUNT)
    turns = [(False, False, False), (True, False, True), (False, True, True), (True, True, False)]
    signs = [turns.index(each) for each in zip(batch["view"]["transposed"], *batch["view"]["flip"].T, strict=True)]
    assert len(set(signs)) > 2
    for image, quarters, key in zip(batch["large"], signs, batch["key"], strict=True):
        file = Image.open(tmp_path / "large" / f"{key}.png")
        turned_file = Image.fromarray(np.rot90(np.asarray(file), quarters).copy())
        expected = np.asarray(turned_file.resize((32, 13), getattr(Image.Resampling, filter))).astype(int)
        assert np.abs(image.transpose(1, 2, 0) - expected).max() <= (0 if name == "nearest" else 1)


def test_padding_scales(tmp_path):
    view = hr.RandomCrop(40, padding=3, pad_if_needed=True, fill=255)
    for batch in load(write(tmp_path, 2), 2, view=view):
        padded = (batch["small"] == 255).all(1).repeat(2, 1).repeat(2, 2)
        assert padded.any()
        np.testing.assert_array_equal((batch["large"] == 255).all(1) | padded, padded)
        assert (batch["large"].transpose(0, 2, 3, 1)[padded] == 255).all()


@pytest.mark.parametrize(
    "view", [hr.RandomResizedCrop((10, 15)), hr.Resize((10, 15)), hr.Letterbox((20, 17))], ids=repr
)
def test_a_view_that_resizes_takes_the_same_window_of_any_size(tmp_path, view):
    """Of one file, and of a file three times as large: the scale is that of the output."""
    fields = {"small": hr.Image(), "large": hr.Image(scale=2), "same": hr.Image(scale=2, source="small")}
    box = {"view": hr.Geometry()}
    for batch in load(write(tmp_path, 3), 2, fields=fields | box | {"key": hr.Key()}, view=view):
        assert batch["large"].shape == batch["same"].shape == (4, 3, *(2 * side for side in batch["small"].shape[2:]))
        if isinstance(view, hr.Letterbox):
            continue
        for row, key in enumerate(batch["key"]):
            window, (height, width) = batch["view"]["window"][row], batch["large"].shape[2:]
            for name, folder, factor in (("large", "large", 3), ("same", "small", 1)):
                file = Image.open(tmp_path / folder / f"{key}.png")
                whole = file.crop(tuple(round(factor * edge) for edge in window.tolist()))
                expected = whole.resize((width, height), Image.Resampling.BILINEAR)
                difference = batch[name][row].transpose(1, 2, 0).astype(int) - np.asarray(expected)
                assert np.abs(difference).max() <= 1


def test_a_pair_whose_sizes_do_not_fit_names_both_files(tmp_path):
    dataset = write(tmp_path, 4)
    width, height = size_of(5)
    Image.new("RGB", (4 * width, 4 * height - 1)).save(tmp_path / "large" / "5.png")
    with pytest.raises(ViewError) as caught:
        list(load(dataset, 4))
    assert (caught.value.key, caught.value.field) == ("5", "large")
    for part in (
        f"{width} x {height}",
        f"{4 * width} x {4 * height - 1}",
        *(f"{each}/5.png" for each in ("small", "large")),
    ):
        assert part in str(caught.value)
    replaced = list(load(dataset, 4, on_error="replace", max_bad=0.5))
    assert "5" not in [key for batch in replaced for key in batch["key"]]


def test_the_view_is_drawn_from_the_field_of_scale_1(tmp_path):
    dataset = write(tmp_path, 2)
    given = {"large": hr.Image(scale=2), "small": hr.Image()}
    expected = battery.kept(load(dataset, 2, fields=given))
    battery.assert_equal(battery.kept(load(dataset, 2, fields=given, view_from="small")), expected, "view_from")
    with pytest.raises(UsageError, match=r"view_from: expected .* of scale 1 .* one of \['small'\], got 'large'"):
        load(dataset, 2, fields=given, view_from="large")
    with pytest.raises(UsageError, match="field 'large': expected another field of pixels of scale 1"):
        load(dataset, 2, fields={"large": hr.Image(scale=2)})


def test_the_example_of_the_page(tmp_path, monkeypatch):
    for folder, side in (("lq", 70), ("gt", 280)):
        (tmp_path / folder).mkdir()
        for number in range(16):
            Image.new("RGB", (side, side)).save(tmp_path / folder / f"{number}.png")
    monkeypatch.chdir(tmp_path)
    section = (DOCS / "loader.md").read_text().split("### Pairs of two resolutions")[1]
    names = {"hr": hr}
    exec(re.findall(r"```python\n(.*?)```", section, re.DOTALL)[0], names)
    (batch,) = names["loader"]
    assert [tuple(batch[name].shape) for name in ("lq", "gt")] == [(16, 3, 64, 64), (16, 3, 256, 256)]


@pytest.mark.parametrize("make", [
    lambda: hr.Image(scale=0), lambda: hr.Image(scale=0.5), lambda: hr.Image(scale=True), lambda: hr.Image(scale=65),
    lambda: hr.Image(scale=2, view=hr.CenterCrop(8)), lambda: hr.Image(scale=2, copies=2),
])  # fmt: skip
def test_what_a_scale_may_be(make):
    with pytest.raises(UsageError, match="Image: expected scale"):
        make()


@pytest.mark.parametrize("augment", [hr.RandomRotation(9), hr.RandomErasing(0.5)], ids=repr)
def test_augmentations_of_places_are_for_one_scale(tmp_path, augment):
    dataset = write(tmp_path, 2)
    with pytest.raises(UsageError, match="augment: expected operations on colours alone with scale= of field 'large'"):
        load(dataset, 2, augment=augment)


def test_both_have_the_sample_s_colours(tmp_path):
    """Brightness is drawn once: the factor of the large image is that of the small one, to the rounding of a level."""
    dataset = write(tmp_path, 2)
    plain, bright = (
        battery.kept(load(dataset, 2, augment=augment)) for augment in (None, hr.ColorJitter(brightness=(0.2, 0.9)))
    )
    for before, after in zip(plain, bright, strict=True):
        for row in range(len(before["key"])):
            factor = after["large"][row].sum() / before["large"][row].sum()
            assert factor < 0.95
            assert np.abs(after["small"][row] - factor * before["small"][row]).max() <= 1


@pytest.mark.parametrize(
    "view", [VIEW, hr.CenterCrop(18, flip=0.5), hr.RandomResizedCrop(12)], ids=["random", "fixed", "resized"]
)
@pytest.mark.parametrize("shrink_to", [None, 20])
def test_the_same_from_a_cache(tmp_path, view, shrink_to):
    dataset = write(tmp_path, 4)
    fields = {"large": hr.Image(scale=4, shrink_to=shrink_to), "small": hr.Image(), "key": hr.Key()}
    cached = load(dataset, 4, fields=fields, view=view, cache=f"disk:{tmp_path}:20MB")
    plain = load(dataset, 4, fields=fields, view=view)
    battery.assert_equal(battery.epochs(cached), battery.epochs(plain), "cached")
    assert cached.stats().cache.hits > 0
