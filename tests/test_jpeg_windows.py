"""A JPEG's window has the bits of the full decode; a DCT scale changes pixels within a bound."""

from __future__ import annotations

import io
import random
import struct

import numpy as np
import pytest
from core_images import jpeg, photograph, run, view_row
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from headrace import _core


def pillow(data: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))


def whole(data: bytes, eighths: int = 8) -> np.ndarray:
    """The full decode at a DCT scale: a view that asks for exactly the scaled size resamples nothing."""
    width, height = Image.open(io.BytesIO(data)).size
    assert width % 8 == height % 8 == 0 or eighths == 8
    box = (0, 0, width, height)
    return run(data, view_row(box, box, (width * eighths // 8, height * eighths // 8)), dct_margin=1.0)


def window(data: bytes, box: tuple[int, int, int, int], eighths: int = 8, bounds: object = None) -> np.ndarray:
    left, top, right, bottom = box
    size = ((right - left) * eighths // 8, (bottom - top) * eighths // 8)
    return run(data, view_row(box, bounds or box, size), dct_margin=1.0)


KINDS = {
    "4:4:4": {"subsampling": 0},
    "4:2:2": {"subsampling": 1},
    "4:2:0": {"subsampling": 2},
    "progressive 4:2:0": {"subsampling": 2, "progressive": True},
    "progressive 4:4:4": {"subsampling": 0, "progressive": True},
    "restart markers": {"subsampling": 2, "restart_marker_blocks": 3},
    "optimised": {"subsampling": 2, "optimize": True},
    "grey": {},
}


def make(kind: str, height: int, width: int, seed: int) -> bytes:
    pixels = photograph(height, width, seed, grey=kind == "grey")
    return jpeg(pixels, quality=60 + 7 * (seed % 6), **KINDS[kind])


def tall_sampling(data: bytes) -> bytes:
    """The same coefficients under 4:4:0 sampling factors (1x2), which Pillow cannot write: from a 4:2:2 file whose
    blocks then mean another picture, as good as any to compare decoders with."""
    at = data.index(b"\xff\xc0")
    height, width = data[at + 5 : at + 7], data[at + 7 : at + 9]
    out = bytearray(data)
    out[at + 5 : at + 7], out[at + 7 : at + 9] = width, height
    out[at + 11] = 0x12
    return bytes(out)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
@pytest.mark.one_in(12)
def test_random_windows_have_the_bits_of_the_full_decode(kind: str, data: st.DataObject) -> None:
    width, height = data.draw(st.integers(1, 140)), data.draw(st.integers(1, 140))
    file = make(kind, height, width, data.draw(st.integers(0, 5)))
    left, top = data.draw(st.integers(0, width - 1)), data.draw(st.integers(0, height - 1))
    box = left, top, data.draw(st.integers(left + 1, width)), data.draw(st.integers(top + 1, height))
    assert np.array_equal(window(file, box), whole(file)[box[1] : box[3], box[0] : box[2]])


@pytest.mark.parametrize("eighths", [4, 2, 1])
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
@pytest.mark.one_in(24)
def test_scaled_windows_have_the_bits_of_the_scaled_decode(kind: str, eighths: int, data: st.DataObject) -> None:
    width, height = 8 * data.draw(st.integers(1, 30)), 8 * data.draw(st.integers(1, 30))
    file = make(kind, height, width, data.draw(st.integers(0, 5)))
    left, top = data.draw(st.integers(0, width // 8 - 1)), data.draw(st.integers(0, height // 8 - 1))
    right, bottom = data.draw(st.integers(left + 1, width // 8)), data.draw(st.integers(top + 1, height // 8))
    box = 8 * left, 8 * top, 8 * right, 8 * bottom
    full = whole(file, eighths)
    part = full[top * eighths : bottom * eighths, left * eighths : right * eighths]
    assert np.array_equal(window(file, box, eighths), part)


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_windows_of_tall_sampling(data: st.DataObject) -> None:
    side = 16 * data.draw(st.integers(1, 6))
    file = tall_sampling(make("4:2:2", side, side, 1))
    left, top = data.draw(st.integers(0, side - 1)), data.draw(st.integers(0, side - 1))
    box = left, top, data.draw(st.integers(left + 1, side)), data.draw(st.integers(top + 1, side))
    full = whole(file)
    assert np.array_equal(full, pillow(file))
    assert np.array_equal(window(file, box), full[box[1] : box[3], box[0] : box[2]])


FACTORS = ["4x2 1x1", "2x4 1x1", "4x1 1x1", "1x4 1x1", "3x1 1x1", "2x2 2x1", "2x2 1x2", "1x2 2x1", "1x1 2x2"]


def flat_blocks(luma: str, chroma: str, width: int, height: int, seed: int) -> bytes:
    """Blocks of one colour each under any sampling factors: most of these are what no encoder at hand writes."""
    factors = [tuple(map(int, factor.split("x"))) for factor in (luma, chroma, chroma)]
    across, down = (max(factor[i] for factor in factors) for i in (0, 1))
    mcus = -(-width // (8 * across)) * -(-height // (8 * down))
    draw = random.Random(seed)
    # Each block is 0 (category 3) and three bits of DC, then 0 (the end of the block): no byte is ever 255.
    bits = "".join(f"0{draw.randrange(8):03b}0" for _ in range(mcus * sum(h * v for h, v in factors)))
    scan = int(bits + "0" * (-len(bits) % 8), 2).to_bytes(-(-len(bits) // 8), "big")

    def segment(marker: int, body: bytes) -> bytes:
        return bytes([0xFF, marker]) + (len(body) + 2).to_bytes(2, "big") + body

    components = b"".join(bytes([number, h << 4 | v, 0]) for number, (h, v) in enumerate(factors, 1))
    return b"".join([
        b"\xff\xd8",
        segment(0xDB, bytes([0] + [16] * 64)),
        segment(0xC0, struct.pack(">BHHB", 8, height, width, 3) + components),
        segment(0xC4, bytes([0x00, 1, *[0] * 15, 3])),
        segment(0xC4, bytes([0x10, 1, *[0] * 15, 0])),
        segment(0xDA, bytes([3, 1, 0, 2, 0, 3, 0, 0, 63, 0])),
        scan,
        b"\xff\xd9",
    ])  # fmt: skip


@pytest.mark.one_in(2)
@pytest.mark.parametrize("eighths", [8, 4, 2, 1])
@pytest.mark.parametrize("factors", FACTORS)
def test_windows_of_odd_sampling(factors: str, eighths: int) -> None:
    """libjpeg leaves some of a cropped component as its memory was, where the DCT scales that component by more than
    the others: another image is decoded before, so that its pixels would be there."""
    luma, chroma = factors.split()
    width, height = 203, 150
    file, other = (flat_blocks(luma, chroma, width, height, seed) for seed in (1, 2))
    full, beyond = (_core.decode_jpeg(each, eighths=eighths, path="libjpeg")[1][..., :3] for each in (file, other))
    assert not np.array_equal(full, beyond)
    rows, columns = full.shape[:2]
    draw = random.Random(3)
    for _ in range(20):
        left, top = draw.randrange(columns), draw.randrange(rows)
        right, bottom = draw.randint(left + 1, columns), draw.randint(top + 1, rows)
        _core.decode_jpeg(other, eighths=eighths, path="libjpeg")
        first, part = _core.decode_jpeg(file, eighths=eighths, window=(left, top, right, bottom), path="libjpeg")
        assert np.array_equal(part[:, left - first : right - first, :3], full[top:bottom, left:right])


@pytest.mark.one_in(4)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [(1, 1), (3, 17), (16, 16), (33, 70), (375, 500)])
def test_the_full_decode_is_pillows(kind: str, size: tuple[int, int]) -> None:
    """The same libjpeg-turbo method (islow, fancy upsampling), so the same bits in practice; one level is allowed."""
    file = make(kind, *size, 3)
    assert np.abs(whole(file).astype(int) - pillow(file)).max() <= 1


@pytest.mark.parametrize("kind", ["4:4:4", "4:2:0", "grey"])
def test_a_dct_scale_stays_close_to_the_unscaled_result(kind: str) -> None:
    """Half the size through the DCT and then to the output, against the triangle filter all the way: documented as at
    most 40 levels anywhere and 3.5 on average for content with noise and hard edges at every frequency."""
    file = make(kind, 480, 640, 2)
    view = view_row((0, 0, 640, 480), (0, 0, 640, 480), (224, 168))
    scaled, exact = run(file, view, dct_margin=1.0).astype(int), run(file, view).astype(int)
    assert not np.array_equal(scaled, exact)
    assert np.abs(scaled - exact).max() <= 40
    assert np.abs(scaled - exact).mean() <= 3.5


@pytest.mark.parametrize(("name", "scales"), [("bicubic", True), ("lanczos", True), ("linear", False)])
def test_only_filters_that_antialias_start_from_a_dct_scale(name: str, scales: bool) -> None:
    file = make("4:2:0", 480, 640, 2)
    view = view_row((0, 0, 640, 480), (0, 0, 640, 480), (224, 168))
    scaled, exact = (run(file, view, dct_margin=margin, filter=name).astype(int) for margin in (1.0, 0.0))
    assert np.array_equal(scaled, exact) != scales
    assert np.abs(scaled - exact).mean() <= 4


def test_the_dct_scale_never_falls_below_the_output() -> None:
    """A window one pixel short of twice the output is decoded in full: the result is the unscaled one."""
    file = make("4:2:0", 480, 640, 2)
    box = (0, 0, 447, 447)
    view = view_row(box, box, (224, 224))
    assert np.array_equal(run(file, view, dct_margin=1.0), run(file, view))


def test_scans_are_limited() -> None:
    file = make("progressive 4:2:0", 64, 64, 0)
    with pytest.raises(ValueError, match="max_jpeg_scans") as caught:
        run(file, view_row((0, 0, 64, 64), (0, 0, 64, 64), (64, 64)), limits=_core.Limits(max_jpeg_scans=3))
    assert caught.value.args[0] == 3  # Code::limit
