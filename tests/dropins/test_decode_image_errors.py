"""What `decode_image` says of what is wrong: class and text, and the same of a pickled copy."""

from __future__ import annotations

import io
import os
import pickle

import numpy as np
import pytest
import torch
from bad_loads import BAD, JPEG, PNG, says
from loader_data import encode, photograph
from PIL import Image

import headrace as hr
from headrace.dropins.image_reader import ImageReader, decode_image
from headrace.errors import (
    DecodeError,
    LimitError,
    NotFoundError,
    ReadError,
    SampleError,
    UsageError,
    ViewError,
)

WEBP = encode(photograph(1, 64, 48), "WEBP")


def fails(kind, *texts, source, **options):
    """It raises just this class, saying these texts, and so does its pickled copy."""
    with pytest.raises(kind) as caught:
        decode_image(source, **options)
    says(caught, *texts)
    error = caught.value
    assert type(error) is kind
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy)) == (kind, str(error))
    return error


# --- the image ---


@pytest.mark.parametrize(("data", "kind", "texts"), BAD.values(), ids=BAD)
def test_bad_content(tmp_path, data, kind, texts):
    path = tmp_path / "c.jpg"
    path.write_bytes(data)
    error = fails(kind, *texts, source=path)
    assert (error.key, error.shard, error.offset, error.field) == (str(path), str(path), None, "image")
    size = f"{len(data):,} bytes"
    error = fails(kind, *texts, f"sample '{size}', field 'image' (in memory)", source=data)
    assert error.key == size
    with path.open("rb") as file:
        error = fails(kind, *texts, "a file object, BufferedReader", source=file)
    assert error.key == str(path)
    assert fails(kind, *texts, source=io.BytesIO(data)).key == "BytesIO"


@pytest.mark.parametrize("data", [JPEG, PNG, WEBP], ids=["JPEG", "PNG", "WebP"])
def test_limits(tmp_path, data):
    path = tmp_path / "a.jpg"
    path.write_bytes(data)
    for source in (path, data, io.BytesIO(data)):
        pixels, size = hr.Limits(max_pixels=64 * 48 - 1), hr.Limits(max_file_bytes=len(data) - 1)
        fails(LimitError, "max_pixels", "3071", "limits=headrace.Limits(...)", source=source, limits=pixels)
        fails(LimitError, f"max_file_bytes={len(data) - 1}", "limits=", source=source, limits=size)
        enough = hr.Limits(max_pixels=64 * 48, max_file_bytes=len(data))
        assert decode_image(source, limits=enough).shape == (3, 48, 64)


def test_a_strip_does_not_become_gigabytes():
    """Its long side follows the short one, and is the image's to choose."""
    data = encode(Image.new("RGB", (1, 60000)), "PNG")
    fails(ViewError, "256 x 15360000", "max_pixels", source=data, view=hr.Resize(256))


def test_a_view_that_the_image_cannot_have():
    fails(ViewError, "RandomCrop of 100 x 100", "pad_if_needed", source=JPEG, view=hr.RandomCrop(100))


def test_no_more_is_read_than_the_limit():
    class Endless:
        taken = 0

        def read(self, size, /):
            self.taken += min(size, 1000)
            return bytes(min(size, 1000))

    file = Endless()
    fails(LimitError, "max_file_bytes=5000", source=file, limits=hr.Limits(max_file_bytes=5000))
    assert file.taken == 5001


def test_dataloader_keeps_the_class():
    """It makes an exception of a worker's again from its text alone."""
    with pytest.raises(DecodeError) as caught:
        decode_image(b"")
    again = type(caught.value)(f"Caught DecodeError: {caught.value}")
    assert str(again) == f"Caught DecodeError: {caught.value}"
    assert issubclass(type(again), SampleError)


# --- the file ---


def test_a_missing_file(tmp_path):
    for path in (tmp_path / "no.jpg", tmp_path / "no" / "a.jpg", str(tmp_path / "no.jpg")):
        error = fails(NotFoundError, str(path), "nothing under that name", source=path)
        assert isinstance(error, FileNotFoundError)
    (tmp_path / "file").write_bytes(JPEG)
    fails(NotFoundError, "nothing under that name", source=tmp_path / "file" / "a.jpg")


