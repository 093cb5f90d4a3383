"""What does a JPEG's restart grid gain and cost? Windows decoded, bytes, the speed of rewriting, and other readers.

    python benchmarks/pack_jpeg.py FOLDER [--files 100] [--rounds 9] [--scale 4] [--restart 5]

Windows are RandomResizedCrop's. `--scale` enlarges the photographs first, as large originals. Each file counts with its
quickest of several rounds, in which the original and its rewritten file take turns. For instructions instead of time,
run both forms under `valgrind --tool=callgrind` with `--files 20 --rounds 1 --only plain` and `--only packed`.
"""

from __future__ import annotations

import argparse
import importlib.util
import io
import math
import random
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from jpeg_decode import Window, crop_of, size_of
from PIL import Image

from headrace import _core

Reader = Callable[[bytes], object]


def encode(image: Image.Image, **options: object) -> bytes:
    out = io.BytesIO()
    image.save(out, "JPEG", **options)
    return out.getvalue()


def load(folder: Path, count: int, scale: int) -> list[bytes]:
    files = [path.read_bytes() for path in sorted(folder.rglob("*.jpg"))[:count]]
    if scale == 1:
        return files
    images = (Image.open(io.BytesIO(file)) for file in files)
    enlarged = (i.resize((i.width * scale, i.height * scale), Image.Resampling.BICUBIC) for i in images)
    return [encode(image, quality=90) for image in enlarged]


def saved_as(files: list[bytes], **options: object) -> list[bytes]:
    """The same quantisation and sampling under other entropy codes."""
    return [encode(Image.open(io.BytesIO(file)), quality="keep", **options) for file in files]


def packed(files: list[bytes], restart: int | None) -> list[bytes]:
    """Return each file as a pack has it: rewritten, or as it was."""
    return [_core.transcode_jpeg(file, restart=restart) or file for file in files]


def microseconds(groups: list[list[bytes]], windows: list[Window], rounds: int) -> list[float]:
    """Mean time of a window in each group, in turns, so that a busy machine disturbs all alike."""
    quickest = np.full((len(groups), len(windows)), math.inf)
    for _ in range(rounds):
        for i, window in enumerate(windows):
            for g, files in enumerate(groups):
                quickest[g, i] = min(quickest[g, i], _core.time_jpeg(files[i], window=window))
    return [float(row.mean()) / 1000 for row in quickest]


def seconds(read: Reader, files: list[bytes]) -> float:
    since = time.perf_counter()
    for file in files:
        read(file)
    return time.perf_counter() - since


def readers() -> dict[str, Reader]:
    found: dict[str, Reader] = {"Pillow": lambda file: Image.open(io.BytesIO(file)).load()}
    if importlib.util.find_spec("cv2"):
        import cv2

        found["OpenCV"] = lambda file: cv2.imdecode(np.frombuffer(file, np.uint8), cv2.IMREAD_COLOR)
    if importlib.util.find_spec("torchvision"):
        import torch
        from torchvision.io import decode_jpeg

        found["torchvision"] = lambda file: decode_jpeg(torch.frombuffer(bytearray(file), dtype=torch.uint8))
    return found


def show_readers(plain: list[bytes], rewritten: list[bytes], rounds: int) -> None:
    for name, read in readers().items():
        pairs = [(seconds(read, plain), seconds(read, rewritten)) for _ in range(rounds)]
        before, after = (min(times) for times in zip(*pairs, strict=True))
        print(f"{name:14}{before / len(plain) * 1e6:8.0f} us an image, rewritten {after / len(plain) * 1e6:8.0f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--files", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--scale", type=int, default=1)
    parser.add_argument("--restart", type=int)
    parser.add_argument("--only", choices=["plain", "packed"])
    options = parser.parse_args()
    files = load(options.folder, options.files, options.scale)
    rng = random.Random(0)
    windows = [crop_of(*size_of(file), rng) for file in files]
    rewritten = packed(files, options.restart)
    if options.only:
        groups = {"plain": files, "packed": rewritten}
        print(microseconds([groups[options.only]], windows, options.rounds))
        return
    size = sum(map(len, files))
    print(f"{len(files)} files, {size / len(files) / 1000:.0f} kB each")
    plain_us, packed_us = microseconds([files, rewritten], windows, options.rounds)
    print(f"a window: {plain_us:.0f} us, rewritten {packed_us:.0f} us: {plain_us / packed_us:.2f} times as fast")
    kinds = {"as it is": files, "optimised": saved_as(files, optimize=True)}
    kinds["progressive"] = saved_as(files, progressive=True)
    for name, group in kinds.items():
        since = time.perf_counter()
        new = [_core.transcode_jpeg(file, restart=options.restart) for file in group]
        took = time.perf_counter() - since
        before, after = sum(map(len, group)), sum(len(n or old) for n, old in zip(new, group, strict=True))
        share = sum(n is not None for n in new) / len(new)
        print(f"{name:14}{after / before:.4f} of the bytes, {share:4.0%} rewritten, {before / took / 1e6:.0f} MB/s")
    show_readers(files, rewritten, options.rounds)


if __name__ == "__main__":
    main()
