"""What torchvision makes of small images (torchvision.npz, by scripts/augmentation_table.py), and the twin's values."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from twin import augment_pixels as twin


@dataclass(frozen=True)
class Case:
    """One call of torchvision.transforms.v2.functional."""

    op: str
    arguments: dict[str, Any]
    image: np.ndarray
    value: np.ndarray

    @property
    def size(self) -> tuple[int, int]:
        return self.image.shape[1], self.image.shape[0]

    def __str__(self) -> str:
        return f"{self.op}({self.arguments}) of {self.image.shape}"


@cache
def stored() -> dict[str, np.ndarray]:
    with np.load(Path(__file__).parent / "torchvision.npz") as table:
        return dict(table)


@cache
def cases() -> dict[str, list[Case]]:
    """By the operation's name."""
    table, at = stored(), 0
    found: dict[str, list[Case]] = {}
    for case in json.loads(str(table["cases"])):
        image = table[f"images/{case['image']}"]
        value = table["values"][at : at + image.size].reshape(image.shape)
        found.setdefault(case["op"], []).append(Case(case["op"], case["arguments"], image, value))
        at += image.size
    assert at == table["values"].size
    return found


def twins_value(case: Case) -> np.ndarray:
    """The twin's value of a colour operation."""
    given = case.arguments
    match case.op:
        case "rgb_to_grayscale":
            return twin.grayscale(case.image)
        case "gaussian_blur":
            return twin.gaussian_blur(case.image, given["sigma"][0], *given["kernel_size"])
        case "permute_channels":
            return twin.permute_channels(case.image, given["permutation"])
        case "erase":
            return twin.erase(case.image, given["j"], given["i"], given["w"], given["h"], given["v"])
    return getattr(twin, case.op.removeprefix("adjust_"))(case.image, *given.values())


def source_map(case: Case) -> np.ndarray:
    """3x3 of a geometric operation: from the output's position to the source's."""
    given = case.arguments
    if case.op == "perspective":
        return twin.perspective_map(given["startpoints"], given["endpoints"])
    if case.op == "rotate":
        return twin.affine_map(case.size, -given["angle"], (0, 0), 1, (0, 0))
    names = "angle", "translate", "scale", "shear"
    return twin.affine_map(case.size, *(given[name] for name in names), given.get("center"))


def sources(case: Case) -> np.ndarray:
    """[height, width, 2]: x, y that each pixel comes from, whole numbers at pixel centres."""
    if case.op == "elastic":
        return twin.positions(*case.size) + stored()["displacement"] * np.array(case.size) / 2
    return twin.mapped(case.size, source_map(case))


def decided(case: Case, at: np.ndarray) -> np.ndarray:
    """Where one pixel's value is the only right one, of those that come from `at`.

    torchvision computes `at` in float32: a nearest pixel that is half a pixel away either side is its rounding's
    choice. Bilinear values that lie partly outside are blended with black where `fill` is None, whatever it means.
    """
    if case.arguments["interpolation"] == "nearest":
        return (np.abs(at - np.floor(at) - 0.5) > 1e-4).all(-1)
    if case.arguments["fill"] is not None:
        return np.ones(at.shape[:2], bool)
    low, high = at.min(-1), (np.array(case.size) - 1 - at).min(-1)
    return (np.minimum(low, high) >= 0) | (np.minimum(low, high) <= -1)
