"""Samples as bytes and back: the same types, bit for bit, and anything else is refused by name."""

from __future__ import annotations

import datetime
import io
from collections import OrderedDict, namedtuple
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from headrace.dropins.sample_encoding import MODES, UndecodableError, decode_sample, encode_sample
from headrace.errors import UsageError
from headrace.tools.demo_dataset import natural_image

Pair = namedtuple("Pair", "a b")
PLAIN = st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()) | st.binary()
TREES = st.recursive(
    PLAIN | st.binary().map(bytearray),
    lambda inner: (
        st.lists(inner)
        | st.lists(inner).map(tuple)
        | st.dictionaries(st.text() | st.integers() | st.tuples(st.booleans(), st.text()), inner)
        | st.builds(Pair, inner, inner)
    ),
    max_leaves=8,
)
DTYPES = ["?", "i1", ">i4", "u8", "f2", "<f4", ">f8", "c8", "c16", "S3", "U2", "M8[ns]", "m8[s]"]
TENSORS = [
    *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16),
    *(torch.float32, torch.float64, torch.complex64, torch.complex128, torch.uint16, torch.float8_e4m3fn),
]


def there_and_back(sample):
    return decode_sample(encode_sample(sample, 5))


@settings(max_examples=20)
@given(TREES)
def test_plain_values(sample):
    assert repr(there_and_back(sample)) == repr(sample)  # which tells True from 1, 1 from 1.0, and knows nan


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0, 3), (5,), (2, 3, 4)])
def test_arrays(dtype, shape):
    raw = np.resize(np.arange(1, 97, dtype=np.uint8), int(np.prod(shape)) * np.dtype(dtype).itemsize)
    array = (raw % 2 == 0 if dtype == "?" else raw.view(dtype)).reshape(shape)
    got = there_and_back({"x": array})["x"]
    assert (type(got), got.dtype, got.shape, got.tobytes()) == (np.ndarray, array.dtype, shape, array.tobytes())
    assert got.flags.writeable
    assert got.flags.owndata


def test_arrays_in_any_layout():
    array = np.arange(60, dtype=np.float32).reshape(3, 4, 5)
    for one in (array.T, array[::2, ::-1], np.asfortranarray(array), np.broadcast_to(array[0], (2, 4, 5))):
        assert np.array_equal(there_and_back(one), one)


def test_scalars_of_numpy():
    for scalar in (np.float32(0.1), np.int8(-3), np.bool_(True), np.str_("ab"), np.datetime64("2020-01-01")):
        got = there_and_back(scalar)
        assert (type(got), got) == (type(scalar), scalar)


@pytest.mark.parametrize("dtype", TENSORS, ids=str)
@pytest.mark.parametrize("shape", [(), (0, 2), (3, 5)])
def test_tensors(dtype, shape):
    raw = torch.arange(240, dtype=torch.uint8)[: int(np.prod(shape)) * dtype.itemsize]
    tensor = (raw % 2 == 0).reshape(shape) if dtype == torch.bool else raw.clone().view(dtype).reshape(shape)
    got = there_and_back([tensor])[0]
    assert (type(got), got.dtype, got.shape) == (torch.Tensor, dtype, tensor.shape)
    assert got.reshape(-1).view(torch.uint8).tolist() == tensor.reshape(-1).view(torch.uint8).tolist()


def test_tensors_in_any_layout():
    tensor = torch.complex(torch.arange(12.0), torch.ones(12)).reshape(3, 4)
    for one in (tensor.T, tensor[:, 1::2], tensor.conj(), tensor.conj().imag, tensor.real[0].expand(2, 4)):
        assert torch.equal(there_and_back(one), one)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("mode", MODES)
