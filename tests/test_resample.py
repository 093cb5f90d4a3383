"""Resampling against Pillow and OpenCV, and every instruction-set level against the scalar one."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
import torch
from core_images import LEVELS, photograph, run, view_row
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

PILLOWS = {
    "triangle": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
}
BLENDING = [*PILLOWS, "linear"]
NEAREST = {
    "nearest": lambda pixels, size: np.asarray(Image.fromarray(pixels).resize(size, Image.Resampling.NEAREST)),
    "nearest-opencv": lambda pixels, size: cv2.resize(pixels, size, interpolation=cv2.INTER_NEAREST),
    "nearest-exact": lambda pixels, size: by_torch(pixels, size, "nearest-exact"),
    "nearest-torch": lambda pixels, size: by_torch(pixels, size, "nearest"),
}


def by_torch(pixels: np.ndarray, size: tuple[int, int], mode: str) -> np.ndarray:
    given = torch.from_numpy(pixels.transpose(2, 0, 1).copy())[None]
    return torch.nn.functional.interpolate(given, size[::-1], mode=mode)[0].numpy().transpose(1, 2, 0)


def differences(ours: np.ndarray, theirs: np.ndarray) -> np.ndarray:
    return np.abs(ours.astype(int) - theirs.astype(int))


def by_pillow(
    pixels: np.ndarray, size: tuple[int, int], name: str, box: tuple[float, float, float, float] | None = None
) -> np.ndarray:
    """Across, then down. Since Pillow 13, one `resize` goes the other way where height shrinks much more than width,
    and the bytes between both passes make a difference.
    """
    picture = Image.fromarray(pixels)
    x0, y0, x1, y1 = box or (0, 0, *picture.size)
    across = picture.resize((size[0], picture.height), PILLOWS[name], box=(x0, 0, x1, picture.height))
    return np.asarray(across.resize(size, PILLOWS[name], box=(0, y0, size[0], y1)))


def assert_like_pillows(ours: np.ndarray, theirs: np.ndarray, name: str) -> None:
    """Within one level. Where weights exceed 1, beside an edge, a row that Pillow rounds the other way counts more."""
    found = differences(ours, theirs)
    assert found.max() <= (1 if name == "triangle" else 2)
    assert (found > 1).sum() <= max(4, 1e-4 * found.size)


def whole(pixels: np.ndarray, size: tuple[int, int], **flips: bool) -> np.ndarray:
    height, width = pixels.shape[:2]
    return view_row((0, 0, width, height), (0, 0, width, height), size, **flips)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", PILLOWS)
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(("length", "outputs"), [(900, 1), (3000, 2), (16000, 2), (60000, 1), (60000, 2)])
def test_extreme_shrinking_is_within_one_level_of_pillow(length: int, outputs: int, turned: bool, name: str) -> None:
    """Thousands of taps, each with a weight near or below the unit of fixed point."""
    strip = np.full((1, length, 3), 30, np.uint8)
    strip[:, : length // 2] = 200
    strip[:, ::7] += 40
    pixels = np.ascontiguousarray(strip.transpose(1, 0, 2)) if turned else strip
    size = (1, outputs) if turned else (outputs, 1)
    assert differences(run(pixels, whole(pixels, size), filter=name), by_pillow(pixels, size, name)).max() <= 1


SIZES = [(7, 5), (64, 48), (224, 224), (31, 200), (1, 1), (500, 3)]


SOURCES = [(48, 64), (375, 500), (5, 3), (1, 40), (900, 20)]


@pytest.mark.one_in(8)
@pytest.mark.parametrize("name", PILLOWS)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("source", SOURCES)
def test_filters_are_within_one_level_of_pillow(size: tuple[int, int], source: tuple[int, int], name: str) -> None:
    pixels = photograph(*source)
    assert_like_pillows(run(pixels, whole(pixels, size), filter=name), by_pillow(pixels, size, name), name)


@pytest.mark.parametrize("name", ["bicubic", "lanczos"])
@pytest.mark.parametrize("noise", [False, True])
def test_filters_with_lobes_have_pillows_values(name: str, noise: bool) -> None:
    """They clip and round between the passes as Pillow does; black and white pixels overshoot the most."""
    black_or_white = np.random.default_rng(0).random((375, 500, 3)) < 0.5
    pixels = np.where(black_or_white, np.uint8(255), np.uint8(0)) if noise else photograph(375, 500)
    for size in [(224, 224), (600, 700), (64, 48)]:
        found = differences(run(pixels, whole(pixels, size), filter=name), by_pillow(pixels, size, name))
        assert (found == 0).mean() >= (0.97 if noise else 0.98)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("source", SOURCES)
def test_linear_is_within_one_level_of_opencv(size: tuple[int, int], source: tuple[int, int]) -> None:
    pixels = photograph(*source)
    ours = run(pixels, whole(pixels, size), filter="linear")
    assert differences(ours, cv2.resize(pixels, size, interpolation=cv2.INTER_LINEAR)).max() <= 1


def two_taps(pixels: np.ndarray, size: int) -> np.ndarray:
    """The first axis at another size, from the two pixels about each centre; those of the edge go on beyond it."""
    place = (np.arange(size) + 0.5) * len(pixels) / size - 0.5
    before = np.floor(place).astype(int)
    share = (place - before).reshape(-1, *[1] * (pixels.ndim - 1))
    low, high = (pixels[np.clip(before + by, 0, len(pixels) - 1)] for by in (0, 1))
    return low * (1 - share) + high * share


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_windows_are_within_one_level_of_crops_that_are_resized(data: st.DataObject) -> None:
    width, height = data.draw(st.integers(2, 90)), data.draw(st.integers(2, 90))
    left, top = data.draw(st.integers(0, width - 1)), data.draw(st.integers(0, height - 1))
    right, bottom = data.draw(st.integers(left + 1, width)), data.draw(st.integers(top + 1, height))
    size = data.draw(st.integers(1, 70)), data.draw(st.integers(1, 70))
    hflip, vflip = data.draw(st.booleans()), data.draw(st.booleans())
    pixels = photograph(height, width, seed=data.draw(st.integers(0, 5)))
    box = (left, top, right, bottom)
    name = data.draw(st.sampled_from(BLENDING))
    ours = run(pixels, view_row(box, box, size, hflip=hflip, vflip=vflip), filter=name)
    unflipped = ours[:: -1 if vflip else 1, :: -1 if hflip else 1]
    if name == "linear":
        down = two_taps(pixels[top:bottom, left:right].astype(float), size[1])
        assert differences(unflipped, np.rint(two_taps(down.swapaxes(0, 1), size[0]).swapaxes(0, 1))).max() <= 1
    else:
        assert_like_pillows(unflipped, by_pillow(pixels[top:bottom, left:right], size, name), name)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_taps_reach_beyond_a_window_as_far_as_its_bounds(data: st.DataObject) -> None:
    """Resize then crop: Pillow's resize(box=) takes taps from the whole image, as a literal resize would."""
    width, height = data.draw(st.integers(8, 90)), data.draw(st.integers(8, 90))
    x0, y0 = data.draw(st.floats(0, width - 4)), data.draw(st.floats(0, height - 4))
    x1, y1 = data.draw(st.floats(x0 + 2, width)), data.draw(st.floats(y0 + 2, height))
    size = data.draw(st.integers(1, 40)), data.draw(st.integers(1, 40))
    pixels = photograph(height, width)
    name = data.draw(st.sampled_from(list(PILLOWS)))
    ours = run(pixels, view_row((x0, y0, x1, y1), (0, 0, width, height), size), filter=name)
    assert_like_pillows(ours, by_pillow(pixels, size, name, (x0, y0, x1, y1)), name)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", BLENDING)
