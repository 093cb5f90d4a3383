"""Composed views against the literal thing: an image of its own coordinates, taken through each step in turn.

Every pixel of the literal image holds the source coordinate of its centre (nan: padding). Crops, padding and flips
move pixels; a resize interpolates coordinates, which is exact for a linear function. The composed view must put the
same coordinate at every output pixel.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_view_sampling import COLUMN, core_view, programs, sampled
from twin.rng import Stream, below, uniform
from twin.views import resized_crop_box

from headrace import _core
from headrace.views import CenterCrop, RandomResizedCrop, Resize, compile_view

KEY = 11


class Literal:
    """One axis of an image: the source coordinate of each pixel's centre, and the signed distance between two."""

    def __init__(self, source):
        self.centres = np.arange(source) + 0.5
        self.step = 1.0

    def __len__(self):
        return len(self.centres)

    def pad(self, before, after):
        self.centres = np.pad(self.centres, (before, after), constant_values=np.nan)

    def crop(self, start, size):
        assert 0 <= start <= start + size <= len(self)
        self.centres = self.centres[start : start + size]

    def flip(self):
        self.centres, self.step = self.centres[::-1], -self.step

    def resize(self, size):
        in_pixels = (np.arange(size) + 0.5) * len(self) / size - 0.5
        self.centres, self.step = self.centres[0] + self.step * in_pixels, self.step * len(self) / size

    def centre_crop(self, size):
        """As torchvision's center_crop pads and cuts."""
        if size > len(self):
            self.pad((size - len(self)) // 2, (size - len(self) + 1) // 2)
        self.crop(round((len(self) - size) / 2.0), size)


def literal_image(ops, width, height):
    """The axes (x, y) after every step, each done to the result of the one before."""
    x, y = Literal(width), Literal(height)
    for stage, (kind, *p) in enumerate(ops.tolist()):
        stream = Stream(KEY, 0, 0, 0, stage)
        size = int(p[0]), int(p[1])
        if kind == 1:
            left, top, w, h = resized_crop_box(len(x), len(y), [kind, *p], stream)
            x.crop(left, w), y.crop(top, h), x.resize(size[1]), y.resize(size[0])
        elif kind == 2:
            shorter, longer = sorted((len(x), len(y)))
            new = size[0], int(size[0] * longer / shorter)
            if size[1] and new[1] > size[1]:
                new = int(size[1] * new[0] / new[1]), size[1]
            landscape = len(x) > len(y)
            x.resize(new[landscape]), y.resize(new[not landscape])
        elif kind == 3:
            x.resize(size[1]), y.resize(size[0])
        elif kind == 4:
            x.centre_crop(size[1]), y.centre_crop(size[0])
        elif kind == 5:
            literal_random_crop(x, y, [int(value) for value in p], stream)
        elif kind in (9, 10, 11):  # the first copy: from the corner, or the middle where that is the only one
            for side, length, count in ((x, size[1], p[3]), (y, size[0], p[2])):
                side.crop(round((len(side) - length) / 2) if kind == 11 and count == 1 else 0, length)
        elif kind == 6:
            scale = min(size[1] / len(x), size[0] / len(y))
            new = [min(most, max(1, round(len(side) * scale))) for side, most in ((x, size[1]), (y, size[0]))]
            x.resize(new[0]), y.resize(new[1]), x.centre_crop(size[1]), y.centre_crop(size[0])
        elif uniform(stream.at(0)[0], 0, 1) < p[0]:
            (x if kind == 7 else y).flip()
    return x.centres, y.centres


def literal_random_crop(x, y, p, stream):
    height, width, left, top, right, bottom, if_needed = p[:7]
    x.pad(left, right), y.pad(top, bottom)
    if if_needed:
        x.pad(*[max(0, width - len(x))] * 2), y.pad(*[max(0, height - len(y))] * 2)
    down, across = stream.at(0)
    x.crop(below(across, len(x) - width + 1), width), y.crop(below(down, len(y) - height + 1), height)


def drawn_image(row):
    """The axes (x, y) that a view describes: its window over its inner rectangle, padding around, flips last."""
    view = {name: row[at] for name, at in COLUMN.items()}
    axes = []
    for low, high, size, start, inner, flip in [
        ("x0", "x1", "width", "inner_x", "inner_width", "hflip"),
        ("y0", "y1", "height", "inner_y", "inner_height", "vflip"),
    ]:
        canvas = np.full(int(view[size]), np.nan)
        count, first = int(view[inner]), int(view[start])
        step = (view[high] - view[low]) / max(count, 1)
        canvas[first : first + count] = view[low] + (np.arange(count) + 0.5) * step
        axes.append(canvas[::-1] if view[flip] else canvas)
    return axes


@settings(max_examples=6 * settings().max_examples)
@given(programs(), st.integers(1, 60) | st.integers(1, 900), st.integers(1, 60) | st.integers(1, 900))
@pytest.mark.long
def test_a_composed_view_is_its_steps_done_one_by_one(program, width, height):
    address = {"key": KEY, "sample": 0, "number": 0, "dataset": 0, "width": width, "height": height}
    row = sampled(program, address)
    if row is None:
        return
    literal = literal_image(program.ops, width, height)
    if all(np.isnan(axis).all() for axis in drawn_image(row)):
        assert any(np.isnan(axis).all() for axis in literal)
        return
    for got, expected in zip(drawn_image(row), literal, strict=True):
        np.testing.assert_allclose(got, expected, rtol=0, atol=1e-7 * max(width, height))


def bounds(view, **source):
    got = core_view(view, **source)
    return tuple(got[name] for name in ("left", "top", "right", "bottom"))


def test_a_crop_of_source_pixels_bounds_the_taps():
    assert bounds([CenterCrop(100), Resize(50)], width=500, height=375) == (200, 138, 300, 238)
    crop = core_view(RandomResizedCrop(224))
    assert bounds(RandomResizedCrop(224)) == (crop["x0"], crop["y0"], crop["x1"], crop["y1"])


def test_a_crop_after_a_resize_does_not():
    assert bounds([Resize(256), CenterCrop(224)], width=500, height=375) == (0, 0, 500, 375)
    assert bounds([CenterCrop(300), Resize(256), CenterCrop(224)], width=500, height=375) == (100, 38, 400, 338)


def test_a_resize_to_the_same_size_leaves_the_source_scale():
    assert bounds([Resize((375, 500)), CenterCrop(100)], width=500, height=375) == (200, 138, 300, 238)


@pytest.mark.parametrize(("width", "height"), [(500, 375), (375, 500), (256, 256), (257, 300), (1000, 257)])
def test_resize_then_centre_crop_has_torchvisions_offsets(width, height):
    got = core_view([Resize(256), CenterCrop(224)], width=width, height=height)
    wide, high = (256 * width // height, 256) if width > height else (256, 256 * height // width)
    left, top = round((wide - 224) / 2), round((high - 224) / 2)
    np.testing.assert_allclose([got["x0"], got["x1"]], [left * width / wide, (left + 224) * width / wide], rtol=1e-14)
    np.testing.assert_allclose([got["y0"], got["y1"]], [top * height / high, (top + 224) * height / high], rtol=1e-14)


def scaled(view, from_size, to_size):
    ones = np.zeros(1, np.uint32)
    row = _core.sample_views(
        compile_view(view).ops, 3, np.zeros(1, np.int64), ones, 0, *[np.array([side], np.int32) for side in from_size]
    )
    return row[0], _core.scale_views(row, *from_size, *to_size)[0]


def test_a_field_of_the_same_size_has_the_same_view():
    row, same = scaled(RandomResizedCrop(224, flip=0.5), (501, 377), (501, 377))
    assert np.array_equal(row, same)


def test_a_field_of_half_the_size_has_half_the_window_and_the_same_output():
    row, half = scaled(RandomResizedCrop(224, flip=1.0), (500, 376), (250, 188))
    assert np.array_equal(half[:4], row[:4] / 2)
    assert half[4:8].tolist() == [row[4] // 2, row[5] // 2, -(-row[6] // 2), -(-row[7] // 2)]
    assert np.array_equal(half[8:], row[8:])


@settings(max_examples=3 * settings().max_examples)
@given(programs(), st.integers(1, 700), st.integers(1, 700), st.integers(1, 700))
def test_scaled_windows_stay_inside_their_bounds(program, width, height, to_width):
    to_height = max(1, round(height * to_width / width))
    row = sampled(program, {"key": KEY, "sample": 0, "number": 0, "dataset": 0, "width": width, "height": height})
    if row is None:
        return
    x0, y0, x1, y1, left, top, right, bottom = _core.scale_views(row[None], width, height, to_width, to_height)[0][:8]
    assert 0 <= left <= x0 <= x1 <= right <= to_width
    assert 0 <= top <= y0 <= y1 <= bottom <= to_height
    assert left < right
    assert top < bottom


@pytest.mark.parametrize(
    ("from_size", "to_size", "same"),
    [
        ((1024, 768), (512, 384), True),
        ((1023, 767), (512, 384), True),
        ((512, 384), (1023, 767), True),
        ((500, 375), (250, 188), True),
        ((500, 375), (250, 187), True),
        ((500, 375), (250, 190), False),
        ((500, 375), (375, 500), False),
        ((1000, 10), (500, 6), True),
        ((1000, 10), (500, 7), False),
        ((500, 375), (0, 0), False),
    ],
)
def test_another_aspect_ratio_is_refused(from_size, to_size, same):
    row = core_view(None, width=from_size[0], height=from_size[1])
    table = np.array([list(row.values())])
    if same:
        assert _core.scale_views(table, *from_size, *to_size)[0][2:4].tolist() == list(to_size)
        return
    with pytest.raises(ValueError, match=rf"this field is {to_size[0]} x {to_size[1]} .* same aspect ratio"):
        _core.scale_views(table, *from_size, *to_size)
