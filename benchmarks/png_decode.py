"""How fast does the core decode PNG, beside Pillow, on one thread?

    python benchmarks/png_decode.py [FOLDER OF PHOTOGRAPHS]

Decodes 1024x768 RGB and 16-bit depth PNGs as Pillow writes them, made from the photographs or, without a folder, from
noise with a natural spectrum. Rounds are interleaved; medians in milliseconds an image. `scalar` is the core without
vector instructions, `upper half` the core asked for rows 0 to 384 only.
"""

from __future__ import annotations

import argparse
import io
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image

from headrace import _core

WIDTH, HEIGHT = 1024, 768


def natural_noise(seed: int) -> Image.Image:
    """Amplitudes fall with 1/f and colours go together, as in photographs."""
    rng = np.random.default_rng(seed)
    fy, fx = np.fft.fftfreq(HEIGHT)[:, None], np.fft.rfftfreq(WIDTH)[None]
    amplitude = 1 / np.maximum(np.hypot(fy, fx), 1 / WIDTH)
    planes = []
    for _ in range(4):
        phase = np.exp(2j * np.pi * rng.random(amplitude.shape))
        plane = np.fft.irfft2(amplitude * phase, (HEIGHT, WIDTH))
        planes.append(plane / plane.std())
    light, *colors = planes
    channels = [128 + 40 * light + 8 * color for color in colors]
    return Image.fromarray(np.clip(np.stack(channels, -1), 0, 255).astype(np.uint8))


def photographs(folder: Path, count: int) -> list[Image.Image]:
    found = []
    for path in sorted(folder.rglob("*.jp*g")):
        if len(found) == count:
            break
        with Image.open(path) as image:
            if image.width >= WIDTH and image.height >= HEIGHT:
                found.append(image.convert("RGB").resize((WIDTH, HEIGHT), Image.Resampling.LANCZOS))
    if not found:
        raise SystemExit(f"expected JPEGs of at least {WIDTH}x{HEIGHT} below {folder}, found none")
    return found


def depth_of(image: Image.Image, seed: int) -> Image.Image:
    """Millimetres: a slope, the picture's large shapes, and a sensor's noise of 3 mm."""
    rng = np.random.default_rng(seed)
    light = image.convert("L").resize((64, 48)).resize((WIDTH, HEIGHT), Image.Resampling.BICUBIC)
    slope = (HEIGHT - np.arange(HEIGHT)[:, None]) * 6
    millimetres = 1500 + slope + np.asarray(light, np.float64) * 12 + rng.normal(0, 3, (HEIGHT, WIDTH))
    return Image.fromarray(millimetres.astype(np.uint16))


def encoded(image: Image.Image) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()


def decoders(layout: str) -> dict[str, Callable[[bytes], object]]:
    return {
        "pillow": lambda file: Image.open(io.BytesIO(file)).load(),
        "core": lambda file: _core.decode_png(file, layout),
        "scalar": lambda file: _core.decode_png(file, layout, level="scalar"),
        "upper half": lambda file: _core.decode_png(file, layout, 0, HEIGHT // 2),
    }


def medians_ms(files: list[bytes], layout: str, rounds: int) -> dict[str, float]:
    times: dict[str, list[float]] = {name: [] for name in decoders(layout)}
    for file in files * rounds:
        for name, decode in decoders(layout).items():
            begin = time.perf_counter()
            decode(file)
            times[name].append(1000 * (time.perf_counter() - begin))
    return {name: statistics.median(values) for name, values in times.items()}


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("folder", nargs="?", type=Path)
    ask.add_argument("--count", type=int, default=6, help="images of each kind")
    ask.add_argument("--rounds", type=int, default=10)
    args = ask.parse_args()
    folder = args.folder
    images = [natural_noise(i) for i in range(args.count)] if folder is None else photographs(folder, args.count)
    kinds = {
        "RGB": ([encoded(image) for image in images], "rgbx8"),
        "depth 16": ([encoded(depth_of(image, i)) for i, image in enumerate(images)], "raw16"),
    }
    for kind, (files, layout) in kinds.items():
        print(f"{kind}, {len(files)} files of {sum(map(len, files)) // len(files):,} bytes on average")
        found = medians_ms(files, layout, args.rounds)
        for name, value in found.items():
            print(f"  {name:<12} {value:6.2f} ms   {found['pillow'] / value:4.1f} x")


if __name__ == "__main__":
    main()
