"""Decoding by Pillow: safe with any bytes, and without a trace in the process's settings."""

from __future__ import annotations

import os
import struct
import warnings

import numpy as np
import pytest
from bad_loads import fails, load
from loader_data import encode, photograph

import headrace as hr
from headrace.errors import DecodeError, LimitError


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
