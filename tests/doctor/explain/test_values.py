"""Numbers and texts of samples are recovered from what the dataset holds, and chance is no explanation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from headrace.doctor.explain import ValueExplanation, explain_value

PATHS = [f"{name}/{number:03}.jpg" for number, name in enumerate(["cat", "dog", "cat", "elk", "dog", "elk"])]
COLUMNS: dict[str, Any] = {
    "path": PATHS,
    "folder": [path.split("/")[0] for path in PATHS],
    "target": np.array([0.5, 1.25, 2.0, 4.0, 8.0, 9.5]),
    "id": [70, 71, 72, 73, 74, 75],
}
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
