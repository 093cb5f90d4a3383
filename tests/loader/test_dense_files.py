"""Masks, depth and normals out of every kind of file; and files that are none."""

from __future__ import annotations

import io
import zipfile

import numpy as np
import OpenEXR
import pytest
from dense_data import npy, one_sample, palette_png
from loader_data import encode
from PIL import Image

import headrace as hr
from headrace.errors import DecodeError, HeadraceError, LimitError, UnsupportedError, ViewError

RNG = np.random.default_rng(1)
FLOATS = RNG.uniform(0.5, 9, (12, 17)).astype(np.float32)
WHOLE = RNG.integers(1, 60000, (12, 17)).astype(np.uint16)
CLASSES = RNG.integers(0, 30, (12, 17)).astype(np.uint8)
VECTORS = RNG.normal(size=(12, 17, 3)).astype(np.float32)


def exr(channels: dict[str, np.ndarray]) -> bytes:
    """Written as its users write it, to a file."""
    import tempfile
    from pathlib import Path

    header = {"compression": OpenEXR.ZIP_COMPRESSION, "type": OpenEXR.scanlineimage}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.exr")
        OpenEXR.File(header, channels).write(str(path))
        return path.read_bytes()


def npz(**arrays: np.ndarray) -> bytes:
    out = io.BytesIO()
    np.savez_compressed(out, **arrays)
    return out.getvalue()


def pfm(values: np.ndarray) -> bytes:
    """Rows from below, as the format has them."""
    height, width = values.shape
    return f"Pf\n{width} {height}\n-1.0\n".encode() + values[::-1].astype("<f4").tobytes()


def tiff(values: np.ndarray) -> bytes:
    return encode(Image.fromarray(values), "TIFF")


def load(root, field, *, view=None, **columns):
    dataset = one_sample(root, **columns)
    fields = dict.fromkeys(columns, field) if not isinstance(field, dict) else field
    loader = hr.Loader(dataset, fields, view=view, batch_size=1, output="numpy", threads=1, on_error="raise")
    (batch,) = loader
    return batch


DEPTHS = {
    "PNG": (encode(Image.fromarray(WHOLE), "PNG"), WHOLE),
    "TIFF of floats": (tiff(FLOATS), FLOATS),
    "TIFF of 16 bits": (tiff(WHOLE), WHOLE),
    "EXR": (exr({"Z": FLOATS}), FLOATS),
    "EXR of halves": (exr({"Y": FLOATS.astype(np.float16)}), FLOATS.astype(np.float16)),
    "npy": (npy(FLOATS), FLOATS),
    "npy of 16 bits": (npy(WHOLE), WHOLE),
    "npy of doubles": (npy(FLOATS.astype(np.float64)), FLOATS),
    "npy of another byte order": (npy(FLOATS.astype(">f4")), FLOATS),
    "npy of 16 bits of another byte order": (npy(WHOLE.astype(">u2")), WHOLE),
    "npy, column by column": (npy(np.asfortranarray(FLOATS)), FLOATS),
    "npy with a channel": (npy(FLOATS[:, :, None]), FLOATS),
    "npy with a channel in front": (npy(FLOATS[None]), FLOATS),
    "npz": (npz(depth=FLOATS), FLOATS),
    "PFM": (pfm(FLOATS), FLOATS),
}


@pytest.mark.parametrize("kind", DEPTHS)
def test_depth_of_every_kind(tmp_path, kind):
    data, expected = DEPTHS[kind]
    batch = load(tmp_path, hr.Depth(2.0), depth=data)
    np.testing.assert_array_equal(batch["depth"][0, 0], (expected.astype(np.float64) * 2).astype(np.float32))
    assert batch["depth_valid"].all()


def test_depth_of_floats_is_cut_by_the_view_of_the_image(tmp_path):
    rgb = encode(Image.fromarray(CLASSES), "PNG")
    fields = {"rgb": hr.Image(mode="L", filter="nearest"), "depth": hr.Depth()}
    batch = load(tmp_path, fields, view=hr.CenterCrop((6, 8), flip=1.0), rgb=rgb, depth=npy(FLOATS))
    np.testing.assert_array_equal(batch["rgb"][0, 0], CLASSES[3:9, 4:12][:, ::-1])
    np.testing.assert_array_equal(batch["depth"][0, 0], FLOATS[3:9, 4:12][:, ::-1])


