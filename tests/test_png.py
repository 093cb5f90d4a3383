"""The core's PNG decoder against Pillow, and against the samples that went into each file."""

from __future__ import annotations

import io
import re
import struct
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from png_writer import CHANNELS, SIGNATURE, chunk, chunks_of, file_of, filtered, header, packed_rows, write_png

from headrace import _core

KINDS = [(0, 1), (0, 2), (0, 4), (0, 8), (0, 16), (2, 8), (2, 16), (3, 1), (3, 2), (3, 4), (3, 8)]
KINDS += [(4, 8), (4, 16), (6, 8), (6, 16)]
FILTERS = {"none": [0], "sub": [1], "up": [2], "average": [3], "paeth": [4], "all": [4, 4, 3, 3, 3, 1, 2, 0, 4, 1]}
each_kind = pytest.mark.parametrize(("color", "depth"), KINDS)
interlaced_or_not = pytest.mark.parametrize("interlaced", [False, True], ids=["plain", "adam7"])


def samples_of(height: int, width: int, color: int, depth: int, seed: int = 0) -> np.ndarray:
    """Half gradient, half noise, so that every branch of the Paeth filter is taken."""
    rng = np.random.default_rng([height, width, color, depth, seed])
    y, x = np.mgrid[0:height, 0:width]
    top = 2**depth
    smooth = (x * 3 + y * 5)[:, :, None] * np.arange(1, CHANNELS[color] + 1) * top // 256
    noise = rng.integers(0, top, smooth.shape)
    return np.where(rng.random(smooth.shape) < 0.5, smooth, noise) % top


def palette_of(depth: int) -> bytes:
    return np.random.default_rng(depth).integers(0, 256, 3 * 2**depth, dtype=np.uint8).tobytes()


def make(
    height: int,
    width: int,
    color: int,
    depth: int,
    *,
    filters: str = "all",
    interlaced: bool = False,
    **options: object,
) -> tuple[bytes, np.ndarray]:
    samples = samples_of(height, width, color, depth)
    palette = palette_of(depth) if color == 3 else b""
    file = write_png(samples, depth, color, filters=FILTERS[filters], interlaced=interlaced, palette=palette, **options)
    return file, samples


def pillow(file: bytes) -> Image.Image:
    return Image.open(io.BytesIO(file))


def pillow_rgb(file: bytes) -> np.ndarray:
    image = pillow(file)
    if image.mode == "I;16":  # which Pillow clips where the core takes the high byte
        return np.repeat((np.asarray(image) >> 8).astype(np.uint8)[:, :, None], 3, axis=2)
    return np.asarray(image.convert("RGBA"))[:, :, :3]  # to RGB at once warns where a palette has transparency


