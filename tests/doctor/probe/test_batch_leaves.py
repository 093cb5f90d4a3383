"""Values inside a batch: where each lies, what it is, and the range of its numbers."""

from __future__ import annotations

import json
from collections import UserDict
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from headrace.doctor.probe.batch_leaves import LONG_LIST, MOST_LEAVES, leaves_of


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (3, [("", "int", None, None, 3, 3)]),
        (True, [("", "bool", None, None, 1, 1)]),
        (float("nan"), [("", "float", None, None, None, None)]),
        (torch.tensor([True, False]), [("", "tensor", [2], "bool", 0, 1)]),
        (torch.zeros(0), [("", "tensor", [0], "float32", None, None)]),
        (np.float32([1, 2]), [("", "ndarray", [2], "float32", 1.0, 2.0)]),
        (np.array(["a"]), [("", "ndarray", [1], "str32", None, None)]),
        (Image.new("I;16", (3, 2)), [("", "PIL", [2, 3], "I;16", None, None)]),
        ({"a": {"b": b"12"}}, [("a.b", "bytes", [2], None, None, None)]),
        (UserDict(a=None), [("a", "None", None, None, None, None)]),
        ([], [("", "builtins.list", None, None, None, None)]),
        (object(), [("", "builtins.object", None, None, None, None)]),
    ],
    ids=lambda value: type(value).__name__,  # an address in a name would differ between xdist's workers
)
def test_leaves(value: Any, expected: list[Any]) -> None:
    assert leaves_of(value) == expected


def test_leaves_are_bounded() -> None:
    long = leaves_of(list(range(LONG_LIST + 1)))
    assert [leaf[0] for leaf in long] == ["", "0", "1", "2"]
    assert long[0] == ("", "list", [LONG_LIST + 1], None, None, None)
    assert len(leaves_of({str(key): [1] * 10 for key in range(60)})) == MOST_LEAVES
    inside: list[Any] = []
    inside.append(inside)
    assert len(leaves_of(inside)) == 1
    json.dumps(leaves_of([torch.tensor(float("inf")), 1 << 80]), allow_nan=False)
