"""PNGs of every kind, written as the standard says (https://www.w3.org/TR/png-3/): what Pillow cannot write."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence

import numpy as np

SIGNATURE = b"\x89PNG\r\n\x1a\n"
CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
# x, y, x step, y step
ADAM7 = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]


def chunk(kind: bytes, data: bytes = b"") -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def header(width: int, height: int, depth: int, color: int, interlace: int = 0) -> bytes:
    return chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, interlace))


def chunks_of(file: bytes) -> list[tuple[bytes, bytes]]:
    """(type, data) of each chunk."""
    found, at = [], len(SIGNATURE)
    while at < len(file):
        (length,) = struct.unpack_from(">I", file, at)
        found.append((file[at + 4 : at + 8], file[at + 8 : at + 8 + length]))
        at += 12 + length
    return found


def file_of(chunks: Sequence[tuple[bytes, bytes]]) -> bytes:
    return SIGNATURE + b"".join(chunk(kind, data) for kind, data in chunks)


def packed_rows(samples: np.ndarray, depth: int) -> np.ndarray:
    """[H, W, C] samples to [H, bytes a row] uint8."""
    height = samples.shape[0]
    flat = samples.reshape(height, -1)
    if depth == 16:
        return flat.astype(">u2").view(np.uint8).reshape(height, -1)
    bits = (flat[:, :, None].astype(np.uint8) >> np.arange(depth - 1, -1, -1, dtype=np.uint8)) & 1
    return np.packbits(bits.reshape(height, -1), axis=1)


def paeth(a: int, b: int, c: int) -> int:
    estimate = a + b - c
    return min((abs(estimate - a), 0, a), (abs(estimate - b), 1, b), (abs(estimate - c), 2, c))[2]


def filtered(rows: np.ndarray, step: int, filters: Sequence[int]) -> bytes:
    """Rows with filter byte; row i uses filters[i % len(filters)]; `step` is bytes a pixel, at least 1."""
    out = bytearray()
    above = [0] * rows.shape[1]
    for i, row in enumerate(rows.tolist()):
        kind = filters[i % len(filters)]
        left = [0] * step + row
        corner = [0] * step + above
        guesses = {
            0: lambda x: 0,
            1: lambda x: left[x],  # noqa: B023
            2: lambda x: above[x],  # noqa: B023
            3: lambda x: (left[x] + above[x]) // 2,  # noqa: B023
            4: lambda x: paeth(left[x], above[x], corner[x]),  # noqa: B023
        }
        guess = guesses[kind]
        out.append(kind)
        out += bytes((value - guess(x)) % 256 for x, value in enumerate(row))
        above = row
    return bytes(out)


def filtered_image(samples: np.ndarray, depth: int, filters: Sequence[int], interlaced: bool) -> bytes:
    step = max(1, samples.shape[2] * depth // 8)
    if not interlaced:
        return filtered(packed_rows(samples, depth), step, filters)
    passes = [samples[y::y_step, x::x_step] for x, y, x_step, y_step in ADAM7]
    return b"".join(filtered(packed_rows(part, depth), step, filters) for part in passes if part.size)


def write_png(
    samples: np.ndarray,
    depth: int,
    color: int,
    *,
    filters: Sequence[int] = (0, 1, 2, 3, 4),
    interlaced: bool = False,
    palette: bytes = b"",
    transparency: bytes = b"",
    idat_bytes: int | None = None,
    level: int = 6,
) -> bytes:
    """[H, W, C] unsigned samples to a PNG file; `idat_bytes` cuts the data into IDATs of that size."""
    height, width, channels = samples.shape
    assert channels == CHANNELS[color]
    data = zlib.compress(filtered_image(samples, depth, filters, interlaced), level)
    size = len(data) if idat_bytes is None else idat_bytes
    pieces = [data[i : i + size] for i in range(0, len(data), size)]
    parts = [header(width, height, depth, color, int(interlaced))]
    parts += [chunk(b"PLTE", palette)] if palette else []
    parts += [chunk(b"tRNS", transparency)] if transparency else []
    parts += [chunk(b"IDAT", piece) for piece in pieces]
    return SIGNATURE + b"".join(parts) + chunk(b"IEND")