def expected_rgb(samples: np.ndarray, color: int, depth: int) -> np.ndarray:
    """What the file holds, without a decoder."""
    if color == 3:
        return np.frombuffer(palette_of(depth), np.uint8).reshape(-1, 3)[samples[:, :, 0]]
    colors = samples[:, :, :3] if color in (2, 6) else np.repeat(samples[:, :, :1], 3, axis=2)
    return (colors >> 8 if depth == 16 else colors * 255 // (2**depth - 1)).astype(np.uint8)


def rgb(file: bytes, *rows: int, **options: object) -> np.ndarray:
    return _core.decode_png(file, "rgbx8", *rows, **options)[:, :, :3]


@pytest.mark.one_in(12)
@each_kind
@interlaced_or_not
@pytest.mark.parametrize("filters", FILTERS)
def test_rgb_equals_pillow_and_the_samples(color: int, depth: int, filters: str, interlaced: bool) -> None:
    file, samples = make(21, 37, color, depth, filters=filters, interlaced=interlaced)
    got = rgb(file)
    np.testing.assert_array_equal(got, expected_rgb(samples, color, depth))
    np.testing.assert_array_equal(got, pillow_rgb(file))


@pytest.mark.one_in(6)
@each_kind
@interlaced_or_not
def test_every_small_size(color: int, depth: int, interlaced: bool) -> None:
    for height, width in [(h, w) for h in (1, 2, 5, 9) for w in (*range(1, 19), 31, 32, 33)]:
        file, samples = make(height, width, color, depth, interlaced=interlaced)
        np.testing.assert_array_equal(rgb(file), expected_rgb(samples, color, depth), err_msg=f"{width}x{height}")


@pytest.mark.parametrize(("color", "depth"), [kind for kind in KINDS if kind[0] in (0, 3) and kind[1] <= 8])
@interlaced_or_not
def test_raw8_is_the_index_or_the_grey_of_pillow(color: int, depth: int, interlaced: bool) -> None:
    file, samples = make(19, 45, color, depth, interlaced=interlaced)
    got = _core.decode_png(file, "raw8")
    assert got.dtype == np.uint8
    image = pillow(file)
    np.testing.assert_array_equal(got, np.asarray(image if image.mode == "P" else image.convert("L")))
    if color == 3:
        np.testing.assert_array_equal(got, samples[:, :, 0])


@interlaced_or_not
def test_raw16_is_depth_in_native_order(interlaced: bool) -> None:
    file, samples = make(19, 45, 0, 16, interlaced=interlaced)
    got = _core.decode_png(file, "raw16")
    assert got.dtype == np.dtype(np.uint16)
    np.testing.assert_array_equal(got, samples[:, :, 0])
    np.testing.assert_array_equal(got, np.asarray(pillow(file)))


def layouts_of(color: int, depth: int) -> list[str]:
    single = [("raw16" if depth == 16 else "raw8")] if color in (0, 3) else []
    return ["rgbx8", *single]


@pytest.mark.one_in(4)
@each_kind
@interlaced_or_not
def test_levels_give_the_same_bytes(color: int, depth: int, interlaced: bool) -> None:
    for filters in FILTERS:
        file, _ = make(23, 41, color, depth, filters=filters, interlaced=interlaced)
        for layout in layouts_of(color, depth):
            scalar = _core.decode_png(file, layout, level="scalar")
            for level in _core.levels():
                np.testing.assert_array_equal(_core.decode_png(file, layout, level=level), scalar)


@pytest.mark.one_in(2)
@each_kind
@interlaced_or_not
def test_a_window_equals_the_same_rows_of_the_whole(color: int, depth: int, interlaced: bool) -> None:
    file, _ = make(53, 17, color, depth, interlaced=interlaced)
    for layout in layouts_of(color, depth):
        whole = _core.decode_png(file, layout)
        for top, bottom in [(0, 1), (0, 16), (0, 17), (1, 2), (15, 49), (16, 32), (51, 53), (52, 53), (0, 53)]:
            np.testing.assert_array_equal(_core.decode_png(file, layout, top, bottom), whole[top:bottom])


@pytest.mark.one_in(4)
@pytest.mark.parametrize("level", [0, 1, 9])
@pytest.mark.parametrize("content", ["noise", "flat", "mixed"])
def test_a_window_of_a_large_image(level: int, content: str) -> None:
    """Large enough that unpacking stops below the window, in stored, literal and longest-match blocks alike."""
    samples = np.random.default_rng(1).integers(0, 256, (700, 640, 3))
    samples[:: 1 if content == "flat" else 2] *= content == "noise"
    file = write_large(samples, level)
    assert (rgb(file) == samples).all()
    for top, bottom in [(0, 1), (0, 33), (100, 101), (299, 556), (640, 660), (698, 700)]:
        np.testing.assert_array_equal(rgb(file, top, bottom), samples[top:bottom])


def write_large(samples: np.ndarray, level: int) -> bytes:
    rows = packed_rows(samples, 8)
    raw = np.concatenate([np.zeros((len(rows), 1), np.uint8), rows], axis=1).tobytes()
    head = header(samples.shape[1], samples.shape[0], 8, 2)
    return SIGNATURE + head + chunk(b"IDAT", zlib.compress(raw, level)) + chunk(b"IEND")


@pytest.mark.parametrize("below", [1, 65_536])
def test_a_window_of_a_stream_that_ends_early(below: int) -> None:
    """Unpacking has room for 65,536 bytes below a window: a stream that ends just there is short all the same."""
    stream = zlib.compress(bytes(301 * 10 + below), 0)
    file = file_of([(b"IHDR", header(100, 400, 8, 2)[8:-4]), (b"IDAT", stream), (b"IEND", b"")])
    with pytest.raises(ValueError, match=r"expected 120400 bytes of rows .* got fewer"):
        rgb(file, 0, 10)


@pytest.mark.long
def test_photograph_as_pillow_writes_it() -> None:
    rng = np.random.default_rng(0)
    small = Image.fromarray(rng.integers(0, 256, (12, 16, 3), dtype=np.uint8))
    image = small.resize((640, 480), Image.Resampling.BICUBIC)
    for options in ({}, {"optimize": True}, {"compress_level": 0}):
        buffer = io.BytesIO()
        image.save(buffer, "PNG", **options)
        np.testing.assert_array_equal(rgb(buffer.getvalue()), np.asarray(image))


@pytest.mark.parametrize("idat_bytes", [1, 7, 100])
def test_data_in_many_chunks(idat_bytes: int) -> None:
    file, samples = make(13, 9, 2, 8, idat_bytes=idat_bytes)
    assert file.count(b"IDAT") > 2
    np.testing.assert_array_equal(rgb(file), samples)


def test_empty_data_chunks_are_allowed() -> None:
    file, samples = make(13, 9, 2, 8)
    parts = chunks_of(file)
    where = [kind for kind, _ in parts].index(b"IDAT")
    parts[where:where] = [(b"IDAT", b"")] * 3
    np.testing.assert_array_equal(rgb(file_of(parts)), samples)


@pytest.mark.parametrize(
    ("color", "depth", "transparency"),
    [
        (0, 8, b"\0\7"),
        (0, 4, b"\0\7"),
        (0, 16, b"\1\7"),
        (2, 8, bytes(6)),
        (2, 16, bytes(6)),
        (3, 8, bytes(range(256))),
    ],
)
def test_transparency_is_dropped(color: int, depth: int, transparency: bytes) -> None:
    file, samples = make(8, 8, color, depth, transparency=transparency)
    np.testing.assert_array_equal(rgb(file), expected_rgb(samples, color, depth))
    np.testing.assert_array_equal(rgb(file), pillow_rgb(file))


def test_what_pillow_tolerates() -> None:
    file, samples = make(8, 8, 2, 8)
    parts = chunks_of(file)
    oddities = {
        "bytes after IEND": file + b"more",
        "unknown ancillary chunk": file_of([parts[0], (b"abCd", b"?" * 99), *parts[1:]]),
        "bad CRC of an ancillary chunk": SIGNATURE + file[8:33] + chunk(b"teXt", b"x")[:-1] + b"!" + file[33:],
        "PLTE as a suggestion": file_of([parts[0], (b"PLTE", bytes(30)), *parts[1:]]),
        "bytes after the zlib stream": file_of([(k, d + b"tail" if k == b"IDAT" else d) for k, d in parts]),
        "animation": file_of(
            [parts[0], (b"acTL", bytes(8)), (b"fcTL", bytes(26)), *parts[1:-1], (b"fdAT", b"junk"), parts[-1]]
        ),
    }
    for name, odd in oddities.items():
        np.testing.assert_array_equal(rgb(odd), samples, err_msg=name)


@each_kind
@interlaced_or_not
def test_probe(color: int, depth: int, interlaced: bool) -> None:
    file, _ = make(3, 5, color, depth, interlaced=interlaced)
    assert _core.probe_png(file[:33]) == (5, 3, depth, color, interlaced)


@pytest.mark.parametrize(
    ("color", "depth", "layout", "message"),
    [
        (
            2,
            8,
            "raw8",
            "PNG: expected one sample of at most 8 bits a pixel (grey or palette), got 8-bit RGB: read it as an image",
        ),
        (4, 8, "raw8", "PNG: expected one sample of at most 8 bits a pixel (grey or palette), got 8-bit grey + alpha:"),
        (
            0,
            16,
            "raw8",
            "PNG: expected one sample of at most 8 bits a pixel (grey or palette), got 16-bit grey:",
        ),
        (6, 16, "raw16", "PNG: expected 16-bit grey, got 16-bit RGBA:"),
        (3, 4, "raw16", "PNG: expected 16-bit grey, got 4-bit palette: read it as a mask"),
    ],
)
def test_layout_that_does_not_suit(color: int, depth: int, layout: str, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        _core.decode_png(make(4, 4, color, depth)[0], layout)


def rgb_parts() -> list[tuple[bytes, bytes]]:
    return chunks_of(make(8, 8, 2, 8)[0])


def with_raw(raw: bytes, color: int = 2, palette: bytes = b"") -> bytes:
    """8x8 of 8 bits with these row bytes."""
    head = header(8, 8, 8, color)[8:-4]
    parts = [(b"IHDR", head), *([(b"PLTE", palette)] if palette else []), (b"IDAT", zlib.compress(raw)), (b"IEND", b"")]
    return file_of(parts)


def damaged_files() -> dict[str, tuple[bytes, str]]:
    file = make(8, 8, 2, 8)[0]
    head, data, end = rgb_parts()
    rows = filtered(packed_rows(samples_of(8, 8, 2, 8), 8), 3, [4])
    flipped = bytearray(file)
    flipped[60] ^= 1
    huge = struct.pack(">IIBBBBB", 60_000, 2_900, 8, 6, 0, 0, 0)
    palette_rows = b"".join(b"\0" + bytes([0, 1, 2, 3, 4, 5, 6, row]) for row in range(8))
    return {
        "nothing": (b"", "expected a signature of 8 bytes, got a file of 0: it is cut short"),
        "half a signature": (file[:5], "expected a signature of 8 bytes, got a file of 5: it is cut short"),
        "text": (b"hello, world", r"got other bytes: the file is not a PNG"),
        "cut in the header": (file[:20], "expected a chunk at byte 8 before IEND was seen, got 12 bytes|declares 13"),
        "cut in the data": (file[:-40], "chunk IDAT at byte 33 declares .* the file is cut short or damaged"),
        "no IEND": (file[:-12], "expected a chunk at byte .* before IEND was seen, got 0 bytes: the file is cut short"),
        "flipped bit": (bytes(flipped), "the CRC of chunk IDAT at byte 33 does not match its content"),
        "no IDAT": (file_of([head, end]), "expected IDAT before IEND, got none"),
        "IDAT first": (file_of([data, head, end]), "expected IHDR of 13 bytes as the first chunk, got IDAT"),
        "long IHDR": (file_of([(b"IHDR", head[1] + b"x"), data, end]), "first chunk, got IHDR of 14"),
        "two IHDR": (file_of([head, head, data, end]), "expected one IHDR, got a second one"),
        "IDATs apart": (file_of([head, data, (b"teXt", b"x"), data, end]), "expected all IDAT chunks in a row"),
        "late PLTE": (file_of([head, data, (b"PLTE", bytes(3)), end]), "expected one PLTE before IDAT"),
        "odd PLTE": (file_of([head, (b"PLTE", bytes(4)), data, end]), "expected a PLTE of 1 to 256 RGB triples, got 4"),
        "critical chunk": (file_of([head, (b"ABCD", b""), data, end]), "ABCD at byte 33 is marked as critical"),
        "no letters": (file_of([head, (b"A\0CD", b""), data, end]), "expected a chunk type of four letters at byte 37"),
        "size 0": (file_of([(b"IHDR", bytes(4) + head[1][4:]), data, end]), "expected a width and height .* got 0x8"),
        "depth 3": (file_of([(b"IHDR", head[1][:8] + b"\3" + head[1][9:]), data, end]), "a bit depth of 3 does not"),
        "filter 5": (with_raw(rows[:25] + b"\5" + rows[26:]), "expected a filter of 0 to 4 in row 1, got 5"),
        "too short": (with_raw(rows[:-1]), "expected 200 bytes of rows from .* got fewer: the file is cut short"),
        "too long": (with_raw(rows + b"x"), "expected 200 bytes of rows from .* got more"),
        "no zlib": (file_of([head, (b"IDAT", b"x" * 99), end]), "from 99 bytes of IDAT, got a damaged zlib stream"),
        "bad adler": (file_of([head, (b"IDAT", data[1][:-1] + b"!"), end]), "got a damaged zlib stream"),
        "small bomb": (file_of([(b"IHDR", huge), data, end]), "more than they can hold: the file is cut short"),
        "no PLTE": (with_raw(palette_rows, 3), "expected PLTE in a palette image, got none"),
        "index": (with_raw(palette_rows, 3, bytes(21)), "expected palette indices below 7, got 7 in row 7"),
    }


@pytest.mark.parametrize("name", damaged_files())
def test_damage_is_named(name: str) -> None:
    file, message = damaged_files()[name]
    with pytest.raises(ValueError, match=f"^PNG: .*({message})"):
        _core.decode_png(file, "rgbx8")


def test_an_index_without_a_color_is_a_raw_sample() -> None:
    file = with_raw(b"".join(b"\0" + bytes([255] * 8) for _ in range(8)), 3, bytes(21))
    assert (_core.decode_png(file, "raw8") == 255).all()


def test_limits_are_named() -> None:
    file = file_of([(b"IHDR", rgb_parts()[0][1]), (b"teXt", bytes(1000)), *rgb_parts()[1:]])
    assert rgb(file, max_pixels=64, max_png_chunk_bytes=1000).shape == (8, 8, 3)
    with pytest.raises(ValueError, match="PNG: 8x8 is more than max_pixels = 63: raise it if the file is trusted"):
        rgb(file, max_pixels=63)
    with pytest.raises(ValueError, match="teXt at byte 33 has 1000 bytes, more than max_png_chunk_bytes = 999: raise"):
        rgb(file, max_png_chunk_bytes=999)
    with pytest.raises(ValueError, match="60000x60000 is more than max_pixels = 178956970"):
        _core.probe_png(SIGNATURE + header(60_000, 60_000, 8, 2))
    endless = file_of([(b"IHDR", header(2**31 - 1, 2**31 - 1, 16, 6)[8:-4]), *rgb_parts()[1:]])
    with pytest.raises(ValueError, match="is more than max_pixels = 72057594037927936"):
        rgb(endless, max_pixels=2**63 - 1)


def test_max_png_chunk_bytes_does_not_bound_pixels() -> None:
    file, samples = make(8, 8, 2, 8)
    np.testing.assert_array_equal(rgb(file, max_png_chunk_bytes=13), samples)


@pytest.mark.parametrize(("top", "bottom"), [(-1, 4), (0, 9), (4, 4), (5, 4), (8, 8)])
def test_rows_outside_the_image(top: int, bottom: int) -> None:
    with pytest.raises(ValueError, match=f"PNG: expected rows within 0 to 8, got {top} to {bottom}"):
        rgb(make(8, 8, 2, 8)[0], top, bottom)


def test_large_then_small_leaves_nothing_behind() -> None:
    files = [make(40, 60, 6, 16), make(3, 2, 6, 16), make(9, 33, 3, 4, interlaced=True), make(2, 1, 3, 1)]
    for file, samples in files * 2:
        _, _, depth, color, _ = _core.probe_png(file)
        np.testing.assert_array_equal(rgb(file), expected_rgb(samples, color, depth))


def decode_or_value_error(file: bytes) -> None:
    for layout in ("rgbx8", "raw8", "raw16"):
        for rows in ((), (1, 3)):
            try:
                got = _core.decode_png(file, layout, *rows, max_pixels=1_000_000)
            except ValueError as error:
                assert str(error).startswith("PNG: ")  # noqa: PT017 - both outcomes are fine
            else:
                assert got.size > 0


corpus = st.builds(
    lambda kind, size, interlaced: make(*size, *kind, interlaced=interlaced, idat_bytes=40)[0],
    st.sampled_from(KINDS),
    st.tuples(st.integers(1, 12), st.integers(1, 12)),
    st.booleans(),
)


@given(corpus, st.data())
def test_truncation_and_flips_raise_or_decode(file: bytes, data: st.DataObject) -> None:
    broken = bytearray(file[: data.draw(st.integers(0, len(file)))])
    for bit in data.draw(st.lists(st.integers(0, max(0, 8 * len(broken) - 1)), max_size=4)) if broken else []:
        broken[bit // 8] ^= 1 << bit % 8
    decode_or_value_error(bytes(broken))


@given(corpus, st.data())
def test_damage_under_a_good_crc_raises_or_decodes(file: bytes, data: st.DataObject) -> None:
    """Chunks are changed and signed anew, so that the damage gets past the CRC."""
    parts = [(kind, bytearray(content)) for kind, content in chunks_of(file)]
    for _ in range(data.draw(st.integers(1, 3))):
        content = data.draw(st.sampled_from([content for _, content in parts if content]))
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    decode_or_value_error(file_of([(kind, bytes(content)) for kind, content in parts]))


@given(st.sampled_from(KINDS), st.booleans(), st.binary(max_size=400), st.integers(1, 12), st.integers(1, 12))
def test_any_row_bytes_raise_or_decode(
    kind: tuple[int, int], interlaced: bool, raw: bytes, height: int, width: int
) -> None:
    color, depth = kind
    head = header(width, height, depth, color, int(interlaced))[8:-4]
    palette = [(b"PLTE", palette_of(depth))] if color == 3 else []
    decode_or_value_error(file_of([(b"IHDR", head), *palette, (b"IDAT", zlib.compress(raw)), (b"IEND", b"")]))
