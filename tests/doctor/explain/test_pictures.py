"""Random recipes of pictures are recovered by their values; what no recipe makes is not explained."""

from __future__ import annotations

import numpy as np
import pytest
from picture_recipes import PictureRecipe, photograph
from PIL import Image

from headrace.doctor.explain import Box, Sighting, explain_mask, explain_picture, explain_plane, pictures, resample


@pytest.mark.parametrize("count", [12, pytest.param(2000, marks=[pytest.mark.long, pytest.mark.timeout(1200)])])
def test_recipes_are_recovered(count: int) -> None:
    """At least 99 in 100, and none of the others by another recipe."""
    unexplained = []
    for seed in range(count):
        recipe = PictureRecipe(seed)
        found = explain_picture(recipe.sightings())
        if found is None:
            unexplained.append(recipe)
            continue
        assert found.filter in recipe.filters, recipe
        assert (found.layout, found.channels) == (recipe.layout, recipe.channels), recipe
        assert [one.is_flipped for one in found.placements] == recipe.flips, recipe
        assert not found.is_scaled_by_sample
        assert found.scale == pytest.approx(recipe.scale, rel=1e-3), recipe
        assert np.abs(np.subtract(found.shift, recipe.shift)).max() < 0.5 * max(recipe.scale), recipe
    assert len(unexplained) <= count // 100, unexplained


def test_another_picture_is_no_explanation() -> None:
    state = np.random.default_rng(5)
    seen = [Sighting(photograph(state, 64, 64), photograph(state, 200, 300)) for _ in range(3)]
    assert explain_picture(seen) is None


def test_a_flat_picture_has_the_scale_of_the_others() -> None:
    """A crop of a wall says little of it."""
    seen = []
    for contrast in (1.0, 1.0, 0.01):
        source = (photograph(np.random.default_rng(len(seen)), 64, 64) * contrast + 20).clip(0, 255).astype(np.uint8)
        leaf = resample(source, (22, 22), "bicubic").round().clip(0, 255) / 255
        seen.append(Sighting(leaf.astype(np.float32), source))
    found = explain_picture(seen)
    assert found is not None
    assert not found.is_scaled_by_sample
    assert found.scale == pytest.approx([1 / 255] * 3, rel=0.01)


@pytest.mark.parametrize("is_resampled", [pytest.param(False, marks=pytest.mark.long), True])
@pytest.mark.long
def test_turns_are_told(is_resampled: bool) -> None:
    """The eight ways in which a window may lie, of a window that no call named."""
    state = np.random.default_rng(7)
    source = photograph(state, 90, 140)
    picture = resample(source, (60, 100), "triangle").round() if is_resampled else source.astype(np.float64)
    for number in range(8):
        shown = picture[11:51, 23:53] / 255
        shown = shown.swapaxes(0, 1) if number & 1 else shown
        shown = shown[::-1] if number & 2 else shown
        shown = shown[:, ::-1] if number & 4 else shown
        found = explain_picture([Sighting(shown, source, sizes=((60, 100),))])
        assert found is not None
        (placed,) = found.placements
        turns = tuple(bool(number & bit) for bit in (1, 2, 4))
        assert (placed.is_transposed, placed.is_upside_down, placed.is_flipped) == turns
        assert any(placed.turn[1:]) == bool(number & 3)
        assert found.levels < 0.6


@pytest.mark.one_in(2)
@pytest.mark.parametrize("size", [(90, 140), (45, 70)])
def test_a_picture_within_margins_is_found(size: tuple[int, int]) -> None:
    state = np.random.default_rng(8)
    seen = []
    for top, left in ((3, 20), (12, 0), (30, 7)):
        source = photograph(state, 90, 140)
        leaf = np.full((size[0] + 40, size[1] + 24, 3), -2.0)
        leaf[top : top + size[0], left : left + size[1]] = resample(source, size, "triangle").round() / 60
        seen.append(Sighting(leaf[:, : size[1] + 2].astype(np.float32), source, sizes=(size,)))
    found = explain_picture(seen)
    assert found is not None
    assert found.fill == (-2.0, -2.0, -2.0)
    assert [placed.at for placed in found.placements] == [(-3, -20), (-12, 0), (-30, -7)]
    assert all(placed.is_padded(each.leaf.shape) for placed, each in zip(found.placements, seen, strict=True))


def test_a_window_that_is_not_resampled_is_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """All filters make the same of it: as candidates of their own they took 15 times as long."""
    source, calls = photograph(np.random.default_rng(4), 90, 140), list[object]()
    measured = pictures._measured
    monkeypatch.setattr(pictures, "_measured", lambda *args: calls.append(args) or measured(*args))
    found = explain_picture([Sighting(source[20:70, 30:90] / 255, source, (Box(20, 30, 50, 60),))])
    assert found is not None
    assert (found.filter, len(calls)) == (None, 1)


def test_a_window_of_another_size_is_tried() -> None:
    """A call cut a window of the picture at another size: as a window of the picture it would reach out of it."""
    source = photograph(np.random.default_rng(9), 90, 140)
    leaf = resample(source, (180, 280), "triangle").round()[100:160, 170:250]
    found = explain_picture([Sighting(leaf, source, (Box(100, 170, 60, 80),), ((180, 280),))])
    assert found is not None
    assert (found.placements[0].size, found.placements[0].at) == ((180, 280), (100, 170))


def test_a_leaf_that_is_empty_in_some_samples_is_not_explained() -> None:
    """As boxes are, [count, 4]."""
    source = photograph(np.random.default_rng(1), 40, 40)[..., 0]
    seen = [Sighting(np.zeros(shape, np.float32), source) for shape in ((3, 4), (0, 4))]
    assert explain_picture(seen) is None
    assert explain_mask(seen) is None
    assert explain_plane(seen) is None


@pytest.mark.parametrize(("first", "count"), [("smooth", 1), ("grey", 1), ("grey", 5), ("flat", 1)])
def test_photographs_that_tell_little_decide_nothing(first: str, count: int) -> None:
    """The right filter and channels are those that fit all samples, whichever come first, and however many."""
    state = np.random.default_rng(3)
    sources = [photograph(state, 150, 200) for _ in range(3)]
    ramp = np.add.outer(np.arange(150.0), np.arange(200.0))[..., None]
    told = {"smooth": (ramp * [0.3, 0.32, 0.34]).round().astype(np.uint8), "flat": np.full((150, 200, 3), 17, np.uint8)}
    told["grey"] = np.repeat(sources[0][..., :1], 3, axis=2)
    seen = []
    for source in (*[told[first]] * count, *sources):
        resized = np.array(Image.fromarray(source).resize((85, 64), Image.Resampling.BILINEAR))
        leaf = (resized[:, 10:74].astype(np.float32) / 255 - 0.5) / 0.25
        seen.append(Sighting(leaf.transpose(2, 0, 1), source, sizes=((64, 85),)))
    found = explain_picture(seen)
    assert found is not None
    assert (found.filter, found.channels) == ("triangle", (0, 1, 2))
    assert {one.size for one in found.placements} == {(64, 85)}
    assert not found.is_scaled_by_sample
