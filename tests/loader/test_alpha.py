"""Transparent images: composited over a background as Pillow does it, or one warning that names the first."""

from __future__ import annotations

import io
import warnings
from typing import Any

import numpy as np
import pytest
from loader_data import photograph
from PIL import Image

import headrace as hr
from headrace.errors import UsageError

BACKGROUND = (250, 20, 130)
WIDTH, HEIGHT = 40, 30


def transparent(kind: str) -> bytes:
    picture = photograph(3, WIDTH, HEIGHT)
    alpha = Image.fromarray(np.linspace(0, 255, WIDTH * HEIGHT).reshape(HEIGHT, WIDTH).astype(np.uint8))
    out, options = io.BytesIO(), {}
    match kind:
        case "RGBA" | "WEBP":
            picture.putalpha(alpha)
        case "LA":
            picture = Image.merge("LA", [picture.convert("L"), alpha])
        case "P" | "GIF":
            picture = picture.quantize(64)
            options = {"transparency": bytes(range(0, 256, 4)) if kind == "P" else 7}
        case "RGB":
            options = {"transparency": picture.getpixel((5, 5))}
        case "L":
            picture = picture.convert("L")
            options = {"transparency": picture.getpixel((5, 5))}
        case "opaque":
            picture.putalpha(255)
    if kind == "WEBP":
        options = {"lossless": True, "exact": True}
    picture.save(out, kind if kind in ("WEBP", "GIF") else "PNG", **options)
    return out.getvalue()


KINDS = ["RGBA", "LA", "P", "RGB", "L", "WEBP", "GIF"]


def load(files: list[bytes], image: hr.Image, **options: Any) -> list[np.ndarray]:
    loader = hr.Loader(hr.open(files), {"image": image}, batch_size=1, output="numpy", on_error="raise", **options)
    return [batch["image"][0].transpose(1, 2, 0) for batch in loader]


@pytest.mark.parametrize("mode", ["RGB", "L"])
@pytest.mark.parametrize("kind", [*KINDS, "opaque"])
def test_transparent_images_are_composited_as_pillow_does(kind: str, mode: str) -> None:
    file = transparent(kind)
    canvas = Image.new("RGBA", (WIDTH, HEIGHT), (*BACKGROUND, 255))
    canvas.alpha_composite(Image.open(io.BytesIO(file)).convert("RGBA"))
    expected = np.asarray(canvas.convert("RGB").convert(mode)).reshape(HEIGHT, WIDTH, -1)
    (found,) = load([file], hr.Image(mode=mode, background=BACKGROUND))
    assert np.abs(found.astype(int) - expected).max() <= 1
    half = canvas.convert("RGB").convert(mode).resize((20, 15), Image.Resampling.BILINEAR)
    (found,) = load([file], hr.Image(mode=mode, background=BACKGROUND), view=hr.Resize((15, 20)))
    assert np.abs(found.astype(int) - np.asarray(half).reshape(15, 20, -1)).max() <= 1


def test_a_cache_knows_the_background() -> None:
    for colour in ((0, 0, 0), (255, 255, 255)):
        first, again = (load([transparent("RGBA")], hr.Image(background=colour), cache="ram:8MB") for _ in range(2))
        assert first[0][0, 0].tolist() == again[0][0, 0].tolist() == list(colour)


@pytest.mark.parametrize("kind", KINDS)
def test_alpha_that_varies_is_named_once(kind: str) -> None:
    with pytest.warns(UserWarning, match="alpha") as found:
        load([transparent("opaque"), *[transparent(kind)] * 3], hr.Image())
    (warning,) = found
    assert repr(hr.open([transparent("opaque"), *[transparent(kind)] * 3]).key(1)) in str(warning.message)


def test_who_said_what_becomes_of_alpha_is_not_warned() -> None:
    for file, image in (
        (transparent("opaque"), hr.Image()),
        (transparent("RGBA"), hr.Image(background=BACKGROUND)),
        (transparent("RGBA"), hr.Image(channels=4)),
        (transparent("RGBA"), hr.Image(channels=3)),
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            load([file], image)


@pytest.mark.parametrize(
    "options",
    [
        {"background": 255},
        {"background": (1, 2)},
        {"background": (0, 0, 256)},
        {"background": "white"},
        {"background": BACKGROUND, "channels": 4},
        {"background": BACKGROUND, "channels": 2},
        {"background": BACKGROUND, "dtype": "uint16"},
    ],
    ids=str,
)
def test_backgrounds_that_cannot_be(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="background"):
        hr.Image(**options)
