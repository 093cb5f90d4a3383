"""How fast does the core resample on each instruction-set level, on one thread?

    python benchmarks/resample_levels.py

Pixels in memory become 224x224 RGB, bytes or floats with normalisation. Rounds are interleaved; medians in microseconds
an image. `portable` is what a processor without a level of its own runs, in NEON on aarch64 and SSE2 on x86-64;
`scalar` is plain loops.
"""

from __future__ import annotations

import argparse
import statistics
import time

import numpy as np

from headrace import _core

SIZE = 224
IMAGES = 32
SOURCES = ((270, 330), (448, 448), (900, 1200))
"""Heights and widths: enlarging a little, taking four pixels each way, and nearly a dozen."""
NO_OPS = np.zeros((0, 10))
IMAGENET = {"subtract": [123.675, 116.28, 103.53], "divide": [58.395, 57.12, 57.375]}


def job_of(pixels: np.ndarray, out: np.ndarray, dtype: str) -> _core.Job:
    height, width = pixels.shape[:2]
    view = [0, 0, width, height, 0, 0, width, height, SIZE, SIZE, 0, 0, SIZE, SIZE, 0, 0]
    views = np.tile(np.array(view, np.float64), (IMAGES, 1))
    ids = np.arange(IMAGES)
    job = _core.Job(ids, np.zeros(IMAGES, np.uint32), key=0, program=NO_OPS, views=views)
    options = _core.ImageOptions(dtype=dtype, planar=dtype != "uint8", **IMAGENET)
    job.add_image(_core.Ranges(), options, memory=[pixels] * IMAGES, out=out, height=SIZE, width=SIZE)
    return job


def microseconds(engine: _core.Engine, pixels: np.ndarray, out: np.ndarray, dtype: str) -> float:
    job = job_of(pixels, out, dtype)
    began = time.perf_counter()
    engine.submit(job)
    job.wait()
    return (time.perf_counter() - began) / IMAGES * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    rng = np.random.default_rng(0)
    engines = {level: _core.Engine(1, level=level) for level in _core.levels()}
    out = np.zeros(IMAGES * SIZE * SIZE * 3 * 4, np.uint8)
    print(f"{'us an image':24}" + "".join(f"{level:>10}" for level in engines))
    for height, width in SOURCES:
        pixels = rng.integers(0, 256, (height, width, 3), np.uint8)
        for dtype in ("uint8", "float32", "float16"):
            buffer = out[: out.size * {"uint8": 1, "float16": 2, "float32": 4}[dtype] // 4]
            times: dict[str, list[float]] = {level: [] for level in engines}
            for _ in range(rounds):
                for level, engine in engines.items():
                    times[level].append(microseconds(engine, pixels, buffer, dtype))
            medians = (statistics.median(times[level]) for level in engines)
            print(f"{f'{width}x{height}, {dtype}':24}" + "".join(f"{median:10.0f}" for median in medians))
    for engine in engines.values():
        engine.close()


if __name__ == "__main__":
    main()
