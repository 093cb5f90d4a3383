"""Fits the Huffman codes of core/pack/photo_code.hpp to photographs and prints their tables.

    python scripts/fit_jpeg_code.py FOLDER [--files 1000]

Each photograph is compressed as 4:2:0 at each quality, and every file counts alike, whatever its size. Each symbol of
8-bit JPEG has a code of at most 16 bits, and no code is all ones.
"""

from __future__ import annotations

import argparse
import heapq
import io
from pathlib import Path

import numpy as np
from PIL import Image
from PIL.JpegImagePlugin import JpegImageFile

QUALITIES = (75, 85, 90, 95)
ACS = [0x00, 0xF0, *(run << 4 | size for run in range(16) for size in range(1, 11))]
DCS = list(range(12))
K = np.arange(8)
DCT = np.where(K[:, None] == 0, np.sqrt(1 / 8), 1 / 2) * np.cos((2 * K + 1) * K[:, None] * np.pi / 16)
ORDER = np.array(sorted(range(64), key=lambda i: (i // 8 + i % 8, (i // 8 if (i // 8 + i % 8) % 2 else i % 8))))


def sizes(values: np.ndarray) -> np.ndarray:
    """Bits of each magnitude."""
    bits: np.ndarray = np.ceil(np.log2(np.abs(values) + 1)).astype(int)
    return bits


def symbols(plane: np.ndarray, table: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """Counts of DC and AC symbols in a plane."""
    height, width = (side - side % 8 for side in plane.shape)
    blocks = plane[:height, :width].reshape(height // 8, 8, width // 8, 8).swapaxes(1, 2).reshape(-1, 8, 8) - 128.0
    scaled = (DCT @ blocks @ DCT.T).reshape(-1, 64)[:, ORDER] / np.array(table)[ORDER]
    found = np.round(scaled).astype(int)
    dc = np.bincount(sizes(np.diff(found[:, 0])), minlength=12)
    block, at = np.nonzero(found[:, 1:])
    fresh = np.r_[True, np.diff(block) > 0]
    runs = np.where(fresh, at, np.diff(at, prepend=0) - 1)
    sized = sizes(found[block, at + 1])
    ac = np.bincount((runs % 16) << 4 | sized, minlength=256)
    ac[0xF0] = (runs // 16).sum()
    ac[0x00] = (found[:, 63] == 0).sum()
    return dc, ac


def statistics(path: Path, quality: int) -> np.ndarray:
    """Shares of the symbols of one file: rows DC and AC of luma and of chroma."""
    file = io.BytesIO()
    image = Image.open(path).convert("RGB")
    image.save(file, "JPEG", quality=quality)
    tables = JpegImageFile(file).quantization
    y, cb, cr = image.convert("YCbCr").split()
    counts = np.zeros((4, 256))
    for at, plane in ((0, y), (2, cb.reduce(2)), (2, cr.reduce(2))):
        dc, ac = symbols(np.asarray(plane), tables[at // 2])
        counts[at, : len(dc)] += dc
        counts[at + 1] += ac
    shares: np.ndarray = counts / counts.sum()
    return shares


def code_of(counts: np.ndarray, allowed: list[int]) -> tuple[list[int], list[int]]:
    """Codes of each length from 1 to 16, and the symbols in the order of their codes."""
    total = counts.sum()
    floor = 0.0
    while True:
        weights = [max(counts[symbol], floor) for symbol in allowed]
        heap = [(weight, i, [i]) for i, weight in enumerate([*weights, 0.0])]  # the last takes the code of all ones
        depth = [0] * len(heap)
        heapq.heapify(heap)
        while len(heap) > 1:
            a, b = heapq.heappop(heap), heapq.heappop(heap)
            for i in a[2] + b[2]:
                depth[i] += 1
            heapq.heappush(heap, (a[0] + b[0], a[1], a[2] + b[2]))
        if max(depth) <= 16:
            break
        floor = max(floor * 1.1, total / 2**20)
    lengths = depth[:-1]
    order = sorted(range(len(allowed)), key=lambda i: (lengths[i], -weights[i]))
    return [lengths.count(n) for n in range(1, 17)], [allowed[i] for i in order]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--files", type=int, default=1000)
    options = parser.parse_args()
    paths = sorted(options.folder.rglob("*.jpg"))[: options.files]
    total = np.zeros((4, 256))
    for path in paths:
        for quality in QUALITIES:
            total += statistics(path, quality)
    for name, counts in zip(("luma DC", "luma AC", "chroma DC", "chroma AC"), total, strict=True):
        lengths, order = code_of(counts, DCS if "DC" in name else ACS)
        print(f"{{{', '.join(map(str, lengths))}}},  // {name}\n{{{', '.join(f'0x{s:02X}' for s in order)}}},")


if __name__ == "__main__":
    main()
