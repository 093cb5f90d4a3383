"""What operations make of pixels: the core's and its numpy twin's, against torchvision's."""

from __future__ import annotations

import numpy as np
import pytest
from torchvision_table import GEOMETRIC, cases, decided, sources, twins_value
from twin import augment_pixels as twin


def levels_apart(ours: np.ndarray, theirs: np.ndarray) -> int:
    return int(np.abs(ours.astype(int) - theirs).max(initial=0))


@pytest.mark.parametrize("op", [op for op in cases() if op not in GEOMETRIC])
def test_the_twin_is_within_one_level_of_torchvision(op: str) -> None:
    for case in cases()[op]:
        assert levels_apart(twins_value(case), case.value) <= 1, str(case)


@pytest.mark.parametrize("op", GEOMETRIC)
def test_the_geometric_twin_is_within_one_level_of_torchvision(op: str) -> None:
    for case in cases()[op]:
        at, given = sources(case), case.arguments
        ours = twin.sample(
            case.image, at, bilinear=given["interpolation"] == "bilinear", fill=given["fill"] or (0,) * 3
        )
        sure = decided(case, at)
        assert sure.mean() > 0.7 or given.get("angle") in (90.0, -90.0), str(case)
        assert levels_apart(ours[sure], case.value[sure]) <= 1, str(case)
