"""Uncompressed images: Y4M has the pixels of its JPEG, PPM and PGM those that Pillow reads, and damage is a fault."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from core_images import LEVELS, jpeg, photograph, run, view_row
from PIL import Image

import headrace as hr
from headrace import _core
from headrace.errors import LimitError

SIZES = [(64, 48), (61, 47), (17, 33), (5, 5), (4, 3), (3, 2), (1, 1), (2, 9), (300, 31)]
SAMPLINGS = ["4:4:4", "4:2:2", "4:2:0", "grey"]
CORRUPT, LIMIT, UNSUPPORTED, DECLINED = 2, 3, 4, 1


def picture(width: int, height: int, sampling: str, **options: Any) -> bytes:
    if sampling == "grey":
        return jpeg(photograph(height, width, grey=True), quality=90, **options)
    return jpeg(photograph(height, width), quality=90, subsampling=sampling, **options)


def whole(data: bytes, width: int, height: int, level: str = "best") -> np.ndarray:
    box = (0, 0, width, height)
    return run(data, view_row(box, box, (width, height)), level=level, filter="nearest")


def pnm(values: np.ndarray, comment: bytes = b"") -> bytes:
    """A PGM or PPM, big-endian if 16 bits wide."""
    magic = b"P6" if values.ndim == 3 else b"P5"
    most = 65535 if values.itemsize == 2 else 255
    head = b"%s\n%s%d %d\n%d\n" % (magic, comment, values.shape[1], values.shape[0], most)
    return head + values.astype(values.dtype.newbyteorder(">")).tobytes()


def png(values: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(values).save(buffer, "PNG")
    return buffer.getvalue()


@pytest.mark.parametrize("progressive", [False, True])
@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_y4m_has_the_pixels_of_the_jpeg(sampling: str, progressive: bool) -> None:
    for width, height in SIZES:
        file = picture(width, height, sampling, progressive=progressive)
        planes = _core.jpeg_planes(file)
        for path in ("libjpeg", "native"):
            _, expected = _core.decode_jpeg(file, path=path)
            for level in LEVELS:
                got = whole(planes, width, height, level)
                assert np.array_equal(got, expected[..., :3]), (width, height, path, level)


@pytest.mark.one_in(6)
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_windows_of_y4m_and_ppm(sampling: str, level: str) -> None:
    rng = np.random.default_rng(3)
    width, height = 131, 97
    file = picture(width, height, sampling)
    pixels = _core.decode_jpeg(file)[1][..., :3]
    for _ in range(40):
        left, right = sorted(rng.choice(width + 1, 2, replace=False).tolist())
        top, bottom = sorted(rng.choice(height + 1, 2, replace=False).tolist())
        box, size = (left, top, right, bottom), (right - left, bottom - top)
        for data in (_core.jpeg_planes(file), pnm(pixels)):
            got = run(data, view_row(box, box, size), level=level, filter="nearest")
            assert np.array_equal(got, pixels[top:bottom, left:right])
            smooth = run(data, view_row(box, box, (40, 30), hflip=True), level=level)
            assert np.array_equal(smooth, run(file, view_row(box, box, (40, 30), hflip=True), level=level))


def test_header_of_planes() -> None:
    planes = _core.jpeg_planes(picture(500, 375, "4:2:0"))
    head = b"YUV4MPEG2 W500 H375 F1:1 Ip A1:1 C420jpeg XCOLORRANGE=FULL\nFRAME\n"
    assert planes.startswith(head)
    assert len(planes) == len(head) + 500 * 375 + 2 * 250 * 188


def test_declined_jpegs() -> None:
    tall = bytearray(picture(40, 30, "4:2:2"))
    tall[tall.index(b"\xff\xc0") + 11] = 0x12  # 4:4:0; the rest of the file is of no account
    cmyk = io.BytesIO()
    Image.new("CMYK", (8, 8)).save(cmyk, "JPEG")
    for file in (bytes(tall), cmyk.getvalue()):
        with pytest.raises(ValueError, match=r"^declined"):
            _core.jpeg_planes(file)
    whole_file = picture(64, 64, "4:2:0")
    with pytest.raises(ValueError, match="cut short"):
        _core.jpeg_planes(whole_file[:-200])
    with pytest.raises(ValueError, match="max_pixels=4000"):
        _core.jpeg_planes(whole_file, limits=_core.Limits(max_pixels=4000))


def first_batch(root: Path, field: Any, view: Any = None, **options: Any) -> Any:
    loader = hr.Loader(
        hr.open(root), {"x": field}, batch_size=64, view=view, output="numpy", threads=2, shuffle=False, **options
    )
    return next(iter(loader))["x"]


def test_ppm_as_pillow_reads_it(tmp_path: Path) -> None:
    colors, grey = photograph(37, 53), photograph(37, 53, grey=True)
    files = {
        "color": pnm(colors),
        "grey": pnm(grey),
        "comment": pnm(colors, b"# written by hand\n# 7 7\n"),
        "low": b"P6 53 37 200\n" + np.minimum(colors, 200).tobytes(),
        "wide colors": b"P6 53 37 65535\n" + colors.astype(">u2").tobytes(),
        "extra": pnm(colors) + b"more",
        "text": b"P2 2 2 255\n0 1 2 3\n",
    }
    for name, data in files.items():
        with Image.open(io.BytesIO(data)) as opened:
            expected = np.asarray(opened.convert("RGB"))
        assert np.array_equal(np.moveaxis(np.asarray(hr.decode_image(data)), 0, -1), expected), name
        folder = tmp_path / name
        folder.mkdir()
        (folder / "a.ppm").write_bytes(data)
        pixels = first_batch(folder, hr.Image(source="image", channels_last=True), hr.Resize(expected.shape[:2]))
        assert np.array_equal(np.moveaxis(pixels[0], 0, -1), expected), name


def test_formats_without_ppm_refuse_it(tmp_path: Path) -> None:
    (tmp_path / "a.ppm").write_bytes(pnm(photograph(9, 9)))
    with pytest.raises(LimitError, match="PPM, which is not among formats"):
        first_batch(tmp_path, hr.Image(source="image"), hr.Resize((9, 9)), on_error="raise",
                    limits=hr.Limits(formats=["PNG"]))  # fmt: skip


DENSE = {
    "labels": (hr.Mask(source="image"), np.uint8),
    "wide labels": (hr.Mask(source="image", dtype="int32"), np.uint16),
    "depth": (hr.Depth(1 / 1000, source="image", near=0.2), np.uint16),
    "relative depth": (hr.Depth(source="image", normalize=hr.Quantiles()), np.uint16),
    "wide picture": (hr.Image(mode="L", dtype="uint16", source="image"), np.uint16),
}


@pytest.mark.parametrize("kind", DENSE)
def test_pgm_equals_png(tmp_path: Path, kind: str) -> None:
    field, dtype = DENSE[kind]
    rng = np.random.default_rng(5)
    for name, write in {"pgm": pnm, "png": png}.items():
        (tmp_path / name).mkdir()
        for number in range(6):
            values = rng.integers(0, np.iinfo(dtype).max, (40 + number, 51), dtype, endpoint=True)
            (tmp_path / name / f"{number}.{name}").write_bytes(write(values))
        rng = np.random.default_rng(5)
    view = hr.RandomResizedCrop(32, flip=0.5)
    assert np.array_equal(first_batch(tmp_path / "pgm", field, view), first_batch(tmp_path / "png", field, view))


def test_16_bit_grey_as_a_picture_is_its_high_byte() -> None:
    values = np.random.default_rng(1).integers(0, 1 << 16, (21, 33)).astype(np.uint16)
    assert np.array_equal(hr.decode_image(pnm(values)), hr.decode_image(png(values)))


@pytest.mark.parametrize("place", ["folder", "tar"])
def test_loader_over_y4m_equals_jpeg(tmp_path: Path, place: str) -> None:
    sources = {}
    for name in ("jpg", "y4m"):
        folder = tmp_path / name
        folder.mkdir()
        for number, sampling in enumerate(SAMPLINGS * 4):
            file = picture(70 + number, 61 - number, sampling, progressive=number % 3 == 0)
            (folder / f"{number:03}.{name}").write_bytes(_core.jpeg_planes(file) if name == "y4m" else file)
        sources[name] = folder
        if place == "tar":
            sources[name] = tmp_path / f"{name}.tar"
            with tarfile.open(sources[name], "w") as tar:
                for path in sorted(folder.iterdir()):
                    tar.add(path, path.name)
    fields = (
        hr.Image(source="image", dct_scaling=False),
        hr.Image(source="image", dct_scaling=False, mode="L"),
        hr.Image(source="image", dct_scaling=False, copies=2, augment=hr.ColorJitter(0.4, 0.4, 0.4)),
        hr.Image(source="image", dct_scaling=False, filter="bicubic", normalize=hr.IMAGENET, dtype="float16"),
    )
    view = hr.RandomResizedCrop(48, flip=0.5)
    for field in fields:
        assert np.array_equal(first_batch(sources["y4m"], field, view), first_batch(sources["jpg"], field, view))


def code_of(data: bytes, limits: Any = None) -> int:
    with pytest.raises(ValueError) as caught:  # noqa: PT011  # core_images.run says the code
        run(data, view_row((0, 0, 8, 8), (0, 0, 8, 8), (8, 8)), limits=limits or _core.Limits())
    return caught.value.args[0]


Y4M_HEAD = b"YUV4MPEG2 W8 H8 F1:1 Ip A1:1 Cmono XCOLORRANGE=FULL\nFRAME\n"


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (Y4M_HEAD + bytes(63), CORRUPT),
        (Y4M_HEAD + bytes(65), UNSUPPORTED),
        (Y4M_HEAD[:30], CORRUPT),
        (Y4M_HEAD[:-1] + bytes(300), CORRUPT),
        (Y4M_HEAD.replace(b"W8", b"W0") + bytes(64), CORRUPT),
        (Y4M_HEAD.replace(b"W8", b"W-8") + bytes(64), CORRUPT),
        (Y4M_HEAD.replace(b"W8", b"W99999999999") + bytes(64), CORRUPT),
        (Y4M_HEAD.replace(b"W8", b"W2000000000") + bytes(64), LIMIT),
        (Y4M_HEAD.replace(b"Ip", b"It") + bytes(64), UNSUPPORTED),
        (Y4M_HEAD.replace(b"Cmono", b"C420mpeg2") + bytes(96), UNSUPPORTED),
        (Y4M_HEAD.replace(b"FULL", b"LIMITED") + bytes(64), UNSUPPORTED),
        (b"P5 8 8 255\n" + bytes(63), CORRUPT),
        (b"P5 8 8 255\n" + bytes(65), DECLINED),
        (b"P5 8 8 65535\n" + bytes(127), CORRUPT),
        (b"P6 0 8 255\n", CORRUPT),
        (b"P6 8 8", CORRUPT),
        (b"P6 8 8 # no end", CORRUPT),
        (b"P6 9999999999 9999999999 255\n", LIMIT),
        (b"P6 8 8 99999999999 ", DECLINED),
        (b"P6 -8 8 255\n", DECLINED),
        (b"P6 8 8 0\n", DECLINED),
    ],
)
def test_damage_is_a_fault(data: bytes, code: int) -> None:
    assert code_of(data) == code


def test_pixels_beyond_the_limit() -> None:
    limits = _core.Limits(max_pixels=63)
    assert code_of(Y4M_HEAD + bytes(64), limits) == LIMIT
    assert code_of(b"P5 8 8 255\n" + bytes(64), limits) == LIMIT
