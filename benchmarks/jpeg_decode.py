"""Which JPEG decoder is quicker, the core's own or libjpeg-turbo, and by how much at each instruction-set level?

Prints microseconds an image on one thread, for whole images and for RandomResizedCrop windows (scale 0.08 to 1,
ratio 3/4 to 4/3). Each file counts with its quickest of several rounds, so that a busy machine disturbs little:

    python benchmarks/jpeg_decode.py FOLDER [--files 300] [--rounds 9]
"""

from __future__ import annotations

import argparse
import math
import random
from pathlib import Path

from headrace import _core

Window = tuple[int, int, int, int]


def size_of(file: bytes) -> tuple[int, int]:
    _, pixels = _core.decode_jpeg(file)
    return pixels.shape[1], pixels.shape[0]


def crop_of(width: int, height: int, rng: random.Random) -> Window:
    """As torchvision draws it; the whole image where ten draws do not fit."""
    for _ in range(10):
        area = rng.uniform(0.08, 1) * width * height
        ratio = math.exp(rng.uniform(math.log(3 / 4), math.log(4 / 3)))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            left, top = rng.randint(0, width - w), rng.randint(0, height - h)
            return left, top, left + w, top + h
    return 0, 0, width, height


def microseconds(files: list[bytes], windows: list[Window | None], rounds: int, path: str, level: str) -> float:
    """Rounds go through all files, so that no decode finds the processor trained on its own file."""
    quickest = [math.inf] * len(files)
    for _ in range(rounds):
        for i, (file, window) in enumerate(zip(files, windows, strict=True)):
            quickest[i] = min(quickest[i], _core.time_jpeg(file, window=window, path=path, level=level))
    return sum(quickest) / len(quickest) / 1000


def levels() -> list[str]:
    """Those that this processor has, apart from the ones that run the code of another."""
    return [level for level in ("scalar", "avx2") if level in _core.levels()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--files", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    files = [path.read_bytes() for path in sorted(options.folder.rglob("*.jpg"))[: options.files]]
    if not files:
        parser.error(f"expected JPEG files under {options.folder}, got none; give a folder with *.jpg in it")
    rng = random.Random(0)
    crops: list[Window | None] = [crop_of(*size_of(file), rng) for file in files]
    whole: list[Window | None] = [None] * len(files)
    print(f"{len(files)} files, {sum(map(len, files)) / len(files) / 1000:.0f} kB each")
    print(f"{'':18}{'whole':>8}{'window':>8}  us an image")
    for path, level in [("libjpeg", "best"), *(("native", level) for level in levels())]:
        name = path if path == "libjpeg" else f"{path} {level}"
        figures = [microseconds(files, windows, options.rounds, path, level) for windows in (whole, crops)]
        print(f"{name:18}{figures[0]:8.0f}{figures[1]:8.0f}")


if __name__ == "__main__":
    main()
