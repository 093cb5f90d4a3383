"""Rewritten JPEGs: the same coefficients and markers under a restart grid; and those that stay as they are."""

from __future__ import annotations

import io
import struct

import numpy as np
import pytest
from core_images import photograph
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageCms

from headrace import _core
from headrace.tools.demo_dataset import natural_image

SUBSAMPLINGS = {"444": 0, "422": 1, "420": 2}
KINDS: dict[str, dict[str, object]] = {
    "plain": {},
    "optimised": {"optimize": True},
    "progressive": {"progressive": True},
    "restarts": {"restart_marker_rows": 1},
}


def encode(pixels: np.ndarray, **options: object) -> bytes:
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "JPEG", **({"quality": 90} | options))
    return out.getvalue()


def pixels_of(file: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(file)))


def segments(file: bytes, *kinds: int) -> list[tuple[int, bytes]]:
    """Marker and payload of the segments before the first scan; all kinds unless some are named."""
    at, found = 2, []
    while file[at + 1] != 0xDA:
        end = at + 2 + int.from_bytes(file[at + 2 : at + 4], "big")
        if not kinds or file[at + 1] in kinds:
            found.append((file[at + 1], file[at + 4 : end]))
        at = end
    return found


MARKERS = (*range(0xE0, 0xF0), 0xFE)


def interval_of(file: bytes) -> int | None:
    found = segments(file, 0xDD)
    return int.from_bytes(found[0][1], "big") if found else None


def rewritten(file: bytes, restart: int | None = None) -> bytes:
    out = _core.transcode_jpeg(file, restart=restart)
    assert out is not None
    return out


def check_same(file: bytes, out: bytes) -> None:
    """Every reader's pixels, quantisation tables and markers; the output is baseline in one scan."""
    np.testing.assert_array_equal(pixels_of(out), pixels_of(file))
    assert Image.open(io.BytesIO(out)).quantization == Image.open(io.BytesIO(file)).quantization
    assert segments(out, *MARKERS) == segments(file, *MARKERS)
    assert len(segments(out, 0xC0)) == 1
    assert out.count(b"\xff\xda") == 1
    for eighths in (8, 4):
        theirs = _core.decode_jpeg(file, path="libjpeg", eighths=eighths)[1]
        np.testing.assert_array_equal(_core.decode_jpeg(out, eighths=eighths)[1][..., :3], theirs[..., :3])


@pytest.mark.one_in(4)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("subsampling", [*SUBSAMPLINGS, "grey"])
@pytest.mark.parametrize("size", [(64, 64), (37, 83), (130, 61), (1, 9)])
def test_pixels_tables_and_markers_are_the_same(kind: str, subsampling: str, size: tuple[int, int]) -> None:
    grey = subsampling == "grey"
    options = KINDS[kind] | ({} if grey else {"subsampling": SUBSAMPLINGS[subsampling]})
    file = encode(photograph(*size, 1, grey=grey), **options)
    for restart in (0, 1, 3, 5):
        out = rewritten(file, restart)
        assert interval_of(out) == (restart or None)
        check_same(file, out)


@settings(deadline=None)
@given(data=st.data())
def test_windows_are_the_originals(data: st.DataObject) -> None:
    height, width = data.draw(st.integers(1, 150)), data.draw(st.integers(5, 150))
    options = {"subsampling": data.draw(st.integers(0, 2)), **KINDS[data.draw(st.sampled_from(sorted(KINDS)))]}
    file = encode(photograph(height, width, 2), **options)
    out = rewritten(file, data.draw(st.integers(1, 40)))
    left, top = data.draw(st.integers(0, width - 1)), data.draw(st.integers(0, height - 1))
    window = left, top, data.draw(st.integers(left + 1, width)), data.draw(st.integers(top + 1, height))
    first, part = _core.decode_jpeg(out, window=window, path="native")
    whole = pixels_of(file)
    np.testing.assert_array_equal(
        part[:, left - first : window[2] - first, :3], whole[top : window[3], left : window[2]]
    )


def test_orientation_profile_and_comments_stay() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    options = {"exif": exif, "icc_profile": profile, "comment": b"a comment", "dpi": (300, 300)}
    file = encode(photograph(50, 60, 3), **options)
    out = rewritten(file, 4)
    check_same(file, out)
    image = Image.open(io.BytesIO(out))
    assert image.getexif()[0x0112] == 6
    assert image.info["icc_profile"] == profile
    assert image.info["comment"] == b"a comment"
    assert image.info["dpi"] == (300, 300)


def large(**options: object) -> bytes:
    return encode(natural_image(500, 375, seed=4), **({"quality": 95} | options))


