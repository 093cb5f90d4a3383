"""Write what the fuzzers of core/fuzz start from, and their finds so far: python tests/fuzz_seeds.py FOLDER

Each target has a folder of its name. A seed is a sound file behind the option bytes that its target reads first
(core/fuzz/NAME.cpp).
"""

from __future__ import annotations

import io
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
from fuzz_finds import finds
from originals import jpegs, pngs, tars, zips

from headrace._core import jpeg_planes
from headrace.cache import Store, identity_of, parse_spec

TARGETS = ("jpeg", "transcode", "png", "png_rows", "raw", "tar", "zip", "index", "view", "augment", "dense", "cache")


def seeds_of(target: str) -> Iterator[tuple[str, bytes]]:
    rng = np.random.default_rng(0)
    match target:
        case "jpeg":  # scale, window
            yield from (
                (name, bytes([number % 4, 40, 30, 200, 180]) + file) for number, (name, file) in enumerate(jpegs())
            )
        case "transcode":  # interval
            yield from ((name, bytes([number % 5]) + file) for number, (name, file) in enumerate(jpegs()))
        case "png":  # signed anew?, rows
            yield from ((name, bytes([1, 60, 180]) + file) for name, file in pngs())
        case "png_rows":  # kind, width, height, interlaced?, colours, chunks, right size?, rows
            for kind in range(15):
                for interlaced in (0, 1):
                    rows = rng.integers(0, 5, 400, np.uint8).tobytes()
                    options = bytes([kind, 18 + kind, 0, 8, 0, interlaced, 255, kind, 1, 60, 180])
                    yield f"{kind}-{interlaced}", options + rows
        case "raw":  # columns, rows
            for name, file in jpegs():
                with suppress(ValueError):  # declined
                    yield name, bytes([40, 200, 30, 180]) + jpeg_planes(file)
            for head, size in ((b"P5 7 5 255\n", 35), (b"P6\n# a comment\n7 5\n255\n", 105), (b"P5 7 5 65535\n", 70)):
                yield str(size), bytes([40, 200, 30, 180]) + head + rng.bytes(size)
            for values in (np.zeros((7, 5, 3), np.uint8), np.zeros((7, 5), np.uint16), np.zeros((3, 7, 5), np.float32)):
                file = io.BytesIO()
                np.save(file, values)
                yield f"{values.dtype}", bytes([40, 200, 30, 180]) + file.getvalue()
        case "tar":  # signed anew?, slice
            yield from ((name, bytes([1, 3]) + file) for name, file in tars())
        case "zip":
            yield from zips()
        case "index":  # small numbers, as the target takes them for offsets that rise
            yield from ((str(number), rng.integers(0, 20, 200, np.uint8).tobytes()) for number in range(40))
        case "cache":  # signed anew?
            for entries in (0, 1, 5):
                yield str(entries), b"\1" + cache_file(entries)
        case "view" | "augment" | "dense":  # drawn: the target has meaning for any bytes
            yield from ((str(number), rng.bytes(300)) for number in range(60))


def cache_file(entries: int) -> bytes:
    """With some of 16 entries."""
    with tempfile.TemporaryDirectory() as folder:
        store = Store(parse_spec(f"disk:{folder}:1MB"), identity_of(16, "seeds"))
        for index in range(entries):
            store.put(3 * index, bytes([index]) * 100)
        (place,) = Path(folder).iterdir()
        return place.read_bytes()


def write_seeds(folder: Path) -> None:
    for target in TARGETS:
        root = folder / target
        root.mkdir(parents=True, exist_ok=True)
        for name, data in seeds_of(target):
            (root / name).write_bytes(data)
    for target, name, data in finds():
        (folder / target / f"find-{name}").write_bytes(data)


if __name__ == "__main__":
    write_seeds(Path(sys.argv[1]))
