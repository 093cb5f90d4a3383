"""How fast does the core resample on each instruction-set level, on one thread?

    python benchmarks/resample_levels.py

Pixels in memory become 224x224 RGB, bytes or floats with normalisation. Rounds are interleaved; medians in microseconds
an image. `portable` is what a processor without a level of its own runs, in NEON on aarch64 and SSE2 on x86-64;
`scalar` is plain loops.
"""

from functools import partial

import numpy as np
from harness import arguments, median_s

from headrace import _core

SIZE, IMAGES = 224, 32
SOURCES = ((270, 330), (448, 448), (900, 1200))
"""Heights and widths: enlarging a little, taking four pixels each way, and nearly a dozen."""
IMAGENET = {"subtract": [123.675, 116.28, 103.53], "divide": [58.395, 57.12, 57.375]}


def resample(engine, pixels, out, dtype):
    height, width = pixels.shape[:2]
    view = [0, 0, width, height, 0, 0, width, height, SIZE, SIZE, 0, 0, SIZE, SIZE, 0, 0]
    views, ids = np.tile(np.array(view, np.float64), (IMAGES, 1)), np.arange(IMAGES)
    job = _core.Job(ids, np.zeros(IMAGES, np.uint32), key=0, program=np.zeros((0, 10)), views=views)
    options = _core.ImageOptions(dtype=dtype, planar=dtype != "uint8", **IMAGENET)
    job.add_image(_core.Ranges(), options, memory=[pixels] * IMAGES, out=out, height=SIZE, width=SIZE)
    engine.submit(job)
    job.wait()


def main():
    rounds = arguments(__doc__, rounds=15).rounds
    engines = {level: _core.Engine(1, level=level) for level in _core.levels()}
    print(f"{'us an image':24}" + "".join(f"{level:>10}" for level in engines))
    for height, width in SOURCES:
        pixels = np.random.default_rng(0).integers(0, 256, (height, width, 3), np.uint8)
        for dtype in ("uint8", "float32", "float16"):
            out = np.zeros(IMAGES * SIZE * SIZE * 3 * np.dtype(dtype).itemsize, np.uint8)
            ways = {level: partial(resample, engine, pixels, out, dtype) for level, engine in engines.items()}
            times = median_s(ways, rounds, warm_up=1)
            print(f"{f'{width}x{height}, {dtype}':24}" + "".join(f"{t / IMAGES * 1e6:10.0f}" for t in times.values()))
    for engine in engines.values():
        engine.close()


if __name__ == "__main__":
    main()
