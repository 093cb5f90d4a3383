"""What operations make of pixels: the core's and its numpy twin's, against torchvision's."""

from __future__ import annotations

import numpy as np
import pytest
from programs import program
from torchvision_table import Case, cases, twins_value

from headrace import _core

LEVELS = tuple(_core.levels())
KINDS = {
    "adjust_brightness": 10,
    "adjust_contrast": 11,
    "adjust_saturation": 12,
    "adjust_hue": 13,
    "rgb_to_grayscale": 14,
    "invert": 15,
    "solarize": 16,
    "posterize": 17,
    "autocontrast": 18,
    "equalize": 19,
    "adjust_sharpness": 20,
    "gaussian_blur": 21,
    "permute_channels": 22,
    "erase": 23,
}


def levels_apart(ours: np.ndarray, theirs: np.ndarray) -> int:
    return int(np.abs(ours.astype(int) - theirs).max(initial=0))


def drawn(case: Case) -> tuple[int, list[float]]:
    """The operation of a chain that does what torchvision's call does."""
    given = case.arguments
    numbers = {
        "rgb_to_grayscale": list,
        "gaussian_blur": lambda: [given["sigma"][0], *given["kernel_size"]],
        "permute_channels": lambda: given["permutation"],
        "erase": lambda: [given["j"], given["i"], given["w"], given["h"], *given["v"]],
    }.get(case.op, lambda: list(given.values()))()
    return KINDS[case.op], numbers


@pytest.mark.parametrize("op", KINDS)
def test_operations_are_within_one_level_of_torchvision(op: str) -> None:
    for case in cases()[op]:
        ours = [_core.apply_chain(case.image, [drawn(case)], level=level) for level in LEVELS]
        assert levels_apart(ours[0], case.value) <= 1, str(case)
        assert all(np.array_equal(each, ours[0]) for each in ours), f"levels differ: {case}"


def picture(rng: np.random.Generator, channels: int) -> np.ndarray:
    """Noise, smooth shapes or few colours, of any small size."""
    height, width = rng.integers(1, 40, 2)
    kind = rng.integers(3)
    if kind == 0:
        return rng.integers(0, 256, (height, width, channels), np.uint8)
    if kind == 1:
        return rng.choice(rng.integers(0, 256, 3), (height, width, channels)).astype(np.uint8)
    y, x = np.mgrid[0:height, 0:width]
    wave = [128 + 127 * np.sin(a * x + b * y) for a, b in rng.uniform(-0.3, 0.3, (channels, 2))]
    return np.stack(wave, -1).astype(np.uint8)


@pytest.mark.parametrize("count", [100, pytest.param(3000, marks=pytest.mark.long)])
def test_every_level_has_the_bits_of_scalar(count: int) -> None:
    """Whole chains, of all operations on pixels that programs draw, for pictures of any size."""
    for seed in range(count):
        rng = np.random.default_rng(seed)
        image = picture(rng, int(rng.choice([1, 3])))
        native = _core.Augmentation(program(seed, geometric=False))
        chain = _core.draw_chain(native, 5, seed, 0, width=image.shape[1], height=image.shape[0])
        expected = _core.apply_chain(image, chain, level="scalar")
        for level in LEVELS:
            assert np.array_equal(_core.apply_chain(image, chain, level=level), expected), (seed, level)


@pytest.mark.parametrize("count", [40, pytest.param(1000, marks=pytest.mark.long)])
@pytest.mark.parametrize("op", [op for op in KINDS if op != "erase"])
def test_operations_are_near_their_twin(op: str, count: int) -> None:
    """On pictures and with numbers that are in no table."""
    rng = np.random.default_rng(KINDS[op])
    for _ in range(count):
        image = picture(rng, 3 if op in ("permute_channels", "rgb_to_grayscale") else int(rng.choice([1, 3])))
        case = Case(op, arguments(op, rng), image, image)
        ours, theirs = _core.apply_chain(image, [drawn(case)]), twins_value(case)
        # A grey that float32 rounds down to the next whole number counts |1 - factor| times.
        most = 1 + max(0, abs(1 - case.arguments["saturation_factor"])) if op == "adjust_saturation" else 1
        assert levels_apart(ours, theirs) <= most, str(case)


def arguments(op: str, rng: np.random.Generator) -> dict:
    match op:
        case "adjust_hue":
            return {"hue_factor": rng.uniform(-0.5, 0.5)}
        case "solarize":
            return {"threshold": rng.uniform(0, 255)}
        case "posterize":
            return {"bits": int(rng.integers(9))}
        case "gaussian_blur":
            width, height = (2 * int(half) + 1 for half in rng.integers(0, 12, 2))
            return {"kernel_size": [width, height], "sigma": [rng.uniform(0.1, 3)]}
        case "permute_channels":
            return {"permutation": rng.permutation(3).tolist()}
        case "rgb_to_grayscale" | "invert" | "autocontrast" | "equalize":
            return {}
    return {f"{op.removeprefix('adjust_')}_factor": rng.uniform(0, 2.5)}
