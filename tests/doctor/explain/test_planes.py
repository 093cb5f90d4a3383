"""Depth and other planes are recovered: scale, bounds, fills, validity, and normalisation by the sample's quantiles."""

from __future__ import annotations

import numpy as np
import pytest

from headrace.doctor.explain import Sighting
from headrace.doctor.explain.planes import Normalisation, explain_plane


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
    assert found.normalisation == Normalisation(
        pytest.approx(quantiles[0], abs=0.004), pytest.approx(quantiles[1], abs=0.004), range_, False
    )


def test_a_plane_of_another_file_is_no_explanation() -> None:
    planes = depths(6, holes=False)
    seen = [Sighting(np.random.default_rng(9).permutation(plane * 0.001), plane) for plane in planes[:3]]
    assert explain_plane(seen) is None
