"""Sound files of every kind that the core reads, small and drawn from a seed: what damage is done to."""

from __future__ import annotations

import io
import tarfile
import zipfile
from collections.abc import Callable, Iterator

import numpy as np
from PIL import Image
from png_writer import CHANNELS, write_png

from headrace.tools.demo_dataset import natural_image

SIZES = ((1, 1), (3, 5), (8, 8), (17, 33), (40, 30), (100, 20))
"""Width and height: one MCU and less, odd edges, several MCU rows."""
JPEG_OPTIONS: dict[str, dict[str, object]] = {
    "420": {"subsampling": 2},
    "422": {"subsampling": 1},
    "444": {"subsampling": 0},
    "411": {"subsampling": "4:1:1"},
    "optimised": {"subsampling": 2, "optimize": True, "quality": 95},
    "coarse": {"subsampling": 2, "quality": 8},
    "progressive": {"subsampling": 2, "progressive": True},
    "progressive-444": {"subsampling": 0, "progressive": True, "quality": 95},
    "restarts": {"subsampling": 2, "restart_marker_blocks": 2},
    "progressive-restarts": {"subsampling": 1, "progressive": True, "restart_marker_rows": 1},
    "rgb": {"keep_rgb": True, "subsampling": 0},
}
PNG_KINDS = [(0, 1), (0, 2), (0, 4), (0, 8), (0, 16), (2, 8), (2, 16), (3, 1), (3, 2), (3, 4), (3, 8)]
PNG_KINDS += [(4, 8), (4, 16), (6, 8), (6, 16)]
"""Colour type and bit depth."""


def jpegs(sizes: tuple[tuple[int, int], ...] = SIZES) -> Iterator[tuple[str, bytes]]:
    """(name, bytes) of each kind of JPEG in each size; grey, CMYK and a turned one among them."""
    turned = Image.Exif()
    turned[0x0112] = 6
    for number, size in enumerate(sizes):
        picture = Image.fromarray(natural_image(max(size[0], 8), max(size[1], 8), seed=number)).crop((0, 0, *size))
        kinds = {name: (picture, options) for name, options in JPEG_OPTIONS.items()}
        kinds["grey"] = (picture.convert("L"), {})
        kinds["grey-progressive"] = (picture.convert("L"), {"progressive": True})
        kinds["cmyk"] = (picture.convert("CMYK"), {})
        kinds["turned"] = (picture, {"exif": turned, "comment": b"a comment"})
        for name, (source, options) in kinds.items():
            yield f"{name}-{size[0]}x{size[1]}", encode(source, **({"quality": 80} | options))
    noise = np.random.default_rng(0).integers(0, 256, (70, 80, 3), np.uint8)
    yield "noise-80x70", encode(Image.fromarray(noise), quality=98)  # more than is decoded from at a time


def encode(picture: Image.Image, **options: object) -> bytes:
    out = io.BytesIO()
    picture.save(out, "JPEG", **options)
    return out.getvalue()


def pngs(sizes: tuple[tuple[int, int], ...] = SIZES) -> Iterator[tuple[str, bytes]]:
    """(name, bytes) of each colour type and depth in each size, plain and interlaced, in one IDAT and in several."""
    for number, (width, height) in enumerate(sizes):
        rng = np.random.default_rng(number)
        for color, depth in PNG_KINDS:
            picture = natural_image(max(width, 8), max(height, 8), seed=number)[:height, :width]
            samples = np.resize(picture.astype(np.uint32), (height, width, CHANNELS[color])) * 257 >> (16 - depth)
            palette = rng.integers(0, 256, 3 << depth, np.uint8).tobytes() if color == 3 else b""
            for interlaced in (False, True):
                name = f"color{color}-depth{depth}{'-interlaced' * interlaced}-{width}x{height}"
                options = {"interlaced": interlaced, "palette": palette, "idat_bytes": 100 if interlaced else None}
                yield name, write_png(samples, depth, color, **options)


def tars() -> Iterator[tuple[str, bytes]]:
    """(name, bytes) of tars in each format, with names and kinds of members that need its extensions."""
    formats = {"ustar": tarfile.USTAR_FORMAT, "gnu": tarfile.GNU_FORMAT, "pax": tarfile.PAX_FORMAT}
    contents: dict[str, Callable[[tarfile.TarFile], None]] = {
        "samples": _add_samples,
        "names": _add_long_names,
        "kinds": _add_kinds,
    }
    for format_name, number in formats.items():
        for content_name, add in contents.items():
            out = io.BytesIO()
            with tarfile.open(fileobj=out, mode="w", format=number, pax_headers={"comment": "global"}) as tar:
                add(tar)
            yield f"{format_name}-{content_name}", _without_padding(out.getvalue())


def _add_samples(tar: tarfile.TarFile) -> None:
    for name in ("cat/1.jpg", "cat/1.txt", "dog/2.jpg", "./dog/2.seg.png", ".hidden", "__meta__/x.json", "README"):
        _add_file(tar, name, name.encode() * 3)


def _add_long_names(tar: tarfile.TarFile) -> None:
    longest = 230 if tar.format == tarfile.USTAR_FORMAT else 400
    for number in range(2):
        _add_file(tar, "/".join(["folder"] * (longest // 7)) + f"/{number}.jpg", b"jpeg")
    if tar.format != tarfile.USTAR_FORMAT:
        _add_file(tar, "größe\u00df.jpg", b"jpeg")
        _add_link(tar, "long link.jpg", "target/" * 30, tarfile.SYMTYPE)


def _add_kinds(tar: tarfile.TarFile) -> None:
    _add_file(tar, "a.jpg", b"jpeg" * 200)
    _add_link(tar, "soft.jpg", "a.jpg", tarfile.SYMTYPE)
    _add_link(tar, "hard.jpg", "a.jpg", tarfile.LNKTYPE)
    _add_link(tar, "pipe", "", tarfile.FIFOTYPE)
    _add_link(tar, "folder", "", tarfile.DIRTYPE)
    _add_file(tar, "empty.txt", b"")


def _add_file(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    tar.addfile(info, io.BytesIO(content))


def _add_link(tar: tarfile.TarFile, name: str, target: str, kind: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    tar.addfile(info)


def zips() -> Iterator[tuple[str, bytes]]:
    """(name, bytes) of zips: stored, deflated, otherwise packed, in ZIP64's form, behind a program, with a comment."""
    methods = {"stored": zipfile.ZIP_STORED, "deflated": zipfile.ZIP_DEFLATED, "bzip2": zipfile.ZIP_BZIP2}
    for name, method in methods.items():
        for large in (False, True):
            out = io.BytesIO(b"#!program\n" if large else b"")
            out.seek(0, io.SEEK_END)
            with zipfile.ZipFile(out, "a", method) as archive:
                archive.comment = b"comment" * large
                for member in ("cat/1.jpg", "cat/1.txt", "größe.jpg", "folder/", "empty"):
                    content = b"" if member in ("folder/", "empty") else member.encode() * 20
                    with archive.open(zipfile.ZipInfo(member), "w", force_zip64=large) as file:
                        file.write(content)
            yield f"{name}{'-zip64' * large}", out.getvalue()


def _without_padding(tar: bytes) -> bytes:
    """Two blocks of zeros are its end; tarfile fills up to 10 KiB."""
    return tar.rstrip(b"\0") + bytes(-len(tar.rstrip(b"\0")) % 512 + 1024)
