"""Decoding by Pillow: safe with any bytes, and without a trace in the process's settings."""

from __future__ import annotations

import io
import multiprocessing
import os
import pickle
import random
import select
import struct
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import PIL.Image
import PIL.ImageOps
import pytest
from bad_loads import fails, load
from loader_data import encode, photograph
from measured_images import exif_of
from processes import run_python

import headrace as hr
from headrace.data.pillow_images import is_tga
from headrace.errors import DecodeError, LimitError
from headrace.loader.decoding import pillow
from headrace.tools import peek_survey

REFUSED = ["ICNS", "ICO", "PCX", "SGI", "QOI", "DDS"]
TAKEN = ["BMP", "GIF", "JPEG2000", "PPM", "TGA", "TIFF", "WEBP"]


def test_no_program_is_run_for_an_image(tmp_path, monkeypatch):
    """Pillow hands EPS to Ghostscript, here one that leaves a trace."""
    program = tmp_path / "bin" / "gs"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    folder = tmp_path / "photos"
    folder.mkdir()
    (folder / "a.jpg").write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 50 50\n%%EndComments\nshowpage\n")
    fails(DecodeError, load(folder, on_error="raise"), "a.jpg", "no format that Pillow knows")
    assert not (tmp_path / "ran").exists()


HEIC = b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + bytes(200)


