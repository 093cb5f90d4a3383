"""Views drawn by the core: equal to the twin bit for bit, and within their own bounds."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from twin import exact_math, views
from twin.rng import Stream

from headrace import _core
from headrace.errors import UsageError
from headrace.views import (
    CenterCrop,
    FiveCrop,
    Letterbox,
    RandomCrop,
    RandomHorizontalFlip,
    RandomQuarterTurn,
    RandomResizedCrop,
    RandomVerticalFlip,
    Resize,
    TenCrop,
    Tiles,
    View,
    compile_view,
)

COLUMN = {column.name.lower(): int(column) for column in _core.ViewColumn}


def core_view(view, *, key=1, sample=0, number=0, dataset=0, width=500, height=375):
    """One view as a dict of columns."""
    row = _core.sample_views(
        compile_view(view).ops,
        key,
        np.array([sample]),
        np.array([number], np.uint32),
        dataset,
        np.array([width], np.int32),
        np.array([height], np.int32),
    )[0]
    return {name: row[at].item() for name, at in COLUMN.items()}


probabilities = st.sampled_from([0.0, 0.5, 1.0])
lengths = st.integers(1, 40) | st.integers(1, 700)
sizes = lengths | st.tuples(lengths, lengths)


@st.composite
def ranges(draw, low, high):
    return tuple(sorted((draw(st.floats(low, high)), draw(st.floats(low, high)))))


VIEWS: st.SearchStrategy[View] = st.one_of(
    st.builds(
        RandomResizedCrop, sizes, scale=ranges(1e-3, 1), ratio=ranges(1e-2, 1e2) | ranges(0.7, 1.4), flip=probabilities
    ),
    st.builds(Resize, sizes, flip=probabilities),
    st.builds(Resize, st.just(20), max_size=st.integers(21, 99)),
    st.builds(CenterCrop, sizes, flip=probabilities),
    st.builds(RandomCrop, sizes, padding=st.none() | st.tuples(*[st.integers(0, 30)] * 4), pad_if_needed=st.booleans()),
    st.builds(Letterbox, sizes, flip=probabilities),
    st.builds(RandomHorizontalFlip, probabilities),
    st.builds(RandomVerticalFlip, probabilities),
    st.builds(RandomQuarterTurn, st.sampled_from([(0.25,) * 4, (0, 1, 0, 0), (0.5, 0, 0.5, 0), (0.1, 0.2, 0.3, 0.4)])),
    st.builds(FiveCrop, sizes),
    st.builds(TenCrop, sizes, st.booleans()),
    st.builds(Tiles, sizes, grid=st.integers(1, 8) | st.tuples(st.integers(1, 8), st.integers(1, 8))),
)


@st.composite
def programs(draw):
    """Lists of views that compile."""
    for _ in range(5):
        steps = draw(st.lists(VIEWS, max_size=5))
        try:
            return compile_view(steps)
        except UsageError:
            continue
    return compile_view(None)


@st.composite
def draws(draw):
    """A program, and the address and size of a sample."""
    side = st.integers(1, 64) | st.integers(1, 3000)
    return draw(programs()), {
        "key": draw(st.integers(0, 2**64 - 1)),
        "sample": draw(st.integers(0, 2**63 - 1)),
        "number": draw(st.integers(0, 2**32 - 1)),
        "dataset": draw(st.integers(0, 2**16 - 1)),
        "width": draw(side),
        "height": draw(side),
        "copy": draw(st.integers(0, 10)),
    }


def sampled(program, address):
    """The core's row, or None where it refuses the source."""
    columns = [
        np.array([address[name]], dtype)
        for name, dtype in [("sample", np.int64), ("number", np.uint32), ("width", np.int32), ("height", np.int32)]
    ]
    try:
        given = *columns[:2], address["dataset"], *columns[2:]
        return _core.sample_views(program.ops, address["key"], *given, copy=address.get("copy", 0))[0]
    except ValueError:
        return None


@settings(max_examples=6 * settings().max_examples)
@given(draws())
@pytest.mark.long
def test_views_equal_the_twin_bit_for_bit(drawn):
    program, address = drawn
    try:
        expected = views.sample_view(program.ops.tolist(), **address)
    except views.ViewError:
        expected = None
    got = sampled(program, address)
    assert (got is None) == (expected is None)
    assert got is None or got.tolist() == expected


@settings(max_examples=4 * settings().max_examples)
@given(draws())
def test_windows_stay_inside_their_bounds_and_the_source(drawn):
    program, address = drawn
    row = sampled(program, address)
    if row is None:
        return
    view = {name: row[at].item() for name, at in COLUMN.items()}
    assert np.all(row[4:] == np.floor(row[4:]))
    width, height = (address[name] for name in ("width", "height")[:: -1 if view["transposed"] else 1])
    for low, high, first, last, source in [
        ("left", "right", "x0", "x1", width),
        ("top", "bottom", "y0", "y1", height),
    ]:
        assert 0 <= view[low] < view[high] <= source
        assert view[low] <= view[first] <= view[last] <= view[high]
    for at, inner, size in [("inner_x", "inner_width", "width"), ("inner_y", "inner_height", "height")]:
        assert 0 <= view[at] <= view[at] + view[inner] <= view[size]
    assert (view["inner_width"] == 0) == (view["inner_height"] == 0) == (view["x0"] == view["x1"])
    assert program.output_size in (None, (view["height"], view["width"]))


