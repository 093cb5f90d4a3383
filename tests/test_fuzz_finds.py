"""What fuzzers found (docs/trust.md), each told again without one."""

from __future__ import annotations

import numpy as np
import pytest
from core_images import jpeg, photograph

import headrace as hr
from headrace.errors import DecodeError


def without_segments(file: bytes, markers: set[int]) -> bytes:
    """The JPEG less its segments of these kinds, up to the first scan."""
    kept, at = bytearray(file[:2]), 2
    while file[at + 1] != 0xDA:
        end = at + 2 + int.from_bytes(file[at + 2 : at + 4], "big")
        if file[at + 1] not in markers:
            kept += file[at:end]
        at = end
    return bytes(kept + file[at:])


@pytest.mark.parametrize(
    ("markers", "message"),
    [({0xC4}, "Huffman table 0x00 was not defined"), ({0xDB}, "Quantization table 0x00 was not defined")],
    ids=["Huffman", "quantisation"],
)
def test_a_jpeg_without_tables_is_bad_whatever_came_before(markers: set[int], message: str) -> None:
    """libjpeg keeps tables from file to file, so what such a file looked like depended on the thread that got it."""
    whole = jpeg(photograph(40, 50), progressive=True)
    hr.decode_image(whole)
    with pytest.raises(DecodeError, match=message):
        hr.decode_image(without_segments(whole, markers))


def test_motion_jpeg_has_the_tables_of_the_standard() -> None:
    """Frames of a film leave the standard's tables out; they are taken, not those of the file before."""
    pixels = photograph(40, 50)
    frame = without_segments(jpeg(pixels), {0xC4})
    hr.decode_image(jpeg(pixels, optimize=True))
    np.testing.assert_array_equal(hr.decode_image(frame), hr.decode_image(jpeg(pixels)))
