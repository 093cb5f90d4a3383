"""What a notebook shows of a dataset: its line, and its first images, whatever state they are in."""

from __future__ import annotations

import base64
import io
import os
import re
import struct
import zlib

import numpy as np
import PIL.Image
import pytest

import headrace as hr
from headrace.data import Dataset

CELL = 112
GREY = (208, 215, 222)


def encoded(colour, size=(64, 32), kind="PNG"):
    out = io.BytesIO()
    PIL.Image.new("RGB", size, colour).save(out, kind)
    return out.getvalue()


def sheet_of(page):
    data = base64.b64decode(re.search(r'src="data:image/jpeg;base64,([^"]*)"', page)[1])
    return np.asarray(PIL.Image.open(io.BytesIO(data))).astype(int)


def middle(sheet, index):
    left, top = index % 6 * (CELL + 6) + 6, index // 6 * (CELL + 20) + 6
    return sheet[top + CELL // 2, left + CELL // 2]


@pytest.fixture
def reads(monkeypatch):
    seen, read = [], Dataset.read

    def counted(self, column, index, **more):
        seen.append(index)
        return read(self, column, index, **more)

    monkeypatch.setattr(Dataset, "read", counted)
    return seen


def test_a_notebook_shows_the_line_and_the_first_images(tmp_path, reads):
    for number in range(40):
        (tmp_path / f"<{number:02}>.png").write_bytes(encoded((6 * number, 100, 50)))
    data = hr.open(tmp_path)
    page = data._repr_html_()
    assert repr(data).replace("<", "&lt;").replace(">", "&gt;") in page
    assert 0 < len(reads) <= 16
    sheet = sheet_of(page)
    for index in range(12):
        assert np.abs(middle(sheet, index) - (6 * index, 100, 50)).max() <= 6
    assert np.abs(middle(sheet_of(data[30:]._repr_html_()), 0) - (180, 100, 50)).max() <= 6
    assert len(page) < 100_000


def header(width, height):
    chunk = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + chunk + struct.pack(">I", zlib.crc32(chunk))


def test_images_that_cannot_be_shown_are_blank(tmp_path):
    contents = [encoded((200, 0, 0)), b"no image", encoded((0, 0, 200))[:60], header(100_000, 100_000), b"",
                encoded((0, 0, 0), kind="JPEG2000"), b"gone"]  # fmt: skip
    for number, data in enumerate(contents):
        (tmp_path / f"{number}.png").write_bytes(data)
    data = hr.open(tmp_path)
    os.unlink(tmp_path / "6.png")
    sheet = sheet_of(data._repr_html_())
    assert np.abs(middle(sheet, 0) - (200, 0, 0)).max() <= 6
    for index in range(1, len(contents)):
        assert np.abs(middle(sheet, index) - GREY).max() <= 6, index


@pytest.mark.parametrize("rows", [{"label": [1, 2]}, {"image": ["none.jpg", "none too.jpg"]}])
def test_what_has_no_images_at_hand_does_not_fail(rows):
    data = hr.open(rows)
    assert repr(data) in data._repr_html_()
    assert repr(data[:0]) in data[:0]._repr_html_()