def test_a_copy_is_exact(level: str, size: tuple[int, int], name: str) -> None:
    pixels = photograph(size[1], size[0])
    assert np.array_equal(run(pixels, whole(pixels, size), level=level, filter=name), pixels)


@settings(max_examples=120, deadline=None)
@given(st.data())
@pytest.mark.long
def test_levels_agree_bit_for_bit(data: st.DataObject) -> None:
    """All widths up to several vectors, scales that need one to many groups of taps, every output type."""
    width, height = data.draw(st.integers(1, 300)), data.draw(st.integers(1, 40))
    size = data.draw(st.integers(1, 150)), data.draw(st.integers(1, 20))
    dtype = data.draw(st.sampled_from(["uint8", "float32", "float16", "bfloat16"]))
    channels, planar = data.draw(st.sampled_from([1, 3])), data.draw(st.booleans())
    mean, std = [123.675, 116.28, 103.53], [58.395, 57.12, 57.375]
    pixels = photograph(height, width, seed=data.draw(st.integers(0, 9)))
    view = whole(pixels, size, hflip=data.draw(st.booleans()), vflip=data.draw(st.booleans()))
    options = {"channels": channels, "planar": planar, "filter": data.draw(st.sampled_from(BLENDING))}
    results = [run(pixels, view, level=level, dtype=dtype, subtract=mean, divide=std, **options) for level in LEVELS]
    for level, result in zip(LEVELS, results, strict=True):
        assert np.array_equal(results[0].view(np.uint8), result.view(np.uint8)), level


@pytest.mark.one_in(4)
@pytest.mark.parametrize("width", [1, 3, 40, 64, 100, 200, 1500, 9000])
@pytest.mark.parametrize("brightest", [1.0, 0.9, 0.5])
@pytest.mark.parametrize("name", BLENDING)
def test_levels_agree_on_black_and_white(width: int, brightest: float, name: str) -> None:
    """Where sums are as large as they can be, and swing: scales from enlarging to hundreds of taps."""
    black_or_white = np.random.default_rng(width).random((24, width, 3)) < brightest
    pixels = np.where(black_or_white, np.uint8(255), np.uint8(0))
    for size in [(20, 7), (67, 50)]:
        first, *others = (run(pixels, whole(pixels, size), level=level, filter=name) for level in LEVELS)
        assert all(np.array_equal(first, other) for other in others)


