"""Arrays in files: headers as numpy and others write them."""

from __future__ import annotations

import io
import struct

import numpy as np
import OpenEXR
import pytest
from numpy.lib import format as npy

from headrace._core import Limits
from headrace.data import array_files


def saved(array: np.ndarray) -> bytes:
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


@pytest.mark.one_in(2)
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["<f4", ">f8", "<f2", "|u1", ">u2", "<i8", "|b1"])
@pytest.mark.parametrize("shape", [(7,), (5, 6), (1, 5, 6), (5, 6, 3), (0, 4)], ids=str)
def test_ordinary_headers_are_read_without_evaluating_them(shape, dtype, order, monkeypatch):
    """Which no two threads could do at once in some versions of Python."""
    monkeypatch.delattr(npy, "read_array_header_1_0")
    values = np.random.default_rng(1).integers(0, 2, shape).astype(dtype, order=order)
    found = array_files.read_array(saved(values), Limits())
    assert found.dtype == values.dtype
    np.testing.assert_array_equal(found, values)


@pytest.mark.parametrize(
    "text",
    [
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2,3), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3)}",
        '{"shape": (2, 3), "fortran_order": False, "descr": "<f4"}',
    ],
)
def test_headers_of_other_writers(text):
    values = np.arange(6, dtype="<f4").reshape(2, 3)
    for version, length in ((1, "<H"), (2, "<I")):
        header = text.encode() + b" " * 9 + b"\n"
        data = b"\x93NUMPY" + bytes([version, 0]) + struct.pack(length, len(header)) + header + values.tobytes()
        np.testing.assert_array_equal(array_files.read_array(data, Limits()), values)


@pytest.mark.parametrize("wrong", [b"<f3", b"|i0", b"<x4", b"ff4"])
def test_a_type_that_there_is_not(wrong):
    data = saved(np.zeros((2, 3), "<f4")).replace(b"<f4", wrong)
    with pytest.raises(ValueError, match="header that cannot be read"):
        array_files.read_array(data, Limits())
    assert array_files.array_size(data) == (0, 0)


def test_an_exr_of_many_channels_is_not_decoded(tmp_path, monkeypatch):
    """A file of half a megabyte could hold gigabytes of zeros."""
    path = tmp_path / "a.exr"
    channels = {f"C{number:02}": np.zeros((4, 4), np.float32) for number in range(40)}
    OpenEXR.File({"compression": OpenEXR.ZIP_COMPRESSION, "type": OpenEXR.scanlineimage}, channels).write(str(path))
    monkeypatch.delattr(OpenEXR.File, "channels")
    with pytest.raises(ValueError, match=r"one channel, or of R, G and B, got C00, C01, .*C07, …$"):
        array_files.read_array(path.read_bytes(), Limits())