def test_a_file_that_cannot_be_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "ring").symlink_to(tmp_path / "ring")
    fails(ReadError, str(tmp_path), "not a regular file", source=tmp_path)
    fails(ReadError, "pipe", "not a regular file", source=tmp_path / "pipe")
    fails(ReadError, "ring", "symbolic links", source=tmp_path / "ring")


def test_a_file_objects_own_error_passes():
    class Broken:
        def read(self, size, /):
            raise ConnectionResetError("cable cut")

    with pytest.raises(ConnectionResetError, match="cable cut"):
        decode_image(Broken())


# --- the call ---


@pytest.mark.parametrize(
    ("source", "texts"),
    [
        (7, ["expected a path", "read()", "builtins.int"]),
        (None, ["expected a path", "NoneType"]),
        (Image.new("RGB", (4, 4)), ["expected a path", "PIL.Image.Image"]),
        (torch.zeros(5, dtype=torch.uint8), ["expected a path", "torch.Tensor"]),
        (np.zeros((4, 4, 3), np.uint8), ["encoded", "(4, 4, 3)"]),
        (np.zeros(9), ["encoded", "(9,)", "'d'"]),
        (io.StringIO("text"), ["read() to give bytes", "str", "mode 'rb'"]),
        ("a\0b.jpg", ["zero byte", "'a\\x00b.jpg'"]),
    ],
    ids=["int", "None", "decoded", "tensor", "pixels", "floats", "text file", "zero byte"],
)
def test_what_is_no_source(source, texts):
    fails(UsageError, *texts, source=source)


@pytest.mark.parametrize(
    ("options", "texts"),
    [
        ({"output": "jax"}, ["output", "'torch' or 'numpy'", "'jax'"]),
        ({"output": "numpy", "dtype": "bfloat16"}, ["bfloat16", "output='torch'"]),
        ({"dtype": "int8"}, ["dtype", "'int8'"]),
        ({"mode": "RGBA"}, ["mode", "'RGBA'"]),
        ({"normalize": hr.IMAGENET}, ["normalize", 'dtype="float32"']),
        ({"view": 224}, ["view", "hr.Resize(256)", "224"]),
        ({"view": [hr.Letterbox(9), hr.Resize(4)]}, ["Resize", "cannot follow"]),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_options_that_do_not_fit(options, texts):
    fails(UsageError, *texts, source=JPEG, **options)


UNFIT = {"-1": -1, "65 bits": 1 << 64, "float": 1.5, "text": "seven", "RandomState": np.random.RandomState(1)}


@pytest.mark.parametrize("rng", UNFIT.values(), ids=UNFIT)
def test_what_is_no_source_of_randomness(rng):
    fails(UsageError, "rng", "numpy.random.Generator", repr(rng), source=JPEG, view=hr.RandomCrop(8), rng=rng)


# --- the reader ---


def test_a_reader_is_frozen_and_equal_to_its_copy():
    reader = ImageReader(view=[hr.Resize((9, 9)), hr.RandomHorizontalFlip()], limits=hr.Limits(max_pixels=10**6))
    copy = pickle.loads(pickle.dumps(reader))
    assert copy.limits.max_pixels == 10**6
    assert copy.view == reader.view
    assert torch.equal(copy(JPEG, rng=3), reader(JPEG, rng=3))
    with pytest.raises(AttributeError):
        reader.dtype = "float32"
    assert "RandomHorizontalFlip" in repr(reader)


def test_views_that_hash_and_views_that_do_not():
    """decode_image keeps compiled readers by their options; a list in a view has no hash."""
    listed, paired = (decode_image(JPEG, view=hr.Resize(size)) for size in ([9, 12], (9, 12)))
    assert torch.equal(listed, paired)
    assert decode_image(JPEG, view=hr.Resize((9, 13))).shape == (3, 9, 13)
