"""One image through the core's batch path: bytes or pixels in, an array out. For tests of pixels."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from PIL import Image

from headrace import _core

NO_OPS = np.zeros((0, 10))
ITEM_BYTES = {"uint8": 1, "float32": 4, "float16": 2, "bfloat16": 2}
LEVELS = tuple(_core.levels())


def view_row(
    window: tuple[float, float, float, float],
    bounds: tuple[int, int, int, int],
    size: tuple[int, int],
    *,
    inner: tuple[int, int, int, int] | None = None,
    hflip: bool = False,
    vflip: bool = False,
    transposed: bool = False,
) -> np.ndarray:
    """A view as the core takes it. `window` and `bounds` are x0, y0, x1, y1; `size` is width, height."""
    return np.array([[*window, *bounds, *size, *(inner or (0, 0, *size)), hflip, vflip, transposed]], np.float64)


def run(
    item: bytes | np.ndarray,
    view: np.ndarray,
    *,
    level: str = "best",
    dtype: str = "uint8",
    channels: int = 3,
    planar: bool = False,
    limits: _core.Limits | None = None,
    **options: Any,
) -> np.ndarray:
    """[H, W, C] (or [C, H, W] when planar) of the one image, bfloat16 as uint16. Raises ValueError(code, text)."""
    width, height = int(view[0, 8]), int(view[0, 9])
    out = np.zeros(width * height * channels * ITEM_BYTES[dtype], np.uint8)
    job = _core.Job(np.zeros(1, np.int64), np.zeros(1, np.uint32), key=0, program=NO_OPS, views=view)
    described = _core.ImageOptions(channels=channels, dtype=dtype, planar=planar, **options)
    job.add_image(_core.Ranges(), described, memory=[item], out=out, height=height, width=width)
    engine = _core.Engine(1, level=level, limits=limits or _core.Limits())
    engine.submit(job)
    job.wait()
    engine.close()
    if job.failures():
        raise ValueError(*job.failures()[0][2:])
    kinds = {"uint8": np.uint8, "float32": np.float32, "float16": np.float16, "bfloat16": np.uint16}
    shape = (channels, height, width) if planar else (height, width, channels)
    return out.view(kinds[dtype]).reshape(shape)


def jpeg(pixels: np.ndarray, **options: Any) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "JPEG", **options)
    return buffer.getvalue()


def photograph(height: int, width: int, seed: int = 0, *, grey: bool = False) -> np.ndarray:
    """Smooth shapes, edges and noise: every frequency, in colour."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width]
    layers = []
    for _ in range(1 if grey else 3):
        a, b, c = rng.uniform(0.02, 0.4, 3)
        wave = 90 * np.sin(a * x + b * y) + 50 * (((x * c).astype(int) + (y * a).astype(int)) % 2)
        layers.append(128 + wave + rng.normal(0, 12, (height, width)))
    pixels = np.clip(np.stack(layers, -1), 0, 255).astype(np.uint8)
    return pixels[..., 0] if grey else pixels
