"""Write tests/augment/torchvision.npz: what torchvision.transforms.v2.functional makes of small uint8 images.

    pip install torch torchvision && python scripts/augmentation_table.py

headrace and its tests need neither; run this only to renew the table, and name the versions in the commit. The file has
    images/NAME   uint8 [height, width, channels]
    values        uint8, what each case makes of its image, flat and one after another: as large as the image each
    cases         JSON: one {"image", "op", "arguments"} a case; `op` is the function in torchvision
    displacement  float64 [height, width, 2], in torchvision's units: what the `elastic` cases take
    versions      JSON: of torch and torchvision
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torchvision
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional

TABLE = Path(__file__).parents[1] / "tests" / "augment" / "torchvision.npz"
WIDTH, HEIGHT = 24, 17
Arguments = dict[str, Any]


def images() -> dict[str, np.ndarray]:
    """Smooth colours under noise; every corner of the colour cube and greys; one colour; one channel; few levels."""
    rng = np.random.default_rng(21)
    y, x = np.mgrid[0:HEIGHT, 0:WIDTH]
    waves = np.stack([128 + 100 * np.sin(a * x + b * y) for a, b in ((0.3, 0.1), (-0.2, 0.4), (0.1, -0.3))], -1)
    colours = np.clip(waves + rng.normal(0, 12, waves.shape), 0, 255).astype(np.uint8)
    corners = np.array([[r, g, b] for r in (0, 255) for g in (0, 255) for b in (0, 255)], np.uint8)
    greys = np.repeat(rng.integers(0, 256, (32, 1)), 3, axis=1).astype(np.uint8)
    near = np.clip(greys.astype(int) + rng.integers(-2, 3, (32, 3)), 0, 255).astype(np.uint8)
    saturated = np.concatenate([corners, greys, near, rng.choice([0, 1, 254, 255], (24, 3)).astype(np.uint8)])
    return {
        "colours": colours,
        "saturated": saturated.reshape(8, 12, 3),
        "constant": np.full((5, 7, 3), (200, 30, 90), np.uint8),
        "grey": colours[:11, :13, 1:2].copy(),
        "levels": rng.choice([30, 31, 90, 200], (9, 10, 3), p=[0.7, 0.1, 0.1, 0.1]).astype(np.uint8),
        "tiny": colours[:2, :3].copy(),
        "square": colours[3:12, 5:14].copy(),
    }


COLOUR_OPS: dict[str, list[Arguments]] = {
    "adjust_brightness": [{"brightness_factor": f} for f in (0.0, 0.3, 0.6, 1.0, 1.37, 1.9, 3.0)],
    "adjust_contrast": [{"contrast_factor": f} for f in (0.0, 0.3, 0.6, 1.0, 1.37, 1.9, 3.0)],
    "adjust_saturation": [{"saturation_factor": f} for f in (0.0, 0.3, 0.6, 1.0, 1.37, 1.9, 3.0)],
    "adjust_hue": [{"hue_factor": f} for f in (-0.5, -0.25, -0.1, -0.013, 0.0, 0.05, 0.18, 1 / 3, 0.5)],
    "adjust_sharpness": [{"sharpness_factor": f} for f in (0.0, 0.1, 0.55, 1.0, 1.9, 2.5)],
    "rgb_to_grayscale": [{"num_output_channels": 3}],
    "invert": [{}],
    "solarize": [{"threshold": t} for t in (0.0, 0.5, 110.0, 127.5, 128.0, 200.6, 255.0)],
    "posterize": [{"bits": bits} for bits in range(9)],
    "autocontrast": [{}],
    "equalize": [{}],
    "gaussian_blur": [
        {"kernel_size": [w, h], "sigma": [s, s]}
        for w, h, s in ((3, 3, 0.1), (3, 3, 0.8), (5, 3, 1.5), (1, 7, 2.0), (9, 9, 1.1), (23, 23, 0.1), (23, 23, 2.0))
    ],
    "permute_channels": [{"permutation": p} for p in ([0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0])],
    "erase": [
        {"i": 0, "j": 0, "h": 1, "w": 2, "v": [0, 0, 0]},
        {"i": 1, "j": 2, "h": 4, "w": 3, "v": [255, 7, 101]},
    ],
}
"""Every image of enough channels and size takes each of these."""
OF_COLOURS = ("adjust_hue", "erase", "permute_channels", "rgb_to_grayscale")


def shear(degrees_x: float, degrees_y: float) -> Arguments:
    return {"shear": [degrees_x, degrees_y]}


AFFINES: list[Arguments] = [
    {},
    {"translate": [3, 0]},
    {"translate": [0, -2]},
    {"translate": [-7, 5]},
    {"translate": [30, 0]},
    shear(math.degrees(math.atan(0.3)), 0.0) | {"center": [0, 0]},
    shear(math.degrees(math.atan(-0.17)), 0.0) | {"center": [0, 0]},
    shear(0.0, math.degrees(math.atan(0.3))) | {"center": [0, 0]},
    shear(0.0, math.degrees(math.atan(-0.99))) | {"center": [0, 0]},
    shear(11.0, -7.0),
    {"angle": 33.0},
    {"angle": -17.5, "scale": 0.7},
    {"angle": 121.0, "translate": [2, -3], "scale": 1.3} | shear(9.0, 4.0),
    {"scale": 2.5},
    {"scale": 0.31},
]
ANGLES = (0.0, 7.0, -30.0, 45.0, 90.0, 135.0, 180.0, -90.0, 359.5)
CORNERS = [
    [[2, 1], [21, 3], [23, 15], [0, 12]],
    [[5, 4], [18, 0], [20, 16], [3, 13]],
    [[0, 0], [23, 0], [23, 16], [0, 16]],
]
"""Where `perspective` moves the corners of `colours`."""


def geometric_cases() -> Iterator[tuple[str, str, Arguments]]:
    """image, op, arguments"""
    for interpolation in ("nearest", "bilinear"):
        for number, given in enumerate(AFFINES):
            affine = {"angle": 0.0, "translate": [0, 0], "scale": 1.0, "shear": [0.0, 0.0]} | given
            yield "colours", "affine", affine | {"interpolation": interpolation, "fill": [9, 200, 77]}
            if number % 3 == 0:
                yield "square", "affine", affine | {"interpolation": interpolation, "fill": None}
        for number, angle in enumerate(ANGLES):
            for image in ("colours", "square") if number % 2 else ("colours",):
                yield image, "rotate", {"angle": angle, "interpolation": interpolation, "fill": [9, 200, 77]}
        start = [[0, 0], [WIDTH - 1, 0], [WIDTH - 1, HEIGHT - 1], [0, HEIGHT - 1]]
        for end in CORNERS:
            points = {"startpoints": start, "endpoints": end}
            yield "colours", "perspective", points | {"interpolation": interpolation, "fill": [9, 200, 77]}
        yield "colours", "elastic", {"interpolation": interpolation, "fill": [9, 200, 77]}


def colour_cases() -> Iterator[tuple[str, str, Arguments]]:
    for name, image in images().items():
        height, width, channels = image.shape
        for op, every in COLOUR_OPS.items():
            for arguments in every:
                kernel = arguments.get("kernel_size", [1, 1])
                fits = kernel[0] // 2 < width and kernel[1] // 2 < height  # torchvision refuses others
                fits = fits and (channels == 3 or op not in OF_COLOURS)
                if fits and (op != "erase" or height > 5):
                    yield name, op, arguments


def displacement() -> np.ndarray:
    """As ElasticTransform(alpha=60, sigma=3) draws it."""
    torch.manual_seed(21)
    drawn = v2.ElasticTransform(alpha=60.0, sigma=3.0).make_params([torch.zeros(3, HEIGHT, WIDTH)])["displacement"]
    return np.asarray(drawn[0], np.float64)


def value(op: str, image: np.ndarray, arguments: Arguments, moved: np.ndarray) -> np.ndarray:
    given = dict(arguments)
    if op == "erase":
        given["v"] = torch.tensor(given["v"], dtype=torch.uint8)[:, None, None]
    if op == "elastic":
        given["displacement"] = torch.tensor(moved)[None]
    pixels = torch.from_numpy(image).permute(2, 0, 1).contiguous()
    return np.ascontiguousarray(getattr(functional, op)(pixels, **given).permute(1, 2, 0).numpy())


def main() -> None:
    made, moved = images(), displacement()
    cases = [*colour_cases(), *geometric_cases()]
    arrays = {f"images/{name}": image for name, image in made.items()}
    values = [value(op, made[image], arguments, moved) for image, op, arguments in cases]
    assert all(made[case[0]].shape == got.shape for case, got in zip(cases, values, strict=True))
    arrays["values"] = np.concatenate([got.ravel() for got in values])
    text = {
        "cases": [{"image": image, "op": op, "arguments": arguments} for image, op, arguments in cases],
        "versions": {module.__name__: module.__version__ for module in (torch, torchvision)},
    }
    np.savez_compressed(TABLE, displacement=moved, **arrays, **{k: np.array(json.dumps(v)) for k, v in text.items()})
    print(f"{TABLE}: {len(cases)} cases, {TABLE.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    main()