def test_heic_names_its_package(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pillow_heif", None)  # as if it was not installed
    (tmp_path / "a.heic").write_bytes(HEIC)
    fails(DecodeError, load(tmp_path, on_error="raise"), "a.heic", "pip install pillow-heif")


def test_heic_is_decoded_by_its_plugin(tmp_path):
    """In a process of its own, which loads the plugin for itself."""
    plugin = pytest.importorskip("pillow_heif")
    plugin.from_pillow(photograph(1, 60, 40)).save(tmp_path / "a.heic", quality=100)
    (batch,) = load(tmp_path, view=None)
    expected = np.asarray(plugin.open_heif(tmp_path / "a.heic").to_pillow().convert("RGB"))
    np.testing.assert_array_equal(np.asarray(batch["image"][0]).transpose(1, 2, 0), expected)


@pytest.mark.parametrize("kind", ["WEBP", "GIF"])
def test_an_animation_gives_its_first_frame(tmp_path, kind):
    frames = [PIL.Image.new("RGB", (20, 16), colour) for colour in ((200, 0, 0), (0, 200, 0))]
    frames[0].save(tmp_path / f"a.{kind.lower()}", kind, save_all=True, append_images=frames[1:], duration=40)
    (batch,) = load(tmp_path)
    assert np.asarray(batch["image"][0])[0].min() > 150


def test_other_warnings_stay_as_they_are(tmp_path):
    for number in range(32):
        (tmp_path / f"{number}.webp").write_bytes(encode(photograph(number, 20, 20), "WEBP"))
    for _ in load(tmp_path, threads=4):
        pass
    with pytest.warns(UserWarning, match="still heard"):
        warnings.warn("still heard", stacklevel=1)


def test_pillows_own_bomb_error_is_a_limit(tmp_path):
    header = (
        b"BM"
        + struct.pack("<IHHI", 62, 0, 0, 62)
        + struct.pack("<IiiHHIIiiII", 40, 20000, 20000, 1, 1, 0, 0, 0, 0, 2, 0)
    )
    (tmp_path / "a.bmp").write_bytes(header + bytes(64))
    limits = hr.Limits(max_pixels=10**9)
    fails(LimitError, load(tmp_path, on_error="raise", limits=limits), "400000000 pixels", "MAX_IMAGE_PIXELS")


def test_a_raised_limit_lets_pillow_decode(tmp_path):
    (tmp_path / "a.webp").write_bytes(encode(photograph(1, 30, 30), "WEBP"))
    fails(LimitError, load(tmp_path, on_error="raise", limits=hr.Limits(max_pixels=899)), "max_pixels=899")
    (batch,) = load(tmp_path, limits=hr.Limits(max_pixels=900))
    assert batch["image"].any()
    assert batch["image"].dtype == np.uint8


def slow_jpeg2000(side: int = 13_000) -> bytes:
    """Less than 200 bytes that OpenJPEG takes many seconds and much memory for: one tile of many precincts of 2 pixels,
    next to nothing of which is there (ISO 15444-1, annex A)."""

    def segment(marker: int, content: bytes) -> bytes:
        return struct.pack(">HH", marker, 2 + len(content)) + content

    size = struct.pack(">HIIIIIIIIHBBB", 0, side, side, 0, 0, side, side, 0, 0, 1, 7, 1, 1)
    style = bytes([1, 0, 0, 1, 0, 2, 4, 4, 0, 1]) + b"\x11" * 3
    tile = struct.pack(">HHHIBB", 0xFF90, 10, 0, 0, 0, 1) + b"\xff\x93" + bytes(100)
    return (
        b"\xff\x4f"
        + segment(0xFF51, size)
        + segment(0xFF52, style)
        + segment(0xFF5C, b"\x40" + b"\x40" * 7)
        + tile
        + b"\xff\xd9"
    )


@pytest.mark.one_in(8)
@pytest.mark.parametrize("kind", REFUSED)
def test_other_formats_are_refused_by_name(tmp_path, kind):
    data = encode(photograph(1, 64, 64), kind)
    with pytest.raises(LimitError, match=rf"{kind}, which is not among formats=\('AVIF', .*limits=headrace\.Limits"):
        hr.decode_image(data, output="numpy")
    (tmp_path / "a.jpg").write_bytes(data)
    fails(LimitError, load(tmp_path, on_error="raise"), "a.jpg", f"{kind}, which is not among formats=")
    assert peek_survey._header(data) == (None, None)


@pytest.mark.parametrize("kind", REFUSED)
@pytest.mark.one_in(6)
@pytest.mark.long
def test_a_format_that_is_asked_for_is_decoded(tmp_path, kind):
    data = encode(photograph(1, 64, 64), kind)
    limits = hr.Limits(formats=[kind.lower()])
    with PIL.Image.open(io.BytesIO(data)) as opened:
        expected = np.asarray(opened.convert("RGB"))
    np.testing.assert_array_equal(hr.decode_image(data, output="numpy", limits=limits), expected)
    (tmp_path / "a.jpg").write_bytes(data)
    (batch,) = load(tmp_path, limits=limits)
    assert batch["image"].any()


@pytest.mark.one_in(4)
@pytest.mark.parametrize("kind", TAKEN)
def test_formats_of_the_list_are_as_pillow_decodes_them(kind):
    data = encode(photograph(3, 31, 57), kind)
    with PIL.Image.open(io.BytesIO(data)) as opened:
        expected = np.asarray(opened.convert("RGB"))
    np.testing.assert_array_equal(hr.decode_image(data, output="numpy"), expected)
    with pytest.raises(LimitError, match="31x57 pixels, more than max_pixels=1766"):
        hr.decode_image(data, output="numpy", limits=hr.Limits(max_pixels=31 * 57 - 1))


@pytest.mark.parametrize("options", [{}, {"exif": True}, {"exif": False}], ids=str)
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF"])
def test_images_are_turned_as_pillow_turns_them(kind, options):
    """Pillow turns a TIFF as it decodes it, whoever asks; other formats unless `exif=False`."""
    picture = photograph(3, 40, 30)
    files = [encode(picture, kind, exif=exif_of(turn)) for turn in range(1, 9)]
    loader = hr.Loader(hr.open(files), {"image": hr.Image(**options)}, batch_size=1, output="numpy", max_bad=0.0)
    for batch, file in zip(loader, files, strict=True):
        opened = PIL.Image.open(io.BytesIO(file))
        expected = np.asarray(PIL.ImageOps.exif_transpose(opened) if options.get("exif", True) else opened)
        assert np.abs(batch["image"][0].transpose(1, 2, 0).astype(int) - expected).max() <= (kind == "JPEG")
        for found in (
            hr.decode_image(file, output="numpy", **options),
            hr.ImageReader(output="numpy", **options)(file),
            hr.read_images([file], output="numpy", **options)[0],
        ):
            np.testing.assert_array_equal(found, batch["image"][0].transpose(1, 2, 0))


@pytest.mark.long
def test_decoding_that_takes_too_long_is_a_bad_sample(tmp_path):
    limits = hr.Limits(max_decode_s=0.3, max_decode_bytes=4 << 30)
    with pytest.raises(LimitError, match=r"JPEG2000 whose decoding took longer than max_decode_s=0\.3; raise it with"):
        hr.decode_image(slow_jpeg2000(), output="numpy", limits=limits)
    assert not pillow._waiting, "it was ended"
    for number in range(3):
        (tmp_path / f"{number}.webp").write_bytes(encode(photograph(number, 20, 20), "WEBP"))
    (tmp_path / "slow.jp2").write_bytes(slow_jpeg2000())
    (batch,) = load(tmp_path, limits=limits, max_bad=1.0)
    assert len(batch["image"]) == 4
    assert all(image.any() for image in batch["image"])


@pytest.mark.long
def test_a_process_apart_that_has_ended_is_no_news():
    data = encode(photograph(1, 30, 30), "JPEG2000")
    expected = hr.decode_image(data, output="numpy")
    waiting = pillow._waiting.pop()
    os.kill(waiting.pid, 9)
    pillow._waiting.append(waiting)
    np.testing.assert_array_equal(hr.decode_image(data, output="numpy"), expected)


@pytest.mark.parametrize(
    ("end", "why"),
    [
        ("os.abort()", "was ended by signal 6"),
        ("parent.close(); import time; time.sleep(0.2); sys.exit(3)", "ended with status 3"),
    ],
)
def test_an_image_that_ends_its_decoder_is_a_bad_sample(monkeypatch, end, why):
    monkeypatch.setattr(pillow, "_START", pillow._START.replace("serve(int(sys.argv[2]))\n", DYING + end))
    with pytest.raises(DecodeError, match=f"got bytes at which its decoder {why}"):
        hr.decode_image(encode(photograph(1, 30, 30), "JPEG2000"), output="numpy")


DYING = """
import os
from multiprocessing.connection import Connection
parent = Connection(int(sys.argv[2]))
parent.send_bytes(b"!")
parent.recv_bytes()
"""


@pytest.mark.long
def test_one_that_nobody_asks_ends_by_itself(monkeypatch):
    hurried = "import headrace.loader.decoding.pillow as this; this.IDLE_S = 0.01; serve(int(sys.argv[2]))"
    monkeypatch.setattr(pillow, "_START", pillow._START.replace("serve(int(sys.argv[2]))\n", hurried))
    data = encode(photograph(1, 30, 30), "JPEG2000")
    expected = hr.decode_image(data, output="numpy")
    waiting = pillow._waiting.pop()
    assert waiting._process.wait(60) == 0
    pillow._waiting.append(waiting)
    np.testing.assert_array_equal(hr.decode_image(data, output="numpy"), expected)


@pytest.mark.long
def test_a_fork_has_its_own():
    data = encode(photograph(1, 30, 30), "JPEG2000")
    expected = hr.decode_image(data, output="numpy")
    with ThreadPoolExecutor(2) as threads:
        assert all(np.array_equal(each, expected) for each in threads.map(decoded, [data] * 6))
    with multiprocessing.get_context("fork").Pool(1) as pool:
        (found,) = pool.map(decoded, [data])
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(decoded(data), expected)


def decoded(data: bytes) -> np.ndarray:
    return hr.decode_image(data, output="numpy")


DECODE_AND_DIE = """
import os, sys
import headrace as hr
from headrace.loader.decoding import pillow as decoder_process
hr.decode_image(sys.argv[1], output="numpy")
process = decoder_process._waiting.pop()
print(process.pid, flush=True)
os.kill(os.getpid(), 9)
"""


def test_it_ends_with_its_parent(tmp_path):
    (tmp_path / "a.jp2").write_bytes(encode(photograph(1, 30, 30), "JPEG2000"))
    expect_its_end(*run_python(DECODE_AND_DIE, tmp_path / "a.jp2"))


def expect_its_end(code: int, out: str, error: str) -> None:
    assert code == -9, error
    try:
        descriptor = os.pidfd_open(int(out))
    except ProcessLookupError:
        return
    try:
        waiting = select.poll()
        waiting.register(descriptor, select.POLLIN)
        assert waiting.poll(30_000), "it is still there"
    finally:
        os.close(descriptor)


DIE_WHILE_IT_DECODES = """
import os, sys
from multiprocessing.connection import Connection
import headrace as hr
from headrace.loader.decoding import pillow as apart

serving = "serve(int(sys.argv[2]))"
hurried = "import headrace.loader.decoding.pillow as this; this._GRACE_S = 0.1"
endless = f"{hurried}; this.decode_here = lambda *_: signal.pause(); {serving}"
apart._START = apart._START.replace(serving, endless)
ask = apart._DecoderProcess.ask

def die_while_it_answers(self, *request):
    def die(connection, timeout):
        print(self.pid, flush=True)
        os.kill(os.getpid(), 9)

    Connection.poll = die
    return ask(self, *request)

apart._DecoderProcess.ask = die_while_it_answers
hr.decode_image(sys.argv[1], output="numpy", limits=hr.Limits(max_decode_s=0.1))
"""


@pytest.mark.long
def test_one_that_decodes_for_good_ends_though_its_parent_was_killed(tmp_path):
    (tmp_path / "a.jp2").write_bytes(encode(photograph(1, 30, 30), "JPEG2000"))
    expect_its_end(*run_python(DIE_WHILE_IT_DECODES, tmp_path / "a.jp2"))


NEXT_TO_NONE = [{"max_decode_s": 1e7}, {"max_decode_s": float("inf")}, {"max_pixels": (1 << 63) - 1}]


@pytest.mark.parametrize("options", NEXT_TO_NONE, ids=str)
@pytest.mark.one_in(4)
@pytest.mark.long
def test_limits_may_be_as_high_as_one_likes(options):
    data = encode(photograph(1, 30, 30), "JPEG2000")
    found = hr.decode_image(data, output="numpy", limits=hr.Limits(**options))
    np.testing.assert_array_equal(found, decoded(data))


def webp_of(chunk: bytes, content: bytes) -> bytes:
    return b"RIFF" + struct.pack("<I", 12 + len(content)) + b"WEBP" + chunk + struct.pack("<I", len(content)) + content


@pytest.mark.parametrize(
    "data",
    [
        webp_of(b"VP8X", bytes(4) + b"\xfe\x3f\0" * 2 + bytes(40)),
        webp_of(b"VP8L", b"\x2f" + (16_382 | 16_382 << 14).to_bytes(4, "little") + bytes(40)),
        webp_of(b"VP8 ", b"\0\0\0\x9d\x01\x2a" + struct.pack("<HH", 16_383, 16_383) + bytes(40)),
    ],
)
def test_a_large_webp_is_refused_before_its_plugin_makes_a_canvas(monkeypatch, data):
    def plugin(*_, **__):
        raise AssertionError("Pillow was asked")

    monkeypatch.setattr(PIL.Image, "open", plugin)
    with pytest.raises(LimitError, match="WEBP of 16383x16383 pixels, more than max_pixels=178956970"):
        hr.decode_image(data, output="numpy")


@pytest.mark.parametrize("options", [{}, {"lossless": True}, {"exif": b"Exif\0\0" + bytes(20)}], ids=str)
def test_the_size_of_a_webp_is_known_before(options):
    from headrace.data.pillow_images import stated_size

    assert stated_size(encode(photograph(1, 31, 57), "WEBP", **options)) == (31, 57)


@pytest.mark.parametrize("mode", ["L", "P", "RGB", "RGBA", "1"])
@pytest.mark.parametrize("packed", [False, True])
def test_a_tga_is_known_by_its_header(mode, packed):
    out = io.BytesIO()
    PIL.Image.fromarray(np.asarray(photograph(1, 33, 21))).convert(mode).save(
        out, "TGA", **({"compression": "tga_rle"} if packed and mode != "1" else {})
    )
    assert is_tga(out.getvalue())
    assert is_tga(out.getvalue()[:-26]), "without the footer of the second version"
    assert not is_tga(out.getvalue()[:18])


def test_other_bytes_are_no_tga():
    rng = random.Random(0)
    assert not any(is_tga(rng.randbytes(rng.randrange(400))) for _ in range(20_000))
    for text in (b"", b"just some text, longer than the header of a TGA is", bytes(1000)):
        assert not is_tga(text)
        with pytest.raises(DecodeError, match="no format that Pillow knows"):
            hr.decode_image(text + b" ", output="numpy")


@pytest.mark.parametrize("kind", ["WEBP", "JPEG2000"])
def test_what_this_pillow_lacks_is_named(monkeypatch, kind):
    data = encode(photograph(1, 30, 30), kind)
    PIL.Image.init()
    monkeypatch.delitem(PIL.Image.OPEN, kind)
    with pytest.raises(DecodeError, match=f"a Pillow that decodes {kind}, got .* without it: install a Pillow"):
        hr.decode_image(data, output="numpy")


def test_limits_are_equal_however_they_are_written():
    one, other = hr.Limits(formats=["ICNS", "png"]), hr.Limits(formats=("PNG", "ICNS", "PNG"))
    assert one == other
    assert hash(one) == hash(other)
    assert pickle.loads(pickle.dumps(one)) == one != hr.Limits()
    assert one.formats == ("ICNS", "PNG")
    with pytest.raises(ValueError, match="got EPS, for which it runs Ghostscript"):
        hr.Limits(formats=["EPS"])
    with pytest.raises(ValueError, match="max_decode_s: expected more than 0"):
        hr.Limits(max_decode_s=0)
