"""Files that fuzzers found something with, each made as small as it can be told.

tests/test_fuzz_finds.py, or the test named beside a find, says what went wrong with it; tests/fuzz_seeds.py gives all
of them to the fuzzers again.

What no script tells as well goes in as libFuzzer minimised it, as text: `b85decode("…")`.
"""

from __future__ import annotations

from collections.abc import Iterator

from core_images import jpeg, photograph
from png_writer import SIGNATURE, chunk, header

HUFFMAN_TABLES, QUANTISATION_TABLES, SCAN = 0xC4, 0xDB, 0xDA
BASELINE, PROGRESSIVE = 0xC0, 0xC2


def jpeg_without(markers: set[int], **options: object) -> bytes:
    """Less its segments of these kinds, up to the first scan."""
    file = jpeg(photograph(40, 50), **options)
    kept, at = bytearray(file[:2]), 2
    while file[at + 1] != SCAN:
        end = at + 2 + int.from_bytes(file[at + 2 : at + 4], "big")
        if file[at + 1] not in markers:
            kept += file[at:end]
        at = end
    return bytes(kept + file[at:])


def jpegs_cut_between_scans() -> Iterator[bytes]:
    """Progressive ones, each scan that they have whole."""
    whole = jpeg(photograph(40, 50), progressive=True)
    first = whole.index(bytes([0xFF, SCAN]))
    for at in range(first + 1, len(whole)):
        if whole[at : at + 2] in (bytes([0xFF, HUFFMAN_TABLES]), bytes([0xFF, SCAN])):
            yield whole[:at]


def jpeg_that_claims(width: int, height: int, *, progressive: bool) -> bytes:
    """A few hundred bytes under a header of that size."""
    file = jpeg(photograph(40, 50), progressive=progressive)
    at = file.index(bytes([0xFF, PROGRESSIVE if progressive else BASELINE])) + 5
    return file[:at] + height.to_bytes(2, "big") + width.to_bytes(2, "big") + file[at + 4 :]


def jpeg_of_tall_luma() -> bytes:
    """Sampling factors that no encoder at hand writes, 2x4: what its blocks then mean is of no account.

    test_jpeg_windows.py::test_windows_of_odd_sampling
    """
    file = bytearray(jpeg(photograph(70, 80), subsampling="4:2:0"))
    file[file.index(bytes([0xFF, BASELINE])) + 11] = 0x24
    return bytes(file)


def png_that_claims(width: int, height: int) -> bytes:
    """20 bytes of data under a header of that size."""
    return SIGNATURE + header(width, height, 8, 2) + chunk(b"IDAT", bytes(20)) + chunk(b"IEND")


def finds() -> Iterator[tuple[str, str, bytes]]:
    """(target, name, input) of each, behind the option bytes of its target."""
    whole_jpeg, signed_png = bytes([0, 0, 0, 255, 255]), bytes([1, 0, 255])
    yield "jpeg", "no-huffman-tables", whole_jpeg + jpeg_without({HUFFMAN_TABLES}, progressive=True)
    yield "jpeg", "no-quantisation-tables", whole_jpeg + jpeg_without({QUANTISATION_TABLES})
    for number, file in enumerate(jpegs_cut_between_scans()):
        yield "jpeg", f"cut-between-scans-{number}", whole_jpeg + file
    for progressive in (False, True):
        file = jpeg_that_claims(120, 120, progressive=progressive)
        yield "jpeg", f"claims-more-{'progressive' if progressive else 'baseline'}", whole_jpeg + file
    yield "jpeg", "tall-luma", bytes([2, 40, 30, 200, 180]) + jpeg_of_tall_luma()
    for name, size in {"tall": (1, 16_000), "wide": (16_000, 1)}.items():
        yield "png", f"claims-more-{name}", signed_png + png_that_claims(*size)
