"""Bytes become floats on the device with the very bits that the core gives, in every layout; numpy is the judge."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import headrace as hr
from headrace.device import Conversion
from headrace.device.image_conversion import dense_strides

LAYOUTS = {"channels-last": torch.channels_last, "planar": torch.contiguous_format}


def every_byte(channels=3):
    """Each of the 256 values in each channel, and sizes that no block divides."""
    values = torch.arange(2 * channels * 17 * 16, dtype=torch.int64).reshape(2, channels, 17, 16)
    return ((values * 37) % 256).to(torch.uint8)


def expected(image, normalize, dtype):
    """In numpy: one subtraction, one division, single precision, then one rounding."""
    channels = image.shape[1]
    mean, std = (normalize.mean, normalize.std) if normalize else ((0.0,) * channels, (1.0,) * channels)
    subtract = (np.array(mean) * 255).astype(np.float32).reshape(1, -1, 1, 1)
    divide = (np.array(std) * 255).astype(np.float32).reshape(1, -1, 1, 1)
    value = (image.numpy().astype(np.float32) - subtract) / divide
    return torch.from_numpy(value).to(getattr(torch, dtype))


@pytest.mark.parametrize("image_layout", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("channels_last", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("normalize", [None, hr.IMAGENET], ids=["fractions", "normalised"])
def test_bits(image_layout, channels_last, dtype, normalize):
    image = every_byte().contiguous(memory_format=image_layout)
    got = Conversion(dtype, normalize, channels_last).apply(image)
    assert got.dtype == getattr(torch, dtype)
    assert torch.equal(got, expected(image, normalize, dtype))
    layout = torch.channels_last if channels_last else torch.contiguous_format
    assert got.is_contiguous(memory_format=layout)


@pytest.mark.parametrize("channels", [1, 2, 4])
def test_other_channel_counts_become_fractions(channels):
    image = every_byte(channels)
    assert torch.equal(Conversion("float32", None, True).apply(image), expected(image, None, "float32"))


@pytest.mark.parametrize("channels_last", [True, False])
def test_copies_are_converted_as_images_are(channels_last):
    images = [every_byte(), every_byte().flip(0)]
    copies = torch.stack(images, dim=1).movedim(2, -1).contiguous().movedim(-1, 2)  # as a loader has them
    got = Conversion("float16", hr.IMAGENET, channels_last).apply(copies)
    assert got.shape == copies.shape
    for copy, image in enumerate(images):
        assert torch.equal(got[:, copy], expected(image, hr.IMAGENET, "float16"))
    assert got.stride(2) == (1 if channels_last else 17 * 16)


def test_the_source_keeps_its_bytes():
    image = every_byte()
    before = image.clone()
    Conversion("float32", hr.IMAGENET, True).apply(image)
    assert torch.equal(image, before)


def test_nothing_to_do_copies_nothing():
    image = every_byte().contiguous(memory_format=torch.channels_last)
    assert Conversion(None, None, True).apply(image).data_ptr() == image.data_ptr()


def test_only_the_layout():
    image = torch.rand(2, 3, 5, 7)
    got = Conversion(None, None, True).apply(image)
    assert got.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(got, image)


def test_same_bits_as_the_loader(photos):
    """What `Loader(device=)` relies on: bytes over the bus, floats there, and nothing changes."""
    options = {"view": hr.RandomResizedCrop(48), "batch_size": 16, "shuffle": True, "threads": 2}
    for dtype, normalize in (("float32", hr.IMAGENET), ("bfloat16", hr.IMAGENET), ("float16", None)):
        here = hr.Loader(photos, {"image": hr.Image(dtype=dtype, normalize=normalize)}, **options)
        there = hr.Loader(photos, {"image": hr.Image()}, **options)
        conversion = Conversion(dtype, normalize, True)
        for mine, theirs in zip(here, there, strict=True):
            assert torch.equal(mine["image"], conversion.apply(theirs["image"]))


def test_memory_with_gaps_is_left_to_torch():
    wide = every_byte()[..., ::2]
    assert dense_strides(wide, torch.empty(wide.shape)) is None
    assert torch.equal(Conversion("float32", None, False).apply(wide), expected(wide, None, "float32"))


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_the_kernel_in_tritons_interpreter(channels, monkeypatch):
    """The kernel's arithmetic and addressing without a device. bfloat16 is left out: the interpreter cuts it off where
    a device rounds."""
    pytest.importorskip("triton", reason="needs Triton: pip install triton")
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    from headrace.device import image_conversion
    from headrace.device.image_conversion import channel_scale

    kernel = image_conversion.load_kernel()
    normalize = hr.IMAGENET if channels == 3 else None
    for image_layout in LAYOUTS.values():
        for out_layout in LAYOUTS.values():
            image = every_byte(channels).contiguous(memory_format=image_layout)
            out = torch.empty(image.shape, memory_format=out_layout)
            strides = dense_strides(image, out)
            image_conversion.launch_kernel(kernel, image, out, strides, *channel_scale(normalize, channels))
            assert torch.equal(out, expected(image, normalize, "float32"))