@pytest.mark.parametrize("planar", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_floats_are_what_numpy_makes_of_the_bytes(dtype: str, planar: bool) -> None:
    ramp = np.arange(256, dtype=np.uint8).reshape(16, 16)
    pixels = np.stack([ramp, ramp[::-1], ramp.T], -1)
    view = whole(pixels, (16, 16))
    mean, std = [123.675, 116.28, 103.53], [58.395, 57.12, 57.375]
    ours = run(pixels, view, dtype=dtype, planar=planar, subtract=mean, divide=std)
    exact = (pixels - np.float32(mean)) / np.float32(std)
    exact = exact.transpose(2, 0, 1) if planar else exact
    if dtype == "bfloat16":
        torch = pytest.importorskip("torch")
        assert np.array_equal(ours, torch.from_numpy(exact.copy()).bfloat16().view(torch.uint16).numpy())
    else:
        assert np.array_equal(ours, exact.astype(dtype))


def test_unnormalised_floats_are_bytes_over_255() -> None:
    pixels = np.arange(256, dtype=np.uint8).reshape(16, 16, 1).repeat(3, -1)
    assert np.array_equal(run(pixels, whole(pixels, (16, 16)), dtype="float32"), pixels.astype(np.float32) / 255)


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_nearest_takes_the_pixels_that_its_library_takes(data: st.DataObject) -> None:
    """Also where a position is between two pixels, which rounding decides: of a whole image, and of a crop."""
    width, height = data.draw(st.integers(1, 700)), data.draw(st.integers(1, 60))
    size = data.draw(st.integers(1, 400)), data.draw(st.integers(1, 80))
    left, top = data.draw(st.integers(0, width - 1)), data.draw(st.integers(0, height - 1))
    pixels = photograph(height, width)
    for box in ((0, 0, width, height), (left, top, width, height)):
        cut = pixels[box[1] :, box[0] :]
        for name, resized in NEAREST.items():
            assert np.array_equal(run(pixels, view_row(box, box, size), filter=name), resized(cut, size)), name


@pytest.mark.parametrize("hflip", [False, True])
@pytest.mark.parametrize("vflip", [False, True])
@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_padding_is_the_fill_and_flips_with_the_canvas(dtype: str, hflip: bool, vflip: bool) -> None:
    pixels = photograph(10, 12)
    view = view_row((0, 0, 12, 10), (0, 0, 12, 10), (20, 15), inner=(3, 4, 12, 10), hflip=hflip, vflip=vflip)
    ours = run(pixels, view, dtype=dtype, fill=[7, 8, 9])
    canvas = np.full((15, 20, 3), [7, 8, 9], np.uint8)
    canvas[4:14, 3:15] = pixels
    canvas = canvas[:: -1 if vflip else 1, :: -1 if hflip else 1]
    assert np.array_equal(ours, canvas if dtype == "uint8" else canvas.astype(np.float32) / 255)


def test_a_crop_that_falls_into_its_padding_is_all_fill() -> None:
    view = view_row((5, 5, 5, 5), (0, 0, 12, 10), (4, 4), inner=(0, 0, 0, 0))
    assert (run(photograph(10, 12), view, fill=[1, 2, 3]) == [1, 2, 3]).all()


NAN = float("nan")


@pytest.mark.parametrize(
    ("view", "text"),
    [
        (view_row((NAN, 0, 4, 4), (0, 0, 4, 4), (4, 4)), "positive, finite size"),
        (view_row((0, 0, float("inf"), 4), (0, 0, 4, 4), (4, 4)), "positive, finite size"),
        (view_row((3, 0, 3, 4), (0, 0, 4, 4), (4, 4)), "positive, finite size"),
        (view_row((0, 0, 1e300, 4), (0, 0, 4, 4), (4, 4)), "leaves the image"),
        (view_row((0, 0, 4, 4), (0, 0, 5, 4), (4, 4)), "leaves? the image"),
        (view_row((0, 0, 4, 4), (2, 0, 2, 4), (4, 4)), "leaves? the image"),
        (view_row((0, 0, 4, 4), (0, 0, NAN, 4), (4, 4)), "whole numbers"),
        (view_row((0, 0, 4, 4), (0, 0, 4, 4), (4, 4), inner=(2, 0, 4, 4)), "outside its canvas"),
    ],
)
def test_views_that_make_no_sense_are_refused(view: np.ndarray, text: str) -> None:
    with pytest.raises(ValueError, match=text) as caught:
        run(photograph(4, 4), view)
    assert caught.value.args[0] == 8  # Code::view
