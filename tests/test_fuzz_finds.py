"""What fuzzers found (docs/trust.md), each told again without one."""

from __future__ import annotations

import numpy as np
import pytest
from core_images import jpeg, photograph, run, view_row
from png_writer import SIGNATURE, chunk, header

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


def test_a_progressive_jpeg_that_ends_between_scans_is_cut_short() -> None:
    """Each scan that came is whole, so the decoder itself has nothing to say."""
    whole = jpeg(photograph(40, 50), progressive=True)
    first = whole.index(b"\xff\xda")
    for at in (at for at in range(first + 1, len(whole)) if whole[at : at + 2] in (b"\xff\xc4", b"\xff\xda")):
        with pytest.raises(DecodeError, match="cut short"):
            hr.decode_image(whole[:at])
    assert hr.decode_image(whole[:-2]).shape == (3, 40, 50)  # the end marker alone is missing


PROBE = 1
"""The stage in which a file's header is read, and nothing yet made of its size."""


@pytest.mark.parametrize("size", [(1, 1 << 24), (1 << 24, 1), (10_000, 10_000)], ids=["tall", "wide", "large"])
def test_a_small_png_cannot_ask_for_a_large_images_memory(size: tuple[int, int]) -> None:
    file = SIGNATURE + header(*size, 8, 2) + chunk(b"IDAT", bytes(20)) + chunk(b"IEND")
    with pytest.raises(ValueError, match="more than they can hold") as caught:
        run(file, view_row((0, 0, 1, 1), (0, 0, 1, 1), (1, 1)))
    assert caught.value.args[1] == PROBE


@pytest.mark.parametrize("progressive", [False, True], ids=["baseline", "progressive"])
def test_a_small_jpeg_cannot_ask_for_a_large_images_memory(progressive: bool) -> None:
    """A progressive one would take 6 bytes a pixel for its coefficients."""
    file = jpeg(photograph(40, 50), progressive=progressive)
    at = file.index(b"\xff\xc2" if progressive else b"\xff\xc0") + 5
    file = file[:at] + (2_000).to_bytes(2, "big") + (60_000).to_bytes(2, "big") + file[at + 4 :]
    with pytest.raises(ValueError, match=f"60000x2000 pixels, which no {len(file)} bytes can hold") as caught:
        run(file, view_row((0, 0, 1, 1), (0, 0, 1, 1), (1, 1)))
    assert caught.value.args[1] == PROBE


def test_the_least_that_a_jpeg_can_take_is_enough() -> None:
    """One colour throughout: two bits a block, four times as much as is asked for."""
    pixels = np.full((2_000, 3_000, 3), 77, np.uint8)
    for options in ({}, {"progressive": True}):
        assert hr.decode_image(jpeg(pixels, optimize=True, **options)).shape == (3, 2_000, 3_000)