@pytest.mark.one_in(4)
@pytest.mark.parametrize(("kind", "most"), [("plain", 1.01), ("optimised", 1.03), ("progressive", 1.08)])
def test_bytes_are_bounded_and_the_result_stays(kind: str, most: float) -> None:
    file = large(**KINDS[kind])
    out = rewritten(file)
    assert len(out) <= most * len(file)
    assert interval_of(out) is not None
    assert _core.transcode_jpeg(out) is None
    check_same(file, out)


def codes_of(file: bytes) -> list[bytes]:
    return [payload for _, payload in segments(file, 0xC4)]


def test_files_share_their_codes_unless_they_are_large_and_would_grow() -> None:
    assert codes_of(rewritten(large())) == codes_of(rewritten(encode(photograph(300, 400, 2)))) != codes_of(large())
    noise = np.random.default_rng(0).integers(0, 256, (600, 600, 3), np.uint8)
    own = rewritten(encode(noise, optimize=True))
    assert codes_of(own) != codes_of(rewritten(large()))
    assert interval_of(own) is not None


def test_extreme_coefficients_stay_exact() -> None:
    black_and_white = np.kron(np.indices((20, 20)).sum(0) % 2, np.ones((8, 8))).astype(np.uint8) * 255
    file = encode(black_and_white, quality=100)
    check_same(file, rewritten(file, 3))


def test_what_would_not_gain_stays() -> None:
    assert _core.transcode_jpeg(encode(photograph(64, 64, 1))) is None
    assert _core.transcode_jpeg(large(restart_marker_blocks=4)) is None
    assert _core.transcode_jpeg(large(keep_rgb=True)) is None
    cmyk = io.BytesIO()
    Image.fromarray(photograph(375, 500, 4)).convert("CMYK").save(cmyk, "JPEG")
    assert _core.transcode_jpeg(cmyk.getvalue()) is None


def test_damaged_data_stays() -> None:
    file = bytearray(large())
    middle = len(file) // 2
    file[middle : middle + 50] = b"\xff\xd5" * 25
    assert _core.transcode_jpeg(bytes(file)) is None


def test_errors_are_the_decoders() -> None:
    file = large()
    with pytest.raises(ValueError, match="cut short"):
        _core.transcode_jpeg(file[: len(file) // 2])
    with pytest.raises(ValueError, match="Not a JPEG"):
        _core.transcode_jpeg(b"no JPEG at all")
    with pytest.raises(ValueError, match="max_pixels"):
        _core.transcode_jpeg(file, limits=_core.Limits(max_pixels=1000))
    with pytest.raises(ValueError, match="max_decode_bytes"):
        _core.transcode_jpeg(file, limits=_core.Limits(max_decode_bytes=1000))
    with pytest.raises(ValueError, match="max_jpeg_scans"):
        _core.transcode_jpeg(large(progressive=True), limits=_core.Limits(max_jpeg_scans=3))
    at = file.index(b"\xff\xc0")
    with pytest.raises(ValueError, match="12 bits"):
        _core.transcode_jpeg(file[: at + 1] + b"\xc1" + file[at + 2 : at + 4] + b"\x0c" + file[at + 5 :])
    with pytest.raises(ValueError, match=r"no .* bytes can hold"):
        _core.transcode_jpeg(file[: at + 5] + struct.pack(">HH", 12000, 12000) + file[at + 9 : at + 2000])
    with pytest.raises(ValueError, match="restart 0 to 65535"):
        _core.transcode_jpeg(file, restart=65536)


@pytest.mark.parametrize("restart", [True, False])
@pytest.mark.parametrize("quality", [1, 50, 90, 100])
@pytest.mark.parametrize("subsampling", ["420", "444"])
def test_encoding_has_pillows_pixels(subsampling: str, quality: int, restart: bool) -> None:
    pixels = photograph(123, 77, 5)
    out = _core.encode_jpeg(pixels, quality=quality, subsampling=subsampling, restart=restart)
    pillow = encode(pixels, quality=quality, subsampling=SUBSAMPLINGS[subsampling])
    np.testing.assert_array_equal(pixels_of(out), pixels_of(pillow))
    assert Image.open(io.BytesIO(out)).quantization == Image.open(io.BytesIO(pillow)).quantization
    assert (interval_of(out) is not None) == restart


def test_encoding_grey_and_slices() -> None:
    grey = photograph(40, 50, 6, grey=True)
    np.testing.assert_array_equal(pixels_of(_core.encode_jpeg(grey)), pixels_of(encode(grey)))
    with pytest.raises(ValueError, match=r"\[H, W, 3\]"):
        _core.encode_jpeg(np.zeros((4, 4, 4), np.uint8))
    with pytest.raises(ValueError, match="65500"):
        _core.encode_jpeg(np.zeros((1, 65501), np.uint8))
    with pytest.raises(ValueError, match="quality 1 to 100"):
        _core.encode_jpeg(grey, quality=0)
