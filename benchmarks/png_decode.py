"""How fast does the core decode PNG, beside Pillow, on one thread?

    python benchmarks/png_decode.py [--count 6] [--rounds 10]

Decodes 1024x768 RGB and 16-bit depth PNGs as Pillow writes them, made from noise with a natural spectrum. Rounds are
interleaved; medians in milliseconds an image. `scalar` is the core without vector instructions, `upper half` the core
asked for rows 0 to 384 only.
"""

import io
from functools import partial

import numpy as np
from harness import arguments, encoded, median_s
from PIL import Image

from headrace import _core

WIDTH, HEIGHT = 1024, 768


def natural_noise(seed):
    """Make noise whose amplitudes fall with 1/f and whose colours go together, as in photographs."""
    rng = np.random.default_rng(seed)
    fy, fx = np.fft.fftfreq(HEIGHT)[:, None], np.fft.rfftfreq(WIDTH)[None]
    amplitude = 1 / np.maximum(np.hypot(fy, fx), 1 / WIDTH)
    planes = [
        np.fft.irfft2(amplitude * np.exp(2j * np.pi * rng.random(amplitude.shape)), (HEIGHT, WIDTH)) for _ in range(4)
    ]
    light, *colors = (plane / plane.std() for plane in planes)
    channels = [128 + 40 * light + 8 * color for color in colors]
    return Image.fromarray(np.clip(np.stack(channels, -1), 0, 255).astype(np.uint8))


def depth_of(image, seed):
    """Make millimetres: a slope, the picture's large shapes, and a sensor's noise of 3 mm."""
    light = image.convert("L").resize((64, 48)).resize((WIDTH, HEIGHT), Image.Resampling.BICUBIC)
    slope = (HEIGHT - np.arange(HEIGHT)[:, None]) * 6
    noise = np.random.default_rng(seed).normal(0, 3, (HEIGHT, WIDTH))
    return Image.fromarray((1500 + slope + np.asarray(light, np.float64) * 12 + noise).astype(np.uint16))


def main():
    args = arguments(__doc__, count=6, rounds=10)
    images = [natural_noise(seed) for seed in range(args.count)]
    depths = [depth_of(image, seed) for seed, image in enumerate(images)]
    for kind, pictures, layout in (("RGB", images, "rgbx8"), ("depth 16", depths, "raw16")):
        files = [encoded(picture, "PNG") for picture in pictures]
        print(f"{kind}, {len(files)} files of {sum(map(len, files)) // len(files):,} bytes on average")
        decoders = {
            "pillow": lambda file: Image.open(io.BytesIO(file)).load(),
            "core": partial(_core.decode_png, layout=layout),
            "scalar": partial(_core.decode_png, layout=layout, level="scalar"),
            "upper half": lambda file, layout=layout: _core.decode_png(file, layout, 0, HEIGHT // 2),
        }
        ways = {name: lambda decode=decode, files=files: list(map(decode, files)) for name, decode in decoders.items()}
        found = median_s(ways, args.rounds)
        for name, time_s in found.items():
            print(f"  {name:<12} {1e3 * time_s / len(files):6.2f} ms   {found['pillow'] / time_s:4.1f} x")


if __name__ == "__main__":
    main()