@given(st.floats(-690, 690))
def test_exp_is_exact_to_1e14_and_equals_its_twin(x):
    assert _core.exact_exp(x) == exact_math.exact_exp(x)
    assert math.isclose(_core.exact_exp(x), math.exp(x), rel_tol=1e-14)


@given(st.floats(1e-300, 1e300) | st.floats(0.5, 2))
def test_log_is_exact_to_1e14_and_equals_its_twin(x):
    assert _core.exact_log(x) == exact_math.exact_log(x)
    assert math.isclose(_core.exact_log(x), math.log(x), rel_tol=1e-14)


def test_each_part_of_the_address_changes_the_view():
    view = RandomResizedCrop(224)
    base = core_view(view)
    assert core_view(view) == base
    for change in ({"key": 2}, {"sample": 1}, {"sample": 1 << 32}, {"number": 1}, {"dataset": 1}):
        assert core_view(view, **change) != base


def test_each_op_draws_from_its_own_stage():
    # Two flips in one program must not be the same coin.
    both = [
        (view["hflip"], view["vflip"])
        for view in (core_view([RandomHorizontalFlip(), RandomVerticalFlip()], sample=i) for i in range(64))
    ]
    assert len(set(both)) == 4


def test_a_view_does_not_depend_on_its_neighbours_in_the_call():
    ids = np.arange(50)
    zeros, widths, heights = np.zeros(50, np.uint32), np.full(50, 500, np.int32), np.full(50, 375, np.int32)
    ops = compile_view(RandomResizedCrop(224, flip=0.5)).ops
    together = _core.sample_views(ops, 9, ids, zeros, 0, widths, heights)
    alone = [_core.sample_views(ops, 9, ids[[i]], zeros[:1], 0, widths[:1], heights[:1])[0] for i in reversed(ids)]
    assert np.array_equal(together, alone[::-1])


def test_no_op_is_the_whole_source():
    view = core_view(None)
    assert [view[name] for name in ("x0", "y0", "x1", "y1")] == [0, 0, 500, 375]
    assert [view[name] for name in ("width", "height", "inner_width", "inner_height")] == [500, 375, 500, 375]


@pytest.mark.parametrize(
    ("width", "height", "view", "expected"),
    [
        (500, 375, Resize(256), (341, 256)),  # int(256 * 500 / 375)
        (375, 500, Resize(256), (256, 341)),
        (500, 375, Resize(256, max_size=300), (300, 225)),
        (500, 375, Resize((100, 200)), (200, 100)),
        (100, 100, Resize(256), (256, 256)),
    ],
)
def test_resize_sizes_are_torchvisions(width, height, view, expected):
    got = core_view(view, width=width, height=height)
    assert (got["width"], got["height"]) == expected


@pytest.mark.parametrize(
    ("source", "view", "inner"),
    [
        ((100, 50), Letterbox(40), (0, 10, 40, 20)),
        ((50, 100), Letterbox(40), (10, 0, 20, 40)),
        ((100, 53), Letterbox((40, 40)), (0, 9, 40, 21)),  # 19 spare rows: 9 above, 10 below
        ((10, 10), Letterbox((40, 60)), (10, 0, 40, 40)),
        ((1000, 1), Letterbox(10), (0, 4, 10, 1)),
        ((3, 2), CenterCrop(6), (1, 2, 3, 2)),  # 3 spare columns: 1 left, 2 right
        ((10, 10), RandomCrop(12, padding=(2, 1, 0, 1)), (2, 1, 10, 10)),
        ((10, 10), RandomCrop(11, padding=300), None),
    ],
)
def test_padding_lies_where_it_should(source, view, inner):
    got = core_view(view, width=source[0], height=source[1])
    if inner is None:  # a crop wholly in the padding is all fill
        inner = (0, 0, 0, 0)
        assert got["x0"] == got["x1"]
    assert tuple(got[name] for name in ("inner_x", "inner_y", "inner_width", "inner_height")) == inner


@pytest.mark.parametrize(
    ("view", "width", "height", "says"),
    [
        (RandomCrop(32), 20, 40, r"view 0: RandomCrop of 32 x 32 .* from an image of 20 x 40 .* pad_if_needed=True"),
        ([CenterCrop(32), Resize(16)], 20, 40, "padded canvas cannot be resized"),
        (Resize(256), 1, 10_000_000, "the view makes a side|cannot resize an image"),
        (Resize(256), 1, 1_000_000, "beyond max_pixels 178956970"),
        (Resize(20, max_size=30), 1, 100, "the short one 0"),
        (None, 0, 5, "makes a side of 0 pixels"),
        (None, 5, -1, "makes a side of -1 pixels"),
    ],
)
def test_a_source_that_cannot_be_cut_so_is_named(view, width, height, says):
    with pytest.raises(ValueError, match=says):
        core_view(view, width=width, height=height)


def test_a_long_canvas_is_fine_when_the_output_is_not():
    assert core_view([Resize(256), CenterCrop(224)], width=1, height=1_000_000)["height"] == 224


def test_columns_of_unequal_length_are_refused():
    with pytest.raises(ValueError, match="one length"):
        _core.sample_views(
            compile_view(None).ops, 0, np.arange(2), np.zeros(1, np.uint32), 0, *[np.ones(2, np.int32)] * 2
        )


def test_the_random_crop_uses_the_draws_it_documents():
    view = core_view(RandomCrop(100), key=77, sample=5, number=6, dataset=7)
    top, left = (word * n >> 64 for word, n in zip(Stream(77, 5, 6, 7, 0).at(0), (276, 401), strict=True))
    assert (view["left"], view["top"]) == (left, top)
