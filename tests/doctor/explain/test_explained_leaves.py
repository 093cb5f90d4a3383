"""Arrays of classes are recovered from label pictures: nearest filters, tables of values, shared views."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
from PIL import Image

from headrace.doctor.explain import Box, LeafPlacement, Sighting, explain_mask


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
