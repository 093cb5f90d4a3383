"""The core's own baseline JPEG decoder against libjpeg-turbo's: every bit, and every refusal, must be the same."""

from __future__ import annotations

import io
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from headrace import _core

SUBSAMPLINGS = {"444": 0, "422": 1, "420": 2}
each_subsampling = pytest.mark.parametrize("subsampling", SUBSAMPLINGS)


def smooth(height: int, width: int) -> np.ndarray:
    """Waves of several lengths with an edge: few coefficients here, many there."""
    y, x = np.mgrid[0:height, 0:width] / 1.0
    waves = [np.sin(x / 5 + y / 9), np.cos(x * y / 400), np.sin(y / 3) * (x > width / 3)]
    return (np.stack(waves, axis=2) * 120 + 128).clip(0, 255).astype(np.uint8)


def noise(height: int, width: int) -> np.ndarray:
    return np.random.default_rng([height, width]).integers(0, 256, (height, width, 3), dtype=np.uint8)


def extremes(height: int, width: int) -> np.ndarray:
    """Black and white only, so that transforms overshoot."""
    return np.where(noise(height, width) < 128, 0, 255).astype(np.uint8)


def flat(height: int, width: int) -> np.ndarray:
    return np.full((height, width, 3), 77, np.uint8)


def photograph(height: int, width: int) -> np.ndarray:
    """Smoothed noise over a gradient, with a little grain."""
    rng = np.random.default_rng([width, height])
    coarse = Image.fromarray(rng.integers(0, 256, (height // 8 + 2, width // 8 + 2, 3), dtype=np.uint8))
    base = np.asarray(coarse.resize((width, height), Image.Resampling.BICUBIC), np.float64)
    return (base + rng.normal(0, 6, base.shape)).clip(0, 255).astype(np.uint8)


IMAGES = {"smooth": smooth, "noise": noise, "extremes": extremes, "flat": flat, "photograph": photograph}


def encode(pixels: np.ndarray, *, grey: bool = False, **options: object) -> bytes:
    image = Image.fromarray(pixels)
    target = io.BytesIO()
    (image.convert("L") if grey else image).save(target, "JPEG", **({"quality": 90} | options))
    return target.getvalue()


def decode(file: bytes, **options: object) -> tuple[int, np.ndarray]:
    first, pixels = _core.decode_jpeg(file, **options)
    return first, pixels[:, :, :3]


def check(file: bytes, *windows: tuple[int, int, int, int], path: str = "fast") -> None:
    """The whole image and windows of it, at every level, against libjpeg's whole image and its windows."""
    check_scale(file, windows, path, 8)
    if is_halved_too(file):
        check_scale(file, [halved(window) for window in windows], path, 4)


def check_scale(file: bytes, windows: Sequence[tuple[int, int, int, int]], path: str, eighths: int) -> None:
    _, whole = decode(file, path="libjpeg", eighths=eighths)
    for level in LEVELS:
        first, got = decode(file, path=path, level=level, eighths=eighths)
        assert first == 0
        np.testing.assert_array_equal(got, whole)
        for window in windows:
            left, top, right, bottom = window
            theirs = decode(file, window=window, path="libjpeg", eighths=eighths)
            mine = decode(file, window=window, path=path, level=level, eighths=eighths)
            assert mine[0] == theirs[0]
            np.testing.assert_array_equal(mine[1], theirs[1])
            np.testing.assert_array_equal(
                mine[1][:, left - mine[0] : right - mine[0]], whole[top:bottom, left:right], str(window)
            )


def windows_of(width: int, height: int, count: int, seed: int) -> list[tuple[int, int, int, int]]:
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        left, right = sorted(int(v) for v in rng.choice(width + 1, 2, replace=False))
        top, bottom = sorted(int(v) for v in rng.choice(height + 1, 2, replace=False))
        found.append((left, top, right, bottom))
    return found


def find_segment(file: bytes, marker: int) -> int:
    """Where the segment's marker begins."""
    at = 2
    while file[at + 1] != marker:
        at += 2 + int.from_bytes(file[at + 2 : at + 4], "big")
    return at


def scan_start(file: bytes) -> int:
    at = find_segment(file, 0xDA)
    return at + 2 + int.from_bytes(file[at + 2 : at + 4], "big")


def is_halved_too(file: bytes) -> bool:
    """Return whether the core halves the file itself: three components, chroma subsampled both ways."""
    at = find_segment(file, 0xC0)
    return file[at + 9] == 3 and file[at + 11] == 0x22


def halved(window: tuple[int, int, int, int]) -> tuple[int, int, int, int]:
    left, top, right, bottom = window
    return left // 2, top // 2, (right + 1) // 2, (bottom + 1) // 2


def with_factors(file: bytes, horizontal: int, vertical: int) -> bytes:
    """The same scan under other luma sampling factors."""
    at = find_segment(file, 0xC0) + 11
    return file[:at] + bytes([horizontal << 4 | vertical]) + file[at + 1 :]


LEVELS = _core.levels()


@pytest.mark.one_in(4)
@each_subsampling
@pytest.mark.parametrize("kind", IMAGES)
@pytest.mark.parametrize("optimize", [False, True], ids=["standard", "optimized"])
def test_qualities(subsampling: str, kind: str, optimize: bool) -> None:
    pixels = IMAGES[kind](61, 83)
    for quality in (5, 20, 50, 75, 90, 95, 98, 100):
        check(encode(pixels, quality=quality, subsampling=SUBSAMPLINGS[subsampling], optimize=optimize))


@pytest.mark.parametrize("quality", range(5, 101, 5))
def test_grey(quality: int) -> None:
    file = encode(photograph(45, 70), grey=True, quality=quality)
    check(file, *windows_of(70, 45, 4, quality))


@each_subsampling
@pytest.mark.one_in(4)
def test_sizes(subsampling: str) -> None:
    for size in range(5, 71):
        for width, height in ((size, 37), (41, size), (size, size)):
            file = encode(photograph(height, width), subsampling=SUBSAMPLINGS[subsampling])
            check(file, *windows_of(width, height, 1, size))


@pytest.mark.one_in(2)
@each_subsampling
@pytest.mark.parametrize("grey", [False, True], ids=["colour", "grey"])
def test_tiny_images_by_whichever_path(subsampling: str, grey: bool) -> None:
    for width in range(1, 6):
        for height in range(1, 6):
            file = encode(noise(height, width), subsampling=SUBSAMPLINGS[subsampling], grey=grey)
            check(file, (0, 0, width, 1), (width - 1, 0, width, height), path="native")


@pytest.mark.one_in(2)
@each_subsampling
@pytest.mark.parametrize(
    "options", [{"restart_marker_blocks": 1}, {"restart_marker_blocks": 7}, {"restart_marker_rows": 1}]
)
def test_restart_intervals(subsampling: str, options: dict[str, int]) -> None:
    file = encode(photograph(100, 150), subsampling=SUBSAMPLINGS[subsampling], **options)
    assert file.count(b"\xff\xd7") >= (1 if "restart_marker_blocks" in options else 0)
    check(file, *windows_of(150, 100, 6, 1))


@pytest.mark.one_in(10)
@each_subsampling
@pytest.mark.parametrize("interval", [1, 2, 3, 5, 7, 13, 26, 60, 1000])
def test_windows_over_any_restart_interval(subsampling: str, interval: int) -> None:
    file = encode(photograph(150, 200), subsampling=SUBSAMPLINGS[subsampling], restart_marker_blocks=interval)
    check(file, *windows_of(200, 150, 12, interval), (0, 149, 200, 150), (199, 0, 200, 150))


def test_skipped_intervals_are_not_decoded() -> None:
    """Around the window all data is destroyed, which libjpeg warns of in each interval: both resume at the markers."""
    file = bytearray(encode(photograph(160, 160), subsampling=0, restart_marker_blocks=4))
    window = (70, 70, 90, 90)
    whole = decode(bytes(file))[1]
    marks = restart_marks(bytes(file))
    assert len(marks) == 99
    for number, (begin, end) in enumerate(pairwise(marks), 1):
        if not 7 <= number // 5 <= 12 or number % 5 != 2:
            file[begin + 2 : end] = b"\x01" * (end - begin - 2)
    first, pixels = decode(bytes(file), window=window, path="fast")
    np.testing.assert_array_equal(pixels[:, 70 - first : 90 - first], whole[70:90, 70:90])
    check_damaged(bytes(file), window)


@each_subsampling
@pytest.mark.one_in(4)
@pytest.mark.long
def test_windows(subsampling: str) -> None:
    file = encode(photograph(300, 400), quality=95, subsampling=SUBSAMPLINGS[subsampling])
    check(file, *windows_of(400, 300, 40, 7))


def test_chroma_halved_downwards_only() -> None:
    for width, height in ((16, 16), (33, 50), (1, 40), (40, 1), (3, 3)):
        # 4:2:2 has the same blocks in an MCU: its scan read as 4:4:0 is another image, and a proper one.
        wide = encode(photograph(2 * height + 16, 2 * width + 16), subsampling=1)
        at = find_segment(wide, 0xC0) + 5
        file = with_factors(wide[:at] + height.to_bytes(2, "big") + width.to_bytes(2, "big") + wide[at + 4 :], 1, 2)
        check(file, *windows_of(width, height, 3, width) if min(width, height) > 1 else ())


def test_large_quantisers() -> None:
    tables = [[255] * 64, [255] * 64]
    for kind in ("extremes", "photograph"):
        check(encode(IMAGES[kind](70, 70), qtables=tables))


def test_small_quantisers_under_the_bits_of_large_ones() -> None:
    """Coefficients far beyond what pixels can make: the arithmetic overflows, and must do so as libjpeg's does."""
    for kind in ("extremes", "noise", "flat"):
        file = bytearray(encode(IMAGES[kind](64, 64), quality=100, subsampling=2))
        for at in (find_segment(bytes(file), 0xDB) + 5, find_segment(bytes(file), 0xDB) + 5 + 69):
            file[at : at + 64] = bytes([255] * 64)
        check(bytes(file))


def test_four_bytes_a_pixel() -> None:
    _, pixels = _core.decode_jpeg(encode(flat(9, 11)), path="fast")
    assert pixels.shape == (9, 11, 4)
    assert pixels.dtype == np.uint8


def declined_files() -> dict[str, bytes]:
    pixels = photograph(40, 40)
    cmyk = io.BytesIO()
    Image.fromarray(pixels).convert("CMYK").save(cmyk, "JPEG")
    plain = encode(pixels)
    sof = find_segment(plain, 0xC0)
    return {
        "progressive": encode(pixels, progressive=True),
        "rgb": encode(pixels, keep_rgb=True),
        "cmyk": cmyk.getvalue(),
        "no end marker": plain[:-2],
        "odd factors": plain[: sof + 11] + b"\x41" + plain[sof + 12 :],
        "narrow": encode(noise(40, 4), subsampling=2),
    }


@pytest.mark.parametrize("name", declined_files())
def test_left_to_libjpeg(name: str) -> None:
    file = declined_files()[name]
    with pytest.raises(ValueError, match=r"left to libjpeg|CMYK|cut short"):
        decode(file, path="fast")
    assert outcome(file, "native") == outcome(file, "auto") == outcome(file, "libjpeg")


def test_codes_of_small_files_are_worth_tables_when_they_come_again() -> None:
    file = encode(photograph(64, 48), optimize=True)
    expected = outcome(file, "libjpeg")
    for _ in range(5):
        assert outcome(file, "auto") == expected


@pytest.mark.parametrize(("subsampling", "eighths"), [(0, 4), (1, 4), (2, 2), (2, 1)])
def test_no_fast_path_at_other_scales(subsampling: int, eighths: int) -> None:
    file = encode(photograph(40, 40), subsampling=subsampling)
    with pytest.raises(ValueError, match="left to libjpeg"):
        decode(file, path="fast", eighths=eighths)
    np.testing.assert_array_equal(decode(file, eighths=eighths)[1], decode(file, eighths=eighths, path="libjpeg")[1])


@pytest.mark.parametrize("window", [(0, 0, 0, 5), (3, 3, 41, 4), (-1, 0, 4, 4)])
def test_windows_outside_the_image(window: tuple[int, int, int, int]) -> None:
    with pytest.raises(ValueError, match="inside the image of 40x40"):
        decode(encode(flat(40, 40)), window=window)


def outcome(
    file: bytes,
    path: str,
    level: str = "best",
    window: tuple[int, int, int, int] | None = None,
    eighths: int = 8,
) -> object:
    try:
        first, pixels = decode(file, path=path, level=level, window=window, eighths=eighths)
    except ValueError as error:
        return str(error)
    return first, pixels.shape, pixels.tobytes()


def check_damaged(file: bytes, window: tuple[int, int, int, int] | None = None) -> None:
    for eighths, box in ((8, window), (4, window and halved(window))):
        expected = outcome(file, "libjpeg", window=box, eighths=eighths)
        for level in LEVELS:
            assert outcome(file, "native", level, box, eighths) == expected


ORIGINALS = [
    encode(photograph(90, 120), subsampling=2),
    encode(photograph(90, 120), subsampling=0, optimize=True),
    encode(noise(50, 60), subsampling=1, quality=97),
    encode(photograph(90, 120), subsampling=2, restart_marker_blocks=5),
    encode(photograph(60, 80), grey=True, restart_marker_rows=1),
]


@settings(max_examples=3 * settings().max_examples, deadline=None)
@given(data=st.data())
def test_flipped_bits_in_the_scan(data: st.DataObject) -> None:
    file = bytearray(data.draw(st.sampled_from(ORIGINALS)))
    start = scan_start(bytes(file))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(start, len(file) - 1))
        file[at] ^= 1 << data.draw(st.integers(0, 7))
    check_damaged(bytes(file), data.draw(st.sampled_from([None, (8, 17, 50, 45), (3, 0, 60, 50)])))


@settings(max_examples=3 * settings().max_examples, deadline=None)
@given(data=st.data())
@pytest.mark.long
def test_replaced_bytes_anywhere(data: st.DataObject) -> None:
    file = bytearray(data.draw(st.sampled_from(ORIGINALS)))
    top = data.draw(st.sampled_from([scan_start(bytes(file)), len(file)]))
    for _ in range(data.draw(st.integers(1, 3))):
        file[data.draw(st.integers(2, top - 1))] = data.draw(
            st.sampled_from([0, 1, 0x7F, 0xD0, 0xD3, 0xD9, 0xFE, 0xFF])
        )
    check_damaged(bytes(file))


@given(data=st.data())
def test_cut_files(data: st.DataObject) -> None:
    file = data.draw(st.sampled_from(ORIGINALS))
    end = data.draw(st.integers(4, len(file) - 1))
    check_damaged(file[:end])
    check_damaged(file[:end] + b"\xff\xd9")


@given(data=st.data())
def test_removed_and_repeated_bytes(data: st.DataObject) -> None:
    file = data.draw(st.sampled_from(ORIGINALS))
    start = scan_start(file)
    a, b = sorted(data.draw(st.tuples(st.integers(start, len(file) - 3), st.integers(start, len(file) - 3))))
    check_damaged(file[:a] + file[b:])
    check_damaged(file[:b] + file[a:])


def restart_marks(file: bytes) -> list[int]:
    return [at for at in range(scan_start(file), len(file) - 2) if file[at] == 0xFF and 0xD0 <= file[at + 1] <= 0xD7]


@pytest.mark.parametrize("window", [None, (50, 30, 70, 50), (0, 80, 120, 90)])
def test_swapped_and_missing_restart_markers(window: tuple[int, int, int, int] | None) -> None:
    file = ORIGINALS[3]
    marks = restart_marks(file)
    assert len(marks) > 3
    for a, b in pairwise(marks):
        swapped = bytearray(file)
        swapped[a + 1], swapped[b + 1] = file[b + 1], file[a + 1]
        check_damaged(bytes(swapped), window)
        check_damaged(file[:a] + file[a + 2 :], window)
        check_damaged(file[:a] + file[b:], window)
        check_damaged(file[:a] + file[a : a + 2] + file[a:], window)
        check_damaged(file[:a] + b"\xff" + file[a:], window)
