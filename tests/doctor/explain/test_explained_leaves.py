"""Numbers, texts, masks and planes are recovered from columns and files, and chance is no explanation."""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
import pytest
from PIL import Image

from headrace.doctor.explain import Box, LeafPlacement, Sighting, ValueExplanation, explain_mask, explain_value
from headrace.doctor.explain.planes import Normalisation, explain_plane


def labels(state: np.random.Generator, height: int, width: int) -> np.ndarray:
    coarse = state.choice([0, 7, 21, 255], (height // 10 + 1, width // 10 + 1)).astype(np.uint8)
    return np.array(Image.fromarray(coarse).resize((width, height), Image.Resampling.NEAREST))


TABLE = np.zeros(256, np.int64)
TABLE[[7, 21, 255]] = 1, 2, -100


@pytest.mark.one_in(4)
@pytest.mark.parametrize("seed", range(20))
def test_nearest_and_a_table_are_recovered(seed: int) -> None:
    state = np.random.default_rng(seed)
    seen, placements = [], []
    size = int(state.integers(20, 120)), int(state.integers(20, 120))
    for _ in range(4):
        height, width = (int(state.integers(40, 200)) for _ in range(2))
        source = labels(state, height, width)
        top, left = int(state.integers(0, height - 20)), int(state.integers(0, width - 20))
        window = Box(top, left, int(state.integers(20, height - top + 1)), int(state.integers(20, width - left + 1)))
        cut = source[top : top + window.height, left : left + window.width]
        if seed % 2:
            made = np.array(Image.fromarray(cut).resize(size[::-1], Image.Resampling.NEAREST))
        else:
            made = cv2.resize(cut, size[::-1], interpolation=cv2.INTER_NEAREST)
        is_flipped = bool(state.integers(2))
        leaf = TABLE[made][:, ::-1] if is_flipped else TABLE[made]
        seen.append(Sighting(leaf[None] if seed % 3 else leaf, source, (window,)))
        placements.append(LeafPlacement(window, size, (0, 0), is_flipped))
    for shared in (None, placements):
        found = explain_mask(seen, shared)
        assert found is not None
        assert found.placements == tuple(placements)
        assert all(found.table[key] == TABLE[key] for key in found.table)
        assert found.layout == ("CHW" if seed % 3 else "HW")
        assert found.filter == ("nearest-pillow" if seed % 2 else "nearest-opencv")


@pytest.mark.parametrize("is_flipped", [False, True])
def test_a_window_of_renumbered_labels_is_found_by_their_borders(is_flipped: bool) -> None:
    """Brightness shows no place: the table neither rises nor falls with the file's values, and no call was seen."""
    table = np.zeros(256, np.int64)
    table[[0, 7, 21, 255]] = 40, 90, 0, 60
    state = np.random.default_rng(5)
    sources = [labels(state, 200, 300) for _ in range(4)]
    ats = [(31, 94), (7, 150), (63, 2), (120, 77)]
    leaves = [table[source[top : top + 64, left : left + 64]] for source, (top, left) in zip(sources, ats, strict=True)]
    turned = [leaf[:, ::-1] if is_flipped else leaf for leaf in leaves]
    found = explain_mask([Sighting(*pair) for pair in zip(turned, sources, strict=True)])
    assert found is not None
    assert [(one.window.top, one.window.left, one.is_flipped) for one in found.placements] == [
        (*at, is_flipped) for at in ats
    ]


def test_of_filters_that_fit_the_best_is_recovered() -> None:
    """A small region and a smooth plane show few of the pixels, or little of the values, in which filters differ."""
    label = np.zeros((400, 640), np.uint8)
    label[150:170, 200:230] = 1
    rows, columns = np.mgrid[0:400, 0:640]
    plane = (40 * rows + 60 * columns).astype(np.uint16)
    for source, explain in ((label, explain_mask), (plane, explain_plane)):
        leaf = cv2.resize(source.astype(np.float32), (400, 250), interpolation=cv2.INTER_NEAREST)
        whole = LeafPlacement(Box(0, 0, 400, 640), (250, 400), (0, 0))
        found = explain([Sighting(leaf, source)], [whole])
        assert found is not None
        assert found.filter == "nearest-opencv"


def test_values_that_a_filter_invented_are_no_table() -> None:
    state = np.random.default_rng(3)
    sources = [labels(state, 120, 90) for _ in range(3)]
    seen = [Sighting(cv2.resize(source, (64, 64), interpolation=cv2.INTER_LINEAR), source) for source in sources]
    assert explain_mask(seen) is None


def test_colours_become_classes() -> None:
    state = np.random.default_rng(4)
    colours = np.array([[0, 0, 0], [128, 0, 0], [0, 128, 64]], np.uint8)
    seen = []
    for _ in range(3):
        classes = labels(state, 50, 60) // 10 % 3
        seen.append(Sighting(classes.astype(np.int64), colours[classes]))
    found = explain_mask(seen)
    assert found is not None
    assert found.filter is None
    assert found.table == {0: 0, 128 << 16: 1, (128 << 8) + 64: 2}


def test_turned_and_padded_masks_are_recovered() -> None:
    """Of a leaf that reaches out of the picture, `fill` is what stands there, and no class."""
    state = np.random.default_rng(11)
    source = labels(state, 60, 90)
    turned = TABLE[source][20:50, 10:70].T[::-1]
    found = explain_mask([Sighting(turned, source, (Box(20, 10, 30, 60),))])
    assert found is not None
    assert (found.placements[0].is_transposed, found.placements[0].is_upside_down) == (True, True)
    padded = np.full((80, 90), 77)
    padded[5:65] = TABLE[source]
    found = explain_mask([Sighting(padded, source)])
    assert found is not None
    assert found.fill == 77
    assert 77 not in found.table.values()
    assert found.placements[0].at == (-5, 0)


PATHS = [f"{name}/{number:03}.jpg" for number, name in enumerate(["cat", "dog", "cat", "elk", "dog", "elk"])]
COLUMNS: dict[str, Any] = {"path": PATHS, "folder": [path.split("/")[0] for path in PATHS]}
COLUMNS |= {"target": np.array([0.5, 1.25, 2.0, 4.0, 8.0, 9.5]), "id": [70, 71, 72, 73, 74, 75]}
INDICES = [0, 1, 3, 5]


@pytest.mark.parametrize(
    ("leaves", "expected"),
    [
        ([np.int64(70), np.int64(71), np.int64(73), np.int64(75)], ValueExplanation("equal", "id")),
        ([f"/data/{PATHS[index]}" for index in INDICES], ValueExplanation("affixed", "path", prefix="/data/")),
        ([np.array(0), np.array(1), np.array(2), np.array(2)], ValueExplanation("class", "folder")),
        ([[1.0, 0, 0], [0, 1.0, 0], [0, 0, 1.0], [0, 0, 1.0]], ValueExplanation("one-hot", "folder")),
        ([1.0, 2.5, 8.0, 19.0], ValueExplanation("affine", "target", scale=2.0, shift=0.0)),
        (INDICES, ValueExplanation("index")),
        ([3, 3, 3, 3], ValueExplanation("constant", value=3)),
        ([b"cat", b"dog", b"elk", b"elk"], ValueExplanation("equal", "folder")),
    ],
    ids=lambda value: value.kind if isinstance(value, ValueExplanation) else "",
)
def test_what_follows_from_a_column(leaves: list[Any], expected: ValueExplanation) -> None:
    found = explain_value(leaves, INDICES, COLUMNS)
    assert found is not None
    assert (found.kind, found.column, found.prefix, found.suffix, found.value) == (
        *(expected.kind, expected.column, expected.prefix, expected.suffix, expected.value),
    )
    assert (found.scale, found.shift) == pytest.approx((expected.scale, expected.shift), abs=1e-9)


@pytest.mark.parametrize("leaves", [[5, 1, 4, 4], ["a", "b", "c", "d"], [None, 1, 2, 3], [[1], [2], [3], [4]]])
def test_what_follows_from_none(leaves: list[Any]) -> None:
    assert explain_value(leaves, INDICES, COLUMNS) is None


def test_two_points_bear_out_no_line() -> None:
    assert explain_value([3.0, 9.0], [0, 1], {"target": COLUMNS["target"]}) is None


def depths(count: int = 4, *, holes: bool = True) -> list[np.ndarray]:
    """Return smooth planes of 16 bits, a part of them without a value, and some beyond 50,000."""
    found = []
    for number in range(count):
        state = np.random.default_rng(number)
        rows, columns = np.mgrid[0:90, 0:120]
        plane = 3000 * (number + 2) + 150 * rows + 90 * columns + state.normal(0, 400, rows.shape)
        plane[20:30, 40:60] = 55_000 + state.integers(0, 5000, (10, 20))
        if holes:
            plane[state.random(plane.shape) < 0.1] = 0
        found.append(np.clip(plane, 0, 65_535).astype(np.uint16))
    return found


def test_scale_and_fill_are_recovered() -> None:
    seen = []
    for plane in depths():
        valid = (plane > 0) & (plane < 50_000)
        seen.append(Sighting(np.where(valid, plane * np.float32(0.001), np.float32(0))[None], plane))
    found = explain_plane(seen)
    assert found is not None
    assert (found.layout, found.filter, found.is_validity, found.fill) == ("CHW", None, False, 0)
    assert found.scale == pytest.approx(0.001, rel=1e-4)
    assert found.far is not None
    assert found.far.least < 50_000 < found.far.most
    assert found.far.roundest(0.001) == 50


def test_validity_is_recovered() -> None:
    seen = [Sighting((plane > 0) & (plane < 50_000), plane) for plane in depths()]
    found = explain_plane(seen)
    assert found is not None
    assert found.is_validity
    assert found.near is not None
    assert found.far is not None
    assert found.near.least == 0 < found.near.most
    assert found.far.least < 50_000 < found.far.most


@pytest.mark.parametrize("quantiles", [(0.02, 0.98), (0.0, 1.0), (0.05, 0.9)])
@pytest.mark.parametrize("range_", [(-1.0, 1.0), (0.0, 1.0)])
def test_normalisation_by_the_sample_is_recovered(quantiles: tuple[float, float], range_: tuple[float, float]) -> None:
    seen = []
    for plane in depths():
        valid = (plane > 0) & (plane < 50_000)
        low, high = np.quantile(plane[valid], quantiles)
        made = (plane - low) / (high - low) * (range_[1] - range_[0]) + range_[0]
        leaf = np.where(valid, np.clip(made, *range_), range_[0]).astype(np.float32)
        seen.append(Sighting(leaf, plane))
    found = explain_plane(seen)
    assert found is not None
    assert found.normalisation is not None
    low, high = (pytest.approx(quantiles[at], abs=0.004) for at in (0, 1))
    assert found.normalisation == Normalisation(low, high, range_, False)


def test_a_plane_of_another_file_is_no_explanation() -> None:
    planes = depths(6, holes=False)
    seen = [Sighting(np.random.default_rng(9).permutation(plane * 0.001), plane) for plane in planes[:3]]
    assert explain_plane(seen) is None
