"""Which JPEG decoder is quicker, the core's own or libjpeg-turbo, and by how much at each instruction-set level?

    python benchmarks/jpeg_decode.py FOLDER [--files 300] [--rounds 9]

Prints microseconds an image on one thread, for whole images and for RandomResizedCrop windows (scale 0.08 to 1,
ratio 3/4 to 4/3). Each file counts with its quickest of several rounds, so that a busy machine disturbs little.
"""

import random

import numpy as np
from harness import arguments, described, jpegs, random_window

from headrace import _core


def windows_of(files):
    draw = random.Random(0)
    shapes = (_core.decode_jpeg(file)[1].shape for file in files)
    return [random_window(shape[1], shape[0], draw) for shape in shapes]


def microseconds(files, windows, rounds, path, level):
    """Take rounds through all files, so that no decode finds the processor trained on its own file."""
    pairs = list(zip(files, windows, strict=True))
    times = [[_core.time_jpeg(file, window=at, path=path, level=level) for file, at in pairs] for _ in range(rounds)]
    return np.min(times, axis=0).mean() / 1000


def main():
    args = arguments(__doc__, "folder", files=300, rounds=9)
    paths = jpegs(args.folder, args.files)
    files = [path.read_bytes() for path in paths]
    kinds = ([None] * len(files), windows_of(files))
    print(f"{described(paths)}\n{'':18}{'whole':>8}{'window':>8}  us an image")
    levels = [level for level in ("scalar", "avx2") if level in _core.levels()]
    for path, level in [("libjpeg", "best"), *(("native", level) for level in levels)]:
        name = path if path == "libjpeg" else f"{path} {level}"
        print(f"{name:18}" + "".join(f"{microseconds(files, at, args.rounds, path, level):8.0f}" for at in kinds))


if __name__ == "__main__":
    main()