def test_images(mode):
    through = {"La": "LA", "PA": "P", "RGBa": "RGBA"}.get(mode)
    photo = Image.fromarray(natural_image(33, 17, seed=1))
    if mode == "LAB":
        image = Image.frombytes(mode, photo.size, photo.tobytes())
    elif mode == "I;16":
        image = Image.fromarray(np.arange(33 * 17, dtype=np.uint16).reshape(17, 33) * 99)
    else:
        image = (photo if through is None else photo.convert(through)).convert(mode)
    got = there_and_back(image)
    assert got == image
    assert (got.mode, got.size, got.tobytes(), got.getpalette()) == (
        image.mode,
        image.size,
        image.tobytes(),
        image.getpalette(),
    )
    got.putpixel((0, 0), got.getpixel((1, 1)))


def test_what_an_image_carries():
    """Transparency, EXIF and profiles, as far as they are plain; a file becomes a picture."""
    exif = Image.Exif()
    exif[0x0112] = 6
    buffer = io.BytesIO()
    Image.fromarray(natural_image(8, 8, seed=0)).save(buffer, "JPEG", exif=exif, icc_profile=b"profile", dpi=(72, 72))
    opened = Image.open(buffer)
    got = there_and_back(opened)
    assert type(got) is Image.Image
    assert got.tobytes() == opened.tobytes()
    assert got.getexif()[0x0112] == 6
    assert got.info["icc_profile"] == b"profile"
    palette = Image.new("P", (4, 4), 3)
    palette.putpalette(bytes(range(48)))
    palette.info["transparency"] = 3
    assert there_and_back(palette).convert("RGBA").tobytes() == palette.convert("RGBA").tobytes()


def test_an_image_of_no_pixels():
    assert there_and_back(Image.new("RGB", (0, 7))).size == (0, 7)


Local = namedtuple("Local", "x")
Local.__qualname__ = "somewhere.else_"


@pytest.mark.parametrize(
    ("sample", "words"),
    [
        (Path("x"), "sample 5: expected None, bool, .* got a pathlib.PosixPath. Return plain values, or make it in"),
        ({"when": [1, datetime.date(2020, 1, 1)]}, r"sample 5\['when'\]\[1\]: .* got a datetime.date"),
        (({"a": {2, 3}},), r"sample 5\[0\]\['a'\]: .* got a set"),
        (OrderedDict(a=1), "got a collections.OrderedDict"),
        ({Path("x"): 1}, "a key of sample 5: .* got a pathlib.PosixPath"),
        (np.array([None]), r"sample 5 \(an array of object\)"),
        (np.zeros(2, [("a", "i4")]), r"sample 5 \(an array of \[\('a', '<i4'\)\]\)"),
        (np.ma.masked_array([1]), "got a numpy.ma.+MaskedArray"),
        (torch.zeros(2, requires_grad=True), r"\(cpu, torch.strided, with a gradient\)"),
        (torch.zeros(2, 2).to_sparse(), r"\(cpu, torch.sparse_coo\)"),
        (torch.zeros(2, device="meta"), r"\(meta, torch.strided\)"),
        (torch.nn.Parameter(torch.zeros(1)), "got a torch.nn.parameter.Parameter"),
        (Image.new("I;16B", (2, 2)), r"\(of mode I;16B\)"),
        (Local(1), "Define the named tuple at the top of a module"),
    ],
)
def test_anything_else_is_named(sample, words):
    with pytest.raises(UsageError, match=rf"^cached: .*{words}"):
        encode_sample(sample, 5)


def test_a_list_in_itself():
    sample: list[object] = []
    sample.append(sample)
    with pytest.raises(UsageError, match="got lists in a circle"):
        encode_sample(sample, 5)


@given(st.data())
def test_bytes_that_were_changed_raise_nothing_else(data):
    """The store's checksum is before it; what gets through is from another version."""
    good = bytearray(
        encode_sample({"a": np.arange(5), "b": [Pair(1, "x"), torch.ones(2)], "c": Image.new("P", (2, 2))}, 0)
    )
    for _ in range(data.draw(st.integers(1, 3))):
        good[data.draw(st.integers(0, len(good) - 1))] = data.draw(st.integers(0, 255))
    with suppress(UndecodableError):
        decode_sample(bytes(good[: data.draw(st.integers(0, len(good)))]))
