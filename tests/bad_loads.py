"""Bad images, loaders that are meant to fail, and what they must say: for the tests of bad input."""

from __future__ import annotations

import re
import struct

import pytest
from loader_data import encode, photograph

import headrace as hr
from headrace.errors import DecodeError, LimitError, UnsupportedError

JPEG = encode(photograph(1, 64, 48), quality=90)
PNG = encode(photograph(1, 64, 48), "PNG")
SIZED = hr.Resize((16, 20))


def load(data, fields=None, **options):
    given = {"view": SIZED, "batch_size": 8, "output": "numpy", "threads": 2}
    return hr.Loader(data, fields, **(given | options))


def folder_of(root, **files):
    """Files by stem, in the order given; jpg unless the bytes are a PNG's."""
    root.mkdir(exist_ok=True)
    for stem, data in files.items():
        suffix = "png" if data.startswith(b"\x89PNG") else "jpg"
        (root / f"{stem}.{suffix}").write_bytes(data)
    return root


def fails(error, loader, *texts):
    """Iterating raises `error`, and its message holds all of `texts`."""
    with pytest.raises(error) as caught:
        for _ in loader:
            pass
    says(caught, *texts)
    return caught.value


def says(caught, *texts):
    for text in texts:
        assert text in str(caught.value), f"{text!r} is not in: {caught.value}"


def limit_bomb_jpeg():
    """A header of 60,000 x 60,000."""
    at = JPEG.index(b"\xff\xc0")
    return JPEG[: at + 5] + struct.pack(">HH", 60000, 60000) + JPEG[at + 9 :]


def limit_bomb_png():
    from zlib import crc32

    header = b"IHDR" + struct.pack(">II", 60000, 60000) + PNG[24:29]
    return PNG[:12] + header + struct.pack(">I", crc32(header)) + PNG[33:]


def many_scans(count):
    """A progressive JPEG whose last scan comes `count` times more. A scan's refinement repeated is still a scan."""
    data = encode(photograph(2, 64, 48).convert("L"), progressive=True)
    starts = [match.start() for match in re.finditer(b"\xff\xda", data)]
    return data[: starts[1]] + data[starts[0] : starts[1]] * count + data[starts[1] :]


def twelve_bit_jpeg():
    """SOF1 (extended) with a precision of 12."""
    at = JPEG.index(b"\xff\xc0")
    return JPEG[:at] + b"\xff\xc1" + JPEG[at + 2 : at + 4] + b"\x0c" + JPEG[at + 5 :]


BAD = {
    "zero bytes": (b"", DecodeError, ["expected an image, got 0 bytes"]),
    "truncated JPEG": (JPEG[: len(JPEG) // 2], DecodeError, ["cut short", f"after {len(JPEG) // 2} bytes"]),
    "JPEG header only": (JPEG[:100], DecodeError, ["JPEG"]),
    "truncated PNG": (PNG[: len(PNG) // 2], DecodeError, ["PNG"]),
    "PNG header only": (PNG[:40], DecodeError, ["PNG"]),
    "damaged PNG": (PNG[:200] + bytes(8) + PNG[208:], DecodeError, ["PNG"]),
    "text": (b"<html>404 Not Found</html>", DecodeError, ["expected an image", "3c 68 74 6d 6c"]),
    "60,000 x 60,000 JPEG": (limit_bomb_jpeg(), LimitError, ["60000x60000", "max_pixels"]),
    "60,000 x 60,000 PNG": (limit_bomb_png(), LimitError, ["60000", "max_pixels"]),
    "thousands of scans": (many_scans(3000), LimitError, ["scans", "max_jpeg_scans"]),
    "12-bit JPEG": (twelve_bit_jpeg(), UnsupportedError, ["12 bits", "expected 8", "convert it"]),
}


def cmyk_jpeg():
    return encode(photograph(3, 40, 30).convert("CMYK"), quality=90)


def animated(kind):
    frames = [photograph(number, 40, 30) for number in range(3)]
    return encode(frames[0], kind, save_all=True, append_images=frames[1:])