def test_the_first_field_may_be_an_array_whose_size_the_batch_takes(tmp_path):
    """Its header is read before anything is cut."""
    fields = {"depth": hr.Depth(), "rgb": hr.Image(mode="L", filter="nearest")}
    rgb = encode(Image.fromarray(CLASSES), "PNG")
    for number, data in enumerate((npy(FLOATS), npz(a=FLOATS), exr({"Z": FLOATS}), npy(FLOATS[None]))):
        batch = load(tmp_path / str(number), fields, depth=data, rgb=rgb)
        np.testing.assert_array_equal(batch["depth"][0, 0], FLOATS)
        np.testing.assert_array_equal(batch["rgb"][0, 0], CLASSES)


MASKS = {
    "palette": (palette_png(CLASSES), CLASSES),
    "grey": (encode(Image.fromarray(CLASSES), "PNG"), CLASSES),
    "grey of 1 bit": (encode(Image.fromarray(CLASSES > 9), "PNG"), (CLASSES > 9) * np.uint8(255)),
    "GIF": (encode(Image.fromarray(CLASSES), "GIF", optimize=False), CLASSES),
    "BMP": (encode(Image.fromarray(CLASSES), "BMP"), CLASSES),
    "TIFF": (tiff(CLASSES), CLASSES),
    "npy": (npy(CLASSES), CLASSES),
    "npy of int64": (npy(CLASSES.astype(np.int64)), CLASSES),
    "npy of bool": (npy(CLASSES > 9), CLASSES > 9),
}


@pytest.mark.parametrize("kind", MASKS)
def test_masks_of_every_kind(tmp_path, kind):
    data, expected = MASKS[kind]
    np.testing.assert_array_equal(load(tmp_path, hr.Mask(), mask=data)["mask"][0], expected)


@pytest.mark.parametrize("kind", ["PNG", "TIFF of 16 bits", "npy of 16 bits"])
def test_masks_of_16_bits(tmp_path, kind):
    data, expected = DEPTHS[kind]
    np.testing.assert_array_equal(load(tmp_path, hr.Mask(dtype="int32"), mask=data)["mask"][0], expected)


NORMALS = {
    "npy": npy(VECTORS),
    "npy with channels in front": npy(VECTORS.transpose(2, 0, 1)),
    "EXR": exr({"RGB": VECTORS}),
    "npz": npz(normals=VECTORS),
}


@pytest.mark.parametrize("kind", NORMALS)
def test_normals_of_every_kind(tmp_path, kind):
    batch = load(tmp_path, hr.Normals(), normals=NORMALS[kind])
    np.testing.assert_array_equal(batch["normals"][0], VECTORS.transpose(2, 0, 1))


def png_of(mode):
    return encode(Image.fromarray(CLASSES).convert(mode), "PNG")


def pickled():
    out = io.BytesIO()
    np.save(out, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    return out.getvalue()


BAD = {
    "a mask of RGB": (hr.Mask(), png_of("RGB"), UnsupportedError, "one channel, palette or grey, got 8-bit PNG of RGB"),
    "a mask with alpha": (hr.Mask(), png_of("LA"), UnsupportedError, "got 8-bit PNG of grey and alpha"),
    "a mask of RGB, by Pillow": (
        hr.Mask(), encode(Image.fromarray(CLASSES).convert("RGB"), "BMP"), UnsupportedError,
        "one channel, palette or grey, got an image of 8-bit values, 3 channels",
    ),
    "a mask in JPEG": (
        hr.Mask(), encode(Image.fromarray(CLASSES)), UnsupportedError, "values are as they were written, got JPEG"
    ),
    "a mask of floats": (hr.Mask(), npy(FLOATS), DecodeError, "a mask of whole numbers from 0 to 65535, got float32"),
    "a mask of negative numbers": (hr.Mask(), npy(-CLASSES.astype(int)), DecodeError, "whole numbers from 0 to 65535"),
    "a mask beyond its type": (hr.Mask(), DEPTHS["PNG"][0], DecodeError, "remap= and dtype= have a place for, got"),
    "a mask beyond its table": (
        hr.Mask(remap=[0, 1, 2]), png_of("L"), DecodeError, "remap= and dtype= have a place for, got"
    ),
    "depth of 8 bits": (hr.Depth(), png_of("L"), UnsupportedError, "16-bit grey or floats, got 8-bit PNG of grey"),
    "depth of RGB": (hr.Depth(), png_of("RGB"), UnsupportedError, "16-bit grey or floats, got 8-bit PNG of RGB"),
    "depth in JPEG": (hr.Depth(), encode(Image.fromarray(CLASSES)), UnsupportedError, "floats, got JPEG"),
    "depth of 8 bits, by numpy": (hr.Depth(), npy(CLASSES), UnsupportedError, "an image of 8-bit values, 1 channel"),
    "depth of three channels": (hr.Depth(), npy(VECTORS), UnsupportedError, "an image of float values, 3 channels"),
    "depth with four dimensions": (hr.Depth(), npy(FLOATS[None, None]), DecodeError, "[H, W, 1], got [1, 1, 12, 17]"),
    "depth of nothing": (hr.Depth(), npy(FLOATS[:0]), DecodeError, "expected an array [H, W]"),
    "no valid pixel": (
        hr.Depth(normalize=hr.Quantiles()), encode(Image.fromarray(WHOLE * 0), "PNG"), DecodeError,
        "at least one valid depth to normalise by, got none of 204 pixels",
    ),
    "no valid pixel of floats": (
        hr.Depth(normalize=hr.Quantiles()), npy(FLOATS * np.nan), DecodeError, "got none of 204 pixels"
    ),
    "normals of grey": (hr.Normals(), png_of("L"), UnsupportedError, "three channels, 8-bit or floats, got 8-bit PNG"),
    "normals of one channel": (hr.Normals(), npy(FLOATS), UnsupportedError, "floats, got an image of float values"),
    "a pickle": (hr.Depth(), pickled(), DecodeError, "Python objects, which are never unpickled"),
    "npy, cut short": (hr.Depth(), npy(FLOATS)[:-1], DecodeError, "the file is cut short"),
    "npy, cut in its header": (hr.Depth(), npy(FLOATS)[:40], DecodeError, "header that cannot be read"),
    "npz of two": (hr.Depth(), npz(a=FLOATS, b=FLOATS), DecodeError, "an .npz of one array, got 2: a.npy, b.npy"),
    "npz, damaged": (hr.Depth(), npz(a=FLOATS)[:-30], DecodeError, "zip that cannot be read"),
    "EXR, cut short": (hr.Depth(), DEPTHS["EXR"][0][:-40], DecodeError, "OpenEXR cannot decode"),
    "EXR of two": (hr.Depth(), exr({"Z": FLOATS, "A": FLOATS}), DecodeError, "or of R, G and B, got A, Z"),
    "text": (hr.Depth(), b"nothing of the kind", DecodeError, "bytes of no format that Pillow knows"),
}  # fmt: skip


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", BAD)
def test_files_that_do_not_suit(tmp_path, name):
    """A bad sample each: named with its key and field."""
    field, data, kind, text = BAD[name]
    with pytest.raises(HeadraceError) as error:
        load(tmp_path, {"found": field}, view=hr.Resize((6, 8)), found=data)
    assert type(error.value) is kind, error.value
    assert text in str(error.value)
    assert "field 'found'" in str(error.value)


@pytest.mark.parametrize("kind", ["npy", "npz", "EXR", "TIFF of floats"])
def test_arrays_are_bounded_before_they_are_made(tmp_path, kind):
    dataset = one_sample(tmp_path, depth=DEPTHS[kind][0])
    limits = hr.Limits(max_pixels=FLOATS.size // 4)
    loader = hr.Loader(dataset, {"depth": hr.Depth()}, batch_size=1, view=hr.Resize((3, 4)), limits=limits, threads=1,
                       on_error="raise", output="numpy")  # fmt: skip
    with pytest.raises(LimitError, match=f"max_pixels={limits.max_pixels}"):
        next(iter(loader))


def test_a_zip_that_unpacks_to_more_than_a_file_may_have(tmp_path):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.npy", bytes(1 << 20))
    dataset = one_sample(tmp_path, depth=out.getvalue())
    loader = hr.Loader(dataset, {"depth": hr.Depth()}, batch_size=1, view=hr.Resize((3, 4)), threads=1,
                       limits=hr.Limits(max_file_bytes=1 << 19), on_error="raise", output="numpy")  # fmt: skip
    with pytest.raises(LimitError, match="an array of 1,048,576 bytes, more than max_file_bytes=524288"):
        next(iter(loader))


def test_another_aspect_ratio_is_a_bad_sample(tmp_path):
    rgb, mask = encode(Image.fromarray(CLASSES), "PNG"), encode(Image.fromarray(CLASSES[:, :9]), "PNG")
    with pytest.raises(ViewError, match=r"this field is 9 x 12 .* drawn from is 17 x 12"):
        load(tmp_path, {"rgb": hr.Image(), "mask": hr.Mask()}, view=hr.Resize((6, 8)), rgb=rgb, mask=mask)


def test_exr_without_its_library_names_the_command(tmp_path, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "OpenEXR", None)
    with pytest.raises(hr.HeadraceError, match="reading EXR needs OpenEXR: pip install OpenEXR"):
        load(tmp_path, hr.Depth(), view=hr.Resize((6, 8)), depth=DEPTHS["EXR"][0])
